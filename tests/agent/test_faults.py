"""Faults of the list in `tests/FAULTS.md` that no other test shows."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from journals import entries
from kept_agent import on_disk
from mortal_agent import MortalAgent, OwnProcess
from sweeps import cells, deployment, directory, ended, phases, submission, until
from waiting import until as wait

from ddconsole.agent.journal import Journal, JournalHeld
from ddconsole.agent.service import Service
from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.clock import SystemClock
from ddconsole.core.duration import remaining_of_run
from ddconsole.core.fold import fold
from ddconsole.core.wire import Command
from ddconsole.runner.boot import Boot
from ddconsole.runner.identity import ProcessIdentity, identify
from ddconsole.runner.run_directory import RunDirectory

TESTS = Path(__file__).parents[1]
OPEN = "open"


def test_every_test_that_the_list_of_faults_names_is_there() -> None:
    text = (TESTS / "FAULTS.md").read_text()
    rows = [line.split("|")[1:-1] for line in text.splitlines() if re.match(r"\| \d", line)]
    numbers = [int(row[0]) for row in rows]
    assert numbers == [*range(1, 44), *range(48, 51)]
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row[3])
        assert named or OPEN in row[3], row
        for file, name in named:
            source = (TESTS / file).read_text()
            assert re.search(rf"^(async )?def {name}\(", source, re.MULTILINE), (row[0], file, name)


@pytest.mark.engine
async def test_an_agent_that_stands_still_costs_no_cell(tmp_path: Path) -> None:
    agent = MortalAgent(tmp_path, OwnProcess())
    order = submission([deployment("d01", load_seconds=0.05, pace=0.05)], cells("d01", 2, max_tokens=40))

    async def stand_still() -> None:
        run = RunDirectory(tmp_path / "runs" / "test-run")
        await wait(lambda: on_disk(run).running_cell(), 60)
        pid = (await agent.hello())["pid"]
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(3.0)
        os.kill(pid, signal.SIGCONT)

    stopping = asyncio.create_task(stand_still())
    try:
        run = await agent.sweep(order, 90)
        await stopping
        state = on_disk(run)
        assert [len(row.attempts) for row in state.cells.values()] == [1, 1]
        assert agent.starts == 1
        assert run.journal.read_bytes() == b"".join(agent.sent)
    finally:
        await agent.end()


@pytest.mark.engine
async def test_where_memory_runs_out_servers_go_before_those_who_tell_of_it(tmp_path: Path) -> None:
    service = Service(tmp_path, SystemClock())
    await service.start()
    service.submit(submission([deployment("d01", load_seconds=2.0, workers=2)], cells("d01", 1)))
    try:
        state = await until(service, "test-run", lambda one: 1 in one.launches and one.launches[1].pid is not None)
        server = psutil.Process(state.launches[1].pid)
        await wait(lambda: len(server.children(recursive=True)) == 2)
        tree = [server, *server.children(recursive=True)]
        scores = [int(Path(f"/proc/{one.pid}/oom_score_adj").read_text()) for one in tree]
        runner = json.loads(directory(service).launch(1).runner.read_bytes())["pid"]
        assert min(scores) > int(Path(f"/proc/{runner}/oom_score_adj").read_text())
        await until(service, "test-run", ended)
    finally:
        await service.stop()


@pytest.mark.engine
async def test_stop_told_twice_stops_once(tmp_path: Path) -> None:
    service = Service(tmp_path, SystemClock())
    await service.start()
    service.submit(submission([deployment("d01", load_seconds=0.05, pace=0.05)], cells("d01", 2, max_tokens=200)))
    try:
        await until(service, "test-run", lambda state: state.running_cell() is not None)
        first = service.command(directory(service), Command("one", "stop-run", "test"))
        assert first.taken
        assert service.command(directory(service), Command("one", "stop-run", "test")) == first
        refused = service.command(directory(service), Command("two", "stop-run", "test"))
        assert not refused.taken
        assert "the run is stopping" in refused.text
        state = await until(service, "test-run", ended)
        assert state.outcome == "stopped"
        ends = [row.state.phase for row in state.cells.values()]
        assert ends == [st.CellPhase.STOPPED, st.CellPhase.PENDING], phases(state)
    finally:
        await service.stop()


@pytest.mark.engine
async def test_consoles_that_read_nothing_cost_the_agent_nothing(tmp_path: Path) -> None:
    agent = MortalAgent(tmp_path, OwnProcess())
    order = submission([deployment("d01", load_seconds=0.05, pace=0.02)], cells("d01", 2, max_tokens=60))
    deaf: list[socket.socket] = []
    memory: list[int] = []

    async def attach_and_read_nothing() -> None:
        await wait((tmp_path / "runs" / "test-run" / "launches" / "1" / "server.log").exists, 60)
        memory.append(psutil.Process((await agent.hello())["pid"]).memory_info().rss)
        for _ in range(20):
            for path in ("journal?after=0", "live?launch=1&from=0"):
                one = socket.socket(socket.AF_UNIX)
                one.connect(str(tmp_path / "s" / "a"))
                one.sendall(f"GET /v1/runs/test-run/{path} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
                deaf.append(one)

    attaching = asyncio.create_task(attach_and_read_nothing())
    try:
        run = await agent.sweep(order, 90)
        await attaching
        memory.append(psutil.Process((await agent.hello())["pid"]).memory_info().rss)
        assert memory[1] - memory[0] < 24 * 2**20
        assert run.journal.read_bytes() == b"".join(agent.sent)
    finally:
        for one in deaf:
            one.close()
        await agent.end()


def test_a_wall_clock_that_jumps_back_and_forth_breaks_no_figure() -> None:
    order = submission([deployment("d01")], cells("d01", 2))
    told = entries(
        [
            ev.RunCreated("r", "p", "0" * 64, "h", "ar", False, "0.1", "llamacpp"),
            ev.DeploymentAdded(order.deployments[0]),
            *(ev.CellAdded(one) for one in order.cells),
            ev.LaunchPlanned(1, "d01", 1),
            ev.LaunchStarting(1, "process started", None, 5, 6),
            ev.LaunchReady(1, {}, {}, 3.0, {}),
            ev.AttemptStarted("c001", 1, 1, 1, 0),
            ev.AttemptDone("c001", 1, 1, "0" * 64, "f", {"output_rate": 10.0}, ()),
        ]
    )
    for jump in (-7200.0, 7200.0, -40 * 365 * 86400.0):
        moved = [replace(one, at=one.at + jump * (number % 2)) for number, one in enumerate(told)]
        state = fold(moved)
        assert state.cells["c001"].state.phase is st.CellPhase.DONE
        assert state.impossible_events == 0
        left = remaining_of_run(state)
        assert left is None or left >= 0


def test_a_pid_that_was_used_again_gets_no_signal() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        now = identify(child.pid)
        assert now is not None
        for other in (
            ProcessIdentity(now.boot, now.pid, now.started - 1),
            ProcessIdentity("another boot", now.pid, now.started),
        ):
            assert not other.alive()
            assert not other.send(signal.SIGKILL)
        assert child.poll() is None
        assert now.send(signal.SIGKILL)
        assert child.wait(10) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_a_held_journal_names_its_holder_and_its_machine(tmp_path: Path) -> None:
    boot = Boot("boot", 0.0, 7.0)
    path = tmp_path / "journal.jsonl"
    held = Journal.open(path, SystemClock(), boot=boot, pid=1, version="test")
    with pytest.raises(JournalHeld, match=rf"another agent \(pid {os.getpid()} on {re.escape(socket.gethostname())}\)"):
        Journal.open(path, SystemClock(), boot=boot, pid=1, version="test")
    held.close()
    Journal.open(path, SystemClock(), boot=boot, pid=1, version="test").close()


@pytest.mark.engine
async def test_a_plan_that_is_edited_meanwhile_changes_nothing_that_runs(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text("name: test\n")
    service = Service(tmp_path / "runs", SystemClock())
    await service.start()
    order = submission([deployment("d01", load_seconds=0.05)], cells("d01", 1))
    service.submit(replace(order, plan_text=plan.read_text()))
    plan.write_text("name: other\n")
    try:
        state = await until(service, "test-run", ended)
        assert directory(service).plan.read_text() == "name: test\n"
        assert state.created is not None
        assert state.created.plan_sha256 == order.plan_sha256
    finally:
        await service.stop()
