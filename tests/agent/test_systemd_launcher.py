"""A runner in a systemd unit of its own, on a real systemd: the unit's cgroup ends with it, whatever left the tree."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sshd import login_user
from surviving_agents import agents, console, state_of, until
from sweeps import cells, deployment, submission
from systemd_box import SystemdBox, systemd_box

from ddconsole.core import states as st
from ddconsole.core.wire import Command, Submission

pytestmark = [pytest.mark.ssh, pytest.mark.systemd, pytest.mark.timeout(240)]
RUN = "units"
TREE = Path(__file__).parents[1] / "rigs" / "tree_server.py"


@pytest.fixture
def box() -> Iterator[SystemdBox]:
    login_user()
    with systemd_box() as one:
        yield one


@pytest.fixture
def tree_server() -> Iterator[str]:
    """The server where every user may read it."""
    with tempfile.TemporaryDirectory(prefix="ddconsole-tree-") as name:
        Path(name).chmod(0o755)
        yield shutil.copy(TREE, name)


def order(python: str, server: str, launcher: str) -> Submission:
    plan = [deployment("d01", workers=3, strays=2, pace=0.05, on_term="ignore")]
    made = submission(plan, cells("d01", 1, max_tokens=400), run=RUN, launcher=launcher)
    return replace(made, engine={**made.engine, "command": [python, server]})


def processes(box: SystemdBox, *words: str) -> list[str]:
    listed = box.run("ps", "-eo", "pid,comm,args").stdout.splitlines()
    return [line for line in listed if any(word in line for word in words)]


def units(box: SystemdBox, user: str) -> list[str]:
    """Units of launches that the user's manager still knows, failed ones too."""
    listed = box.run("systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", user=user).stdout
    return [line.split()[0] for line in listed.splitlines() if "ddconsole-launch-" in line]


@pytest.mark.parametrize("launcher", ["auto", "systemd"])
async def test_a_killed_runner_takes_its_whole_cgroup_along_and_leaves_no_unit(
    launcher: str, box: SystemdBox, tree_server: str
) -> None:
    user = login_user()
    box.linger(user.pw_name)
    async with console(box, user) as client:
        python = agents(box)[0].split()[1]
        await client.submit(order(python, tree_server, launcher))
        await until(lambda: state_of(box, user, RUN).running_cell() is not None, "a cell runs")
        folder = box.path(f"{user.pw_dir}/state/runs/{RUN}/launches/1")
        runner = json.loads((folder / "runner.json").read_bytes())
        assert units(box, user.pw_name) == [runner["unit"]]
        told = box.run(
            "systemctl", "--user", "show", "-p", "KillMode,MainPID", runner["unit"], user=user.pw_name
        ).stdout
        assert set(told.split()) == {"KillMode=mixed", f"MainPID={runner['pid']}"}
        tree = processes(box, "stub::worker", "stray_", "tree_server.py")
        assert len(tree) == 6
        pids = [line.split()[0] for line in tree]
        cgroups = {box.path(f"/proc/{pid}/cgroup").read_text().splitlines()[-1].split("/")[-1] for pid in pids}
        assert cgroups == {runner["unit"]}
        # Nobody's notes but the manager's: what the runner wrote down is gone too.
        (folder / "processes.json").unlink()
        box.run("kill", "-KILL", str(runner["pid"]))
        await until(lambda: 2 in state_of(box, user, RUN).launches, "the next launch")
        cause = state_of(box, user, RUN).launches[1].cause
        assert cause is not None
        assert f"{runner['unit']}: signal, exit" in cause.text
        left = [line for line in processes(box, "stub::worker", "stray_", "tree_server.py") if line.split()[0] in pids]
        assert left == []
        await client.command(RUN, Command("c1", "stop-run", "test"))
        await until(lambda: state_of(box, user, RUN).phase is st.RunPhase.ENDED, "the end")
        await until(lambda: processes(box, "stub::worker", "stray_", "tree_server.py") == [], "nothing is left")
        await until(lambda: units(box, user.pw_name) == [], "no unit is left, not even a failed one")
        await client.quit()


async def test_a_plan_that_wants_units_where_no_manager_works_is_told_so(box: SystemdBox, tree_server: str) -> None:
    user = login_user()
    box.write("/etc/systemd/logind.conf", "[Login]\nKillUserProcesses=no\n")
    box.run("systemctl", "restart", "systemd-logind")
    async with console(box, user) as client:
        python = agents(box)[0].split()[1]
        await client.submit(order(python, tree_server, "systemd"))
        await until(lambda: 1 in state_of(box, user, RUN).launches, "a launch")
        await until(lambda: state_of(box, user, RUN).launches[1].cause is not None, "its cause")
        cause = state_of(box, user, RUN).launches[1].cause
        assert cause is not None
        assert "linger is off" in cause.text
        assert "protocol.launcher: process" in cause.text
        await client.command(RUN, Command("c1", "stop-run", "test"))
