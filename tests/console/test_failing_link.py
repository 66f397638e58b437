"""Sweeps over a link that fails at random the whole time: they end as if it had not, and nothing is owed or left."""

import asyncio
import hashlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from displaced_unit import command, free_port, install_server, told_by, up
from failing_link import FailingLink, failing_link
from operators_shell import ALIAS, PLANNED, OperatorsShell
from served_user import CopiedEngine, copied_engine
from surviving_agents import agents, until
from systemd_box import SystemdBox, systemd_box

from ddconsole.core.events import DebtSettled, DebtTaken
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.link.connect import connect
from ddconsole.link.http_client import HttpAgentClient

pytestmark = [pytest.mark.ssh, pytest.mark.systemd, pytest.mark.engine]
_PATIENCE = 400.0


@pytest.fixture(scope="module")
def engine() -> Iterator[CopiedEngine]:
    with copied_engine() as one:
        yield one


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    with systemd_box() as one:
        install_server(one)
        yield one


def kind_of(state: RunState) -> dict[str, Any]:
    """What a run came to, without times, processes and figures."""
    return {
        "outcome": state.outcome,
        "cells": {
            name: (row.state.phase.value, [(a.launch, a.round, a.outcome.value, a.flags) for a in row.attempts])
            for name, row in state.cells.items()
        },
        "launches": {n: (one.deployment, one.round, one.state.phase.value) for n, one in state.launches.items()},
        "debts": (sorted(state.debts), sorted(state.waived)),
        "impossible": state.impossible_events,
    }


UNDISTURBED = {
    "outcome": "complete",
    "cells": {f"c{n:03d}": ("done", [(1 if n <= PLANNED // 2 else 2, 1, "done", ())]) for n in range(1, PLANNED + 1)},
    "launches": {1: ("d01", 1, "gone"), 2: ("d02", 1, "gone")},
    "debts": ([], []),
    "impossible": 0,
}


async def operate(shell: OperatorsShell, plan: str, run: str) -> list[str]:
    """As an operator does: begin it, attach where that failed, begin again where there is no such run; what it took.

    Raises:
        AssertionError: a command ended otherwise than by success or by a lost link.
    """
    begin = ("run", plan, "--name", run, "--headless")
    attach = ("attach", run, "--host", ALIAS, "--headless")
    verbs: list[str] = []
    verb, end = begin, time.monotonic() + _PATIENCE
    while True:
        verbs.append(verb[0])
        before = len(shell.said())
        process = shell.start(*verb)
        try:
            code = await asyncio.to_thread(process.wait, end - time.monotonic())
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{run} is not over: {shell.said()}") from None
        finally:
            process.kill()
            process.wait()
        if code == 0:
            return verbs
        said = shell.said()[before:]
        assert code == 2, said
        assert "Traceback" not in said
        verb = begin if "has no run" in said else attach


async def survive(
    box: SystemdBox, engine: CopiedEngine, folder: Path, run: str, seed: int | None, unit: str = ""
) -> None:
    """One sweep, on an agent of its own that is brought there over the same link."""
    port = free_port()
    if unit:
        up(box, unit, f"[Service]\nExecStart={command(port)}\nRestart=always\n", port)
    before = told_by(port) if unit else {}
    more = f"agent: {{state: /root/{run}}}\n" + (f"displace: [{{unit: {unit}}}]\n" if unit else "")
    began = time.monotonic()
    link: FailingLink | None = None
    if seed is None:
        shell = OperatorsShell(folder, box.sshd, "root")
        verbs = await operate(shell, shell.write_plan(engine, more), run)
    else:
        async with failing_link(box.sshd.port, seed) as link:
            shell = OperatorsShell(folder, box.sshd, "root", port=link.proxy.port)
            verbs = await operate(shell, shell.write_plan(engine, more), run)
    took = time.monotonic() - began
    failures = {str(name): number for name, number in sorted(link.seen.items())} if link else {}
    connections = link.proxy.connections if link else 1
    print(f"{run}: {took:.0f} s, {' '.join(verbs)}, {connections} connections, failures: {failures}")

    assert kind_of(shell.state(run)) == UNDISTURBED, shell.said()
    assert link is None or sum(link.seen.values()) >= 3
    there, here = box.path(f"/root/{run}/runs/{run}"), shell.mirror(run)
    state = shell.state(run)
    for one in (here.journal, *(here.attempt(name, 1) for name in state.cells)):
        on_host = there / one.relative_to(here.path)
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(on_host.read_bytes()).digest(), one
    entries, damage = read_lines(here.journal.read_bytes())
    assert damage is None
    if unit:
        assert [type(one.event) for one in entries if isinstance(one.event, DebtTaken | DebtSettled)] == [
            DebtTaken,
            DebtSettled,
        ]
        assert json.loads((there / "debts.json").read_bytes()) == {"debts": {}}
        assert told_by(port) == before
        assert box.show(unit, "DropInPaths") == ""
        box.run("systemctl", "stop", unit)
    await nothing_is_left(box, engine, run)


async def nothing_is_left(box: SystemdBox, engine: CopiedEngine, run: str) -> None:
    """Exactly one agent with its probe; no runner, no server, no load process. It leaves when it is told to."""
    ours = (str(Path(engine.model).parent), f"/root/{run}")

    def listed() -> list[str]:
        lines = box.run("ps", "-eo", "pid,args").stdout.splitlines()
        return [line for line in lines if any(place in line for place in ours)]

    assert len(agents(box)) == 2, "keeper and agent"
    assert [line for line in listed() if "ddconsole.agent" not in line and "ddconsole.probe" not in line] == []
    async with at_the_host(box, run) as client:
        await client.quit()
    await until(lambda: listed() == [], "the agent leaves when it is told to")


@asynccontextmanager
async def at_the_host(box: SystemdBox, run: str) -> AsyncIterator[HttpAgentClient]:
    """The run's agent, over a link that does not fail."""
    host = f"root@127.0.0.1:{box.sshd.port}"
    client = await connect(host, state_directory=f"/root/{run}", ssh=box.sshd.settings())
    try:
        yield client
    finally:
        await client.close()


@pytest.mark.timeout(600)
async def test_a_sweep_over_a_link_that_fails_ends_as_if_it_had_not(
    box: SystemdBox, engine: CopiedEngine, tmp_path: Path
) -> None:
    async with at_the_host(box, "sweep-0") as client:
        # Bringing the agent takes several tries over such a link, for which CI has no time.
        await client.hello()
    await survive(box, engine, tmp_path / "home", "sweep-0", seed=0, unit="gpu0.service")


@pytest.mark.trial
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [None, *range(1, 11)])
async def test_ten_sweeps_over_a_link_that_fails_end_as_an_undisturbed_one(
    seed: int | None, box: SystemdBox, engine: CopiedEngine, tmp_path: Path
) -> None:
    unit = f"gpu{seed}.service" if seed is not None and seed % 2 else ""
    await survive(box, engine, tmp_path / "home", f"sweep-{seed or 'undisturbed'}", seed, unit)
