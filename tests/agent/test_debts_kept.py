"""Debts over a reboot, of ended runs, of users without root, with a real engine, and on machines without systemd."""

import json
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from box_agent import BoxAgent
from displaced_unit import command, free_port, install_server, measures, order, over, told_by, up, wait_until_served
from served_user import copied_engine
from sshd import login_user
from sweeps import cells, deployment, directory, submission, until
from systemd_box import SystemdBox, systemd_box

from ddconsole.agent.debt_record import DebtFile
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.clock import SystemClock
from ddconsole.core.events import DebtSettled
from ddconsole.core.wire import Command, Submission


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    login_user()
    with systemd_box() as one:
        install_server(one)
        yield one


@pytest.fixture
def agent(box: SystemdBox) -> Iterator[BoxAgent]:
    one = BoxAgent(box)
    yield one
    one.kill()


def _displacing(plan: Submission, unit: str) -> Submission:
    return replace(plan, displace=({"unit": unit, "needs_gpu": None},))


def _told(name: str, changes: dict[str, None] | None = None) -> Command:
    return Command(secrets.token_hex(4), name, "op@test", changes=changes or {})


def settled(agent: BoxAgent, run: str) -> list[str]:
    return [one.event.how for one in agent.entries(run) if isinstance(one.event, DebtSettled)]


@pytest.mark.parametrize(
    "kind",
    ["enabled", pytest.param("plain", marks=pytest.mark.trial), pytest.param("transient", marks=pytest.mark.trial)],
)
@pytest.mark.systemd
@pytest.mark.ssh
@pytest.mark.timeout(300)
async def test_after_a_reboot_the_unit_is_back_and_the_run_waits(box: SystemdBox, agent: BoxAgent, kind: str) -> None:
    unit, port = f"boot-{kind}.service", free_port()
    if kind == "transient":
        box.run("systemd-run", f"--unit={unit}", "--setenv=A=1", "--", *command(port).split())
        wait_until_served(port)
    else:
        text = f"[Service]\nExecStart={command(port)}\nEnvironment=A=1\n[Install]\nWantedBy=multi-user.target\n"
        up(box, unit, text, port)
    if kind == "enabled":
        box.run("systemctl", "enable", unit)
    before = told_by(port)
    agent.start()
    await agent.submit(order(unit, f"reboot-{kind}", number=30))
    await agent.until(f"reboot-{kind}", measures, 60)
    box.reboot()
    agent.start()
    state = await agent.until(f"reboot-{kind}", lambda one: one.phase is st.RunPhase.PAUSED and not one.debts, 60)
    assert "rebooted" in state.paused_because or "restarted" in state.paused_because
    (how,) = settled(agent, f"reboot-{kind}")
    assert how.startswith("came back after the reboot" if kind == "enabled" else "put back")
    assert told_by(port) == before


@pytest.mark.systemd
@pytest.mark.ssh
@pytest.mark.timeout(300)
async def test_an_agent_that_starts_settles_what_an_ended_run_owes(box: SystemdBox, agent: BoxAgent) -> None:
    port = free_port()
    weak = command(port, "--dies-after", "0.5", "--if", "/run/dies-early")
    up(box, "late.service", f"[Service]\nExecStart={weak}\n", port)
    agent.start()
    await agent.submit(order("late.service", "ended"))
    await agent.until("ended", measures, 60)
    box.write("/run/dies-early", "")
    await agent.until("ended", lambda one: over(one) and one.debts["late.service"].problem, 60)
    agent.kill()
    box.path("/run/dies-early").unlink()
    debts = agent.runs / "ended" / "debts.json"
    assert debts.stat().st_mode & 0o777 == 0o600
    debts.write_text("{ torn")
    agent.start()
    state = await agent.until("ended", lambda one: not one.debts, 60)
    assert state.phase is st.RunPhase.ENDED
    assert any("debts.json could not be read" in one.text for one in state.warnings)
    assert [one.read_text() for one in debts.parent.glob("debts.json.unreadable-*")] == ["{ torn"]
    assert told_by(port)["argv"][1] == str(port)


