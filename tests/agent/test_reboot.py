"""The host is started anew under a run: forged boot tokens, real agents, runners and servers."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kept_agent import is_over, is_there, kept_agent, on_disk, parent_of, tell, wait_on_disk
from sweeps import cells, deployment, submission

from ddconsole.agent.after_boot import boot_in_words
from ddconsole.core import states as st
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.readings import read
from ddconsole.core.run_state import RunState
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.probe.monitor import one_sample
from ddconsole.runner.boot import current_boot
from ddconsole.runner.identity import descendants, start_time
from ddconsole.runner.run_directory import RunDirectory

MODEL = Path(__file__).parents[1] / "fixtures" / "models" / "tinypy.gguf"
BYSTANDER = """
import signal, time
from pathlib import Path
def note(number, frame):
    Path("signals").write_text(str(number))
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, 32, 33}:
    signal.signal(number, note)
print("up", flush=True)
time.sleep(600)
"""
Bystander = Callable[[Path], int]


class Machine:
    """What the kernel would say of its boot, in a file that agents and runners read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.kernel = time.time() - 3600
        self.start("first", rebooted=False)

    def start(self, token: str, *, rebooted: bool) -> None:
        """From now on this is the boot; without `rebooted` only the container was started anew."""
        self.kernel = time.time() if rebooted else self.kernel
        self._facts = {"token": token, "kernel": self.kernel, "first": time.time()}
        self._path.write_text(json.dumps(self._facts))

    def sleep(self, seconds: float) -> None:
        """The host was suspended for so long."""
        self._path.write_text(json.dumps({**self._facts, "suspended": seconds}))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setenv("DDCONSOLE_BOOT_FACTS", str(tmp_path / "boot.json"))
    return Machine(tmp_path / "boot.json")


