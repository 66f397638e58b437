"""Units that a sweep displaces are stopped, stay down, and come back as they were, whoever is killed in between."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from box_agent import KILL_POINTS, BoxAgent
from displaced_unit import command, free_port, install_server, measures, order, over, told_by, up, wait_until_served
from systemd_box import SystemdBox, systemd_box

from ddconsole.core import states as st
from ddconsole.core.deadline import dropped_cells
from ddconsole.core.events import DebtSettled, DebtTaken, LaunchPlanned

pytestmark = [pytest.mark.systemd, pytest.mark.ssh, pytest.mark.timeout(300)]
SERVER = Path(__file__).parents[1] / "rigs" / "unit_server.py"
PYTHON = "/usr/bin/python3"


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    with systemd_box() as one:
        install_server(one)
        yield one


@pytest.fixture
def agent(box: SystemdBox) -> Iterator[BoxAgent]:
    one = BoxAgent(box)
    yield one
    one.kill()


async def test_a_unit_that_restarts_always_stays_down_and_comes_back_before_the_next_launch(
    box: SystemdBox, agent: BoxAgent
) -> None:
    port = free_port()
    up(box, "plain.service", f"[Service]\nExecStart={command(port)}\nEnvironment=A=1\nRestart=always\n", port)
    before, invocation = told_by(port), box.show("plain.service", "InvocationID")
    agent.start()
    await agent.submit(order("plain.service", "normal", number=2, then=1))
    state = await agent.until("normal", measures)
    assert [debt.what for debt in state.debts.values()] == ["plain.service"]
    assert json.loads((agent.runs / "normal" / "debts.json").read_bytes())["debts"]["plain.service"]["was_up"]
    box.run("systemctl", "start", "plain.service")
    assert box.show("plain.service", "ActiveState") == "inactive"
    state = await agent.until("normal", over, 60)
    assert state.outcome == "complete"
    assert not state.debts
    assert told_by(port) == before
    assert box.show("plain.service", "InvocationID") != invocation
    assert box.show("plain.service", "DropInPaths") == ""
    order_of = [type(one.event) for one in agent.entries("normal")]
    launches = [place for place, kind in enumerate(order_of) if kind is LaunchPlanned]
    assert order_of.index(DebtTaken) < launches[0] < order_of.index(DebtSettled) < launches[1]
    settled = next(one.event for one in agent.entries("normal") if isinstance(one.event, DebtSettled))
    assert settled.how.startswith("put back: active for ")
    assert settled.how.endswith("/v1/completions answered")
    assert json.loads((agent.runs / "normal" / "debts.json").read_bytes()) == {"debts": {}}


async def test_a_socket_and_a_timer_do_not_bring_it_back_and_are_back_themselves(
    box: SystemdBox, agent: BoxAgent
) -> None:
    port = free_port()
    box.write("/etc/systemd/system/by.socket", f"[Socket]\nListenStream=127.0.0.1:{port}\n")
    box.write("/etc/systemd/system/by.timer", "[Timer]\nOnActiveSec=1\nOnUnitInactiveSec=1\nAccuracySec=50ms\n")
    up(box, "by.service", f"[Unit]\nRequires=by.socket\n[Service]\nExecStart={command(port)}\n", port)
    box.run("systemctl", "start", "by.timer")
    before = told_by(port)
    agent.start()
    await agent.submit(order("by.service", "triggered"))
    await agent.until("triggered", measures)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    assert [box.show(f"by.{kind}", "ActiveState") for kind in ("service", "socket", "timer")] == ["inactive"] * 3
    await agent.until("triggered", over, 60)
    assert [box.show(f"by.{kind}", "ActiveState") for kind in ("service", "socket", "timer")] == ["active"] * 3
    assert told_by(port) == before


async def test_a_transient_unit_is_made_again_as_it_was(box: SystemdBox, agent: BoxAgent) -> None:
    port = free_port()
    settings = ("--property=Environment=A=1 'B=two words 100%h $X'", "--working-directory=/tmp", "--uid=nobody")
    argv = (PYTHON, "/usr/local/bin/unit_server.py", str(port), "--if", '/a "b" $HOME %n; c')
    box.run("systemd-run", "--unit=passing", *settings, "--", *argv)
    wait_until_served(port)
    before = told_by(port)
    assert before["env"]["B"] == "two words 100%h $X"
    agent.start()
    await agent.submit(order("passing.service", "transient"))
    await agent.until("transient", measures)
    assert box.show("passing.service", "LoadState") == "not-found"
    await agent.until("transient", over, 60)
    assert told_by(port) == before
    assert box.show("passing.service", "Transient") == "yes"
    assert not agent.state("transient").debts


async def test_one_that_dies_soon_after_its_start_stays_a_debt_until_it_is_waived_by_name(
    box: SystemdBox, agent: BoxAgent
) -> None:
    port = free_port()
    dies = command(port, "--dies-after", "1", "--if", "/run/dies")
    up(box, "weak.service", f"[Service]\nExecStart={dies}\n", port)
    agent.start()
    await agent.submit(order("weak.service", "dying"))
    await agent.until("dying", measures)
    box.write("/run/dies", "")
    state = await agent.until("dying", over, 60)
    assert "it ended 1 s after its start (exit-code, exit status 3)" in state.debts["weak.service"].problem
    assert "which one? The run owes: weak.service" in await agent.tell("dying", "waive-debts")
    box.path("/run/dies").unlink()
    await agent.tell("dying", "settle-debts")
    state = await agent.until("dying", lambda one: not one.debts)
    assert box.show("weak.service", "ActiveState") == "active"
    assert state.phase is st.RunPhase.ENDED


async def test_stop_now_puts_it_back_and_a_paused_run_keeps_it_until_it_is_asked_or_stopped(
    box: SystemdBox, agent: BoxAgent
) -> None:
    port = free_port()
    up(box, "held.service", f"[Service]\nExecStart={command(port)}\n", port)
    agent.start()
    await agent.submit(order("held.service", "paused", number=30))
    await agent.until("paused", measures)
    assert "held.service stays stopped" in await agent.tell("paused", "pause")
    state = await agent.until("paused", lambda one: one.running_cell() is None)
    assert "held.service" in state.debts
    assert "still up" in await agent.tell("paused", "settle-debts")
    await agent.tell("paused", "stop-run")
    state = await agent.until("paused", over, 60)
    assert not state.debts
    assert state.outcome == "stopped"
    assert box.show("held.service", "ActiveState") == "active"


@pytest.mark.trial
async def test_a_waived_unit_may_be_started_and_is_left_alone(box: SystemdBox, agent: BoxAgent) -> None:
    port = free_port()
    up(box, "mine.service", f"[Service]\nExecStart={command(port)}\n", port)
    agent.start()
    await agent.submit(order("mine.service", "waived", number=30))
    await agent.until("waived", measures)
    await agent.tell("waived", "waive-debts", **{"mine.service": None})
    await agent.tell("waived", "stop-run")
    state = await agent.until("waived", over, 60)
    assert state.waived == {"mine.service"}
    assert box.show("mine.service", "ActiveState") == "inactive"
    box.run("systemctl", "start", "mine.service")
    assert box.show("mine.service", "ActiveState") == "active"


async def survive(box: SystemdBox, agent: BoxAgent, point: str) -> None:
    """A sweep whose agent is killed at one step; the next agent goes on."""
    name = f"kill-{point.replace(' ', '-')}"
    port = free_port()
    up(box, f"{name}.service", f"[Service]\nExecStart={command(port)}\nRestart=always\n", port)
    before = told_by(port)
    agent.start(kill_at=point)
    await agent.submit(order(f"{name}.service", name))
    await agent.until(name, lambda one: not agent.alive() or over(one), 60)
    assert (agent.folder / "killed").exists(), agent.log()
    agent.start()
    state = await agent.until(name, lambda one: over(one) and not one.debts, 60)
    assert state.outcome == "complete"
    taken = [one.event for one in agent.entries(name) if isinstance(one.event, DebtTaken)]
    settled = [one.event for one in agent.entries(name) if isinstance(one.event, DebtSettled)]
    assert len(taken) == len(settled) >= 1
    assert told_by(port) == before
    assert box.show(f"{name}.service", "DropInPaths") == ""
    assert json.loads((agent.runs / name / "debts.json").read_bytes()) == {"debts": {}}


@pytest.mark.parametrize("point", ["after stop"])
async def test_a_killed_agent_costs_no_unit(box: SystemdBox, agent: BoxAgent, point: str) -> None:
    await survive(box, agent, point)


@pytest.mark.trial
@pytest.mark.parametrize("point", KILL_POINTS)
async def test_killed_at_each_step(box: SystemdBox, agent: BoxAgent, point: str) -> None:
    await survive(box, agent, point)


async def test_a_deadline_leaves_the_time_to_put_a_unit_back(box: SystemdBox, agent: BoxAgent) -> None:
    port = free_port()
    up(box, "due.service", f"[Service]\nExecStart={command(port)}\n", port)
    agent.start()
    await agent.submit(order("due.service", "due", number=200))
    await agent.until("due", measures)
    # 15 s of these are kept: for the last stop, and for a start of the unit.
    at = time.time() + 25.0
    assert "until soon" in await agent.tell("due", "until", at=str(at), text="soon")
    state = await agent.until("due", lambda one: over(one) and not one.debts, 60)
    assert state.outcome == "deadline"
    assert state.at <= at
    settled = next(one.event for one in agent.entries("due") if isinstance(one.event, DebtSettled))
    assert settled.how.startswith("put back: ")
    assert box.show("due.service", "ActiveState") == "active"
    assert [row.cell.id for row in dropped_cells(state)][-1] == "c200"