@pytest.mark.systemd
@pytest.mark.ssh
@pytest.mark.timeout(300)
async def test_without_root_a_unit_of_the_account_is_displaced_and_one_of_the_system_is_refused(
    box: SystemdBox, agent: BoxAgent
) -> None:
    account = login_user()
    box.run("chmod", "755", "/root")
    box.run("chown", "-R", account.pw_name, str(agent.folder))
    box.linger(account.pw_name)
    own, systems = free_port(), free_port()
    argv = ("systemd-run", "--user", "--unit=own", "--", *command(own).split())
    box.run(*argv, user=account.pw_name)
    wait_until_served(own)
    up(box, "theirs.service", f"[Service]\nExecStart={command(systems)}\n", systems)
    agent.start(user=account.pw_name)
    await agent.submit(order("theirs.service", "refused"))
    state = await agent.until("refused", lambda one: one.phase is st.RunPhase.PAUSED, 60)
    assert "theirs.service is a unit of the system, and this account may not stop it" in state.paused_because
    assert not state.debts
    assert box.show("theirs.service", "ActiveState") == "active"
    await agent.tell("refused", "stop-run")
    await agent.until("refused", over, 60)
    await agent.submit(order("own.service", "own"))
    state = await agent.until("own", measures, 60)
    assert [one.what for one in state.debts.values()] == ["own.service (of the account)"]
    assert box.show("own", "LoadState", user=account.pw_name) == "not-found"
    await agent.until("own", over, 60)
    assert told_by(own)["argv"][1] == str(own)
    assert box.show("own", "Transient", user=account.pw_name) == "yes"


@pytest.mark.systemd
@pytest.mark.ssh
@pytest.mark.engine
@pytest.mark.trial
@pytest.mark.timeout(300)
async def test_a_real_engine_is_back_when_it_has_answered_a_completion(box: SystemdBox, agent: BoxAgent) -> None:
    port = free_port()
    with copied_engine() as engine:
        box.run("mkdir", "-p", "/srv/engine")
        box.run("cp", "-r", f"{engine.environment['PYTHONPATH']}/.", "/srv/engine")
    program, model = "/srv/engine/bin/llama_server.py", f"/srv/engine/{Path(engine.model).name}"
    text = f"[Service]\nEnvironment=PYTHONPATH=/srv/engine\nExecStart={engine.command[0]} {program} "
    up(box, "llama.service", f"{text}--model {model} --port {port} --host 127.0.0.1\n", port)
    agent.start()
    await agent.submit(order("llama.service", "real"))
    await agent.until("real", over, 90)
    (how,) = settled(agent, "real")
    assert how.endswith(f"http://127.0.0.1:{port}/v1/completions answered")


async def test_without_systemd_the_run_pauses_before_the_launch_and_says_so(tmp_path: Path) -> None:
    if Path("/run/systemd/system").exists():
        pytest.skip("this machine runs systemd")
    service = Service(tmp_path / "runs", SystemClock())
    await service.start()
    try:
        plan = submission([deployment("d01")], cells("d01", 1))
        service.submit(_displacing(plan, "ddtree-gpu0.service"))
        state = await until(service, "test-run", lambda one: one.phase is st.RunPhase.PAUSED)
        assert "systemd" in state.paused_because
        assert "ddtree-gpu0.service" in state.paused_because
        assert "--waive" in state.paused_because
        assert not state.launches
        run = directory(service)
        told = service.command(run, _told("waive-debts", {"ddtree-gpu0.service": None}))
        assert told.taken
        assert service.command(run, _told("resume")).taken
        await until(service, "test-run", lambda one: one.live_launch() is not None)
        service.command(run, _told("stop-run"))
        await until(service, "test-run", over)
    finally:
        await service.stop()


def test_a_file_that_cannot_be_read_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "debts.json"
    for text in ("", "[]", '{"debts": {"x.service": {"unit": 3}}}', '{"debts": []}'):
        path.write_text(text)
        file = DebtFile(path)
        assert "could not be read" in file.problem
        assert not path.exists()
        assert file.records == {}
        (aside,) = tmp_path.glob("debts.json.unreadable-*")
        assert aside.read_text() == text
        aside.unlink()
    path.write_text(json.dumps({"debts": {}}))
    assert DebtFile(path).problem == ""