@pytest.fixture
def bystander() -> Iterator[Bystander]:
    """Starts a process that notes every signal it gets, and ends it afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> int:
        process = subprocess.Popen([sys.executable, "-c", BYSTANDER], cwd=folder, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "runs" / "test-run")


async def gone(pid: int) -> None:
    """Wait until a killed process is gone."""
    for _ in range(2000):
        if not is_there(pid):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{pid} is still there")


async def power_off(client: HttpAgentClient, run: RunDirectory) -> None:
    """Everything of ours dies at once, as with the power."""
    agent = (await client.hello()).pid
    state = on_disk(run)
    live = state.live_launch()
    assert live is not None
    runner = int(json.loads(run.launch(live.number).runner.read_bytes())["pid"])
    pids = [parent_of(agent), agent, runner, *(one.pid for one in descendants(runner))]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await asyncio.gather(*(gone(pid) for pid in pids))


def measures(state: RunState) -> bool:
    return state.running_cell() is not None


def told_why(state: RunState) -> bool:
    """The pause stands there with its time: what the fold says alone has none."""
    return state.phase is st.RunPhase.PAUSED and ":" in state.paused_because and state.live_launch() is None


@pytest.mark.engine
async def test_a_reboot_signals_nobody_pauses_the_run_and_it_goes_on_when_told(
    machine: Machine, run: RunDirectory, bystander: Bystander, tmp_path: Path
) -> None:
    async with kept_agent(tmp_path) as client:
        await client.submit(submission([deployment("d01", pace=0.05)], cells("d01", 2), retries=0))
        await wait_on_disk(run, measures)
        await power_off(client, run)
    # Another process has the recorded pid now, works in the launch's folder, and began at the very same tick.
    stranger = bystander(run.launch(1).path)
    runner = {"boot": "first", "pid": stranger, "started": start_time(stranger)}
    run.launch(1).runner.write_text(json.dumps(runner))
    machine.start("second", rebooted=True)

    async with kept_agent(tmp_path) as client:
        state = await wait_on_disk(run, told_why)
        because = boot_in_words("host rebooted", machine.kernel, time.time())
        assert state.paused_because == because
        assert state.paused_by == "ddconsole"
        attempt = state.cells["c001"].attempts[0]
        assert attempt.outcome is st.CellPhase.INTERRUPTED
        assert attempt.cause is not None
        assert attempt.cause.text == because
        launch = state.launches[1].state
        assert isinstance(launch, st.LaunchFailed)
        assert launch.cause.text == because

        await tell(client, run, "resume")
        state = await wait_on_disk(run, is_over)

    assert [row.state.phase for row in state.cells.values()] == [st.CellPhase.DONE] * 2
    assert state.cells["c001"].attempts[1].launch == 2
    assert is_there(stranger)
    assert not (run.launch(1).path / "signals").exists()


@pytest.mark.engine
async def test_a_restart_of_the_container_alone_is_told_as_that(
    machine: Machine, run: RunDirectory, tmp_path: Path
) -> None:
    async with kept_agent(tmp_path) as client:
        await client.submit(submission([deployment("d01", load_seconds=30)], cells("d01", 1)))
        await wait_on_disk(run, lambda state: state.live_launch() is not None and bool(state.launches[1].pid))
        await tell(client, run, "no-new-launches")
        await power_off(client, run)
    machine.start("second", rebooted=False)
    async with kept_agent(tmp_path) as client:
        state = await wait_on_disk(run, told_why)
        assert state.paused_because.startswith("container restarted ")
        assert state.paused_because.endswith("before that: no new launches had been asked for")
        await tell(client, run, "stop-run")
        await wait_on_disk(run, is_over)


@pytest.mark.engine
async def test_a_run_that_was_being_stopped_simply_ends(machine: Machine, run: RunDirectory, tmp_path: Path) -> None:
    async with kept_agent(tmp_path) as client:
        order = submission([deployment("d01", on_term="ignore", pace=0.05)], cells("d01", 1))
        await client.submit(order)
        await wait_on_disk(run, measures)
        await tell(client, run, "stop-run")
        await power_off(client, run)
    machine.start("second", rebooted=True)
    async with kept_agent(tmp_path):
        state = await wait_on_disk(run, is_over)
    assert state.outcome == "stopped"


@pytest.mark.engine
async def test_what_the_boot_broke_holds_the_sweep_back_until_the_operator_overrules(
    machine: Machine, run: RunDirectory, tmp_path: Path
) -> None:
    """The model of the second deployment was in memory only, and the driver is another one."""
    model, draft = tmp_path / "model.gguf", tmp_path / "draft.gguf"
    for path in (model, draft):
        path.write_bytes(MODEL.read_bytes())
    order = submission([deployment("d01", pace=0.05)], cells("d01", 1), preflight=True)
    order = replace(order, model={"path": str(model), "draft": str(draft), "source": "/data/models"})
    async with kept_agent(tmp_path) as client:
        await client.submit(order)
        await wait_on_disk(run, measures)
        await power_off(client, run)
    before = await one_sample()
    before = replace(before, kernel=read("6.1.0-old", before.at, "test"))
    run.environment.write_text(json.dumps(host_state_to_json(before)))
    draft.unlink()
    machine.start("second", rebooted=True)

    async with kept_agent(tmp_path) as client:
        state = await wait_on_disk(run, told_why)
        assert f"changed since: kernel 6.1.0-old → {os.uname().release}" in state.paused_because
        await tell(client, run, "resume")
        state = await wait_on_disk(run, lambda state: bool(state.boot_findings))
        assert state.phase is st.RunPhase.PAUSED
        assert "draft" in state.paused_because
        assert "resume again to go on all the same" in state.paused_because
        assert len(state.launches) == 1

        await tell(client, run, "resume")
        state = await wait_on_disk(run, lambda state: not state.booted and state.phase is st.RunPhase.PAUSED)
        # Overruled, but the gate before each launch cannot be.
        assert state.paused_because.startswith("launch held back: model.complete: draft")

        draft.write_bytes(MODEL.read_bytes())
        await tell(client, run, "resume")
        state = await wait_on_disk(run, is_over)
    assert state.cells["c001"].state.phase is st.CellPhase.DONE


@pytest.mark.engine
async def test_a_cell_during_which_the_host_slept_is_void_and_measured_again(
    machine: Machine, run: RunDirectory, tmp_path: Path
) -> None:
    async with kept_agent(tmp_path) as client:
        await client.submit(submission([deployment("d01", pace=0.05)], cells("d01", 2)))
        await wait_on_disk(run, measures)
        machine.sleep(312.0)
        state = await wait_on_disk(run, is_over)
    first, second = state.cells["c001"].attempts
    assert first.outcome is st.CellPhase.FAILED
    assert first.cause is not None
    assert first.cause.text == "the host was suspended for 312 s while this was measured"
    assert second.outcome is st.CellPhase.DONE
    assert [one.outcome for one in state.cells["c002"].attempts] == [st.CellPhase.DONE]


def test_the_real_boot_is_the_one_that_the_kernel_tells() -> None:
    boot = current_boot()
    btime = next(
        float(line.split()[1]) for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime ")
    )
    assert abs(boot.kernel - btime) < 2
    assert boot.kernel <= boot.first <= time.time()
    assert boot.token.startswith(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
