"""The main job on a host that is far away: a real engine, a real sshd and systemd, 25 ms each way, one command."""

import hashlib
import json
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from far_network import DELAY, FarNetwork, far_network
from operators_shell import PLANNED, OperatorsShell
from served_user import CopiedEngine, copied_engine
from sshd import login_user
from surviving_agents import agents, until
from systemd_box import SystemdBox, systemd_box

from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.link.offline_feed import OfflineRunFeed

pytestmark = [pytest.mark.ssh, pytest.mark.systemd, pytest.mark.engine, pytest.mark.timeout(300)]
RUN = "far-run"


@pytest.fixture(scope="module")
def engine() -> Iterator[CopiedEngine]:
    with copied_engine() as one:
        yield one


@pytest.fixture(scope="module")
def network() -> Iterator[FarNetwork]:
    with far_network() as one:
        yield one


@pytest.fixture
def box(network: FarNetwork) -> Iterator[SystemdBox]:
    login_user()
    with systemd_box(network.far, network.far_address) as one:
        yield one


def round_trip(network: FarNetwork, port: int) -> float:
    """Seconds for a TCP connection to stand, the shortest of several."""
    tried = f"""
import socket, time
def once():
    began = time.monotonic()
    socket.create_connection(("{network.far_address}", {port})).close()
    return time.monotonic() - began
print(min(once() for _ in range(5)))
"""
    argv = network.from_near(sys.executable, "-c", tried)
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


@pytest.mark.parametrize("who", ["root", pytest.param("user", marks=pytest.mark.trial)])
async def test_one_command_runs_a_sweep_on_a_far_host_to_its_end(
    who: str, network: FarNetwork, box: SystemdBox, engine: CopiedEngine, tmp_path: Path
) -> None:
    assert 2 * DELAY <= round_trip(network, box.sshd.port) < 10 * DELAY
    account = pwd.getpwnam("root") if who == "root" else login_user()
    if who == "user":
        box.linger(account.pw_name)
    shell = OperatorsShell(tmp_path / "home", box.sshd, account.pw_name, before=network.from_near())
    began = time.monotonic()
    console = shell.start("run", shell.write_plan(engine), "--name", RUN, "--headless")
    try:
        await until(
            lambda: console.poll() is not None or shell.state(RUN).running_cell() is not None, "a cell runs", 120
        )
        assert console.poll() is None, shell.said()
        first_cell = time.monotonic() - began
        # Keeper, agent and runner each know a unit of systemd's that they live in.
        cgroups = {box.path(f"/proc/{line.split()[0]}/cgroup").read_text().strip() for line in agents(box)}
        assert len(cgroups) == 1
        assert "/ddconsole-agent-" in cgroups.pop()
        assert console.wait(200) == 0, shell.said()
    finally:
        console.kill()
        console.wait()
    took = time.monotonic() - began
    print(f"{who}: first cell after {first_cell:.1f} s, over after {took:.1f} s\n{shell.said()}")

    state = shell.state(RUN)
    assert state.outcome == "complete"
    assert [row.state.phase for row in state.cells.values()] == [st.CellPhase.DONE] * PLANNED
    assert [launch.state.phase for launch in state.launches.values()] == [st.LaunchPhase.GONE] * 2
    there = box.path(f"{account.pw_dir}/.local/state/ddconsole/runs/{RUN}")
    here = shell.mirror(RUN)
    for one in (here.journal, *(here.attempt(name, 1) for name in state.cells)):
        on_host = there / one.relative_to(here.path)
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(on_host.read_bytes()).digest(), one
    for name, row in state.cells.items():
        attempt = attempt_from_json(json.loads(here.attempt(name, 1).read_bytes()))
        assert {one.output_tokens for one in attempt.requests} == {row.cell.point.max_tokens}
        assert row.attempts[0].figures["output_rate"] > 0
    for number in state.launches:
        log = here.launch(number).server_log.read_bytes()
        assert log == (there / "launches" / str(number) / "server.log").read_bytes()
        assert b"main loop exited" in log
    assert not list(here.path.rglob("*.part"))
    offline = OfflineRunFeed(here.path)
    assert offline.state.counts() == {st.CellPhase.DONE: PLANNED}
    await offline.close()
    # Nothing of a launch is left on the host.
    assert "llama_server" not in box.run("ps", "-eo", "args").stdout
