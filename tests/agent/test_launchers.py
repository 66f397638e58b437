"""Runners and what their servers started: all of it is gone in the end, and nothing else is."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.launcher import ProcessLauncher, runner_identity
from ddconsole.agent.service import Service
from ddconsole.agent.takeover import clean
from ddconsole.core.clock import SystemClock
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command
from ddconsole.engines.register import engine
from ddconsole.runner.belonging import members_of, record_processes, recorded_processes
from ddconsole.runner.boot import boot_token
from ddconsole.runner.identity import ProcessIdentity, identify, members_by_folder
from ddconsole.runner.run_directory import LaunchDirectory


def strays_of(launch: LaunchDirectory) -> set[ProcessIdentity]:
    """Processes that only the runner's notes, or a cgroup, know to be the launch's."""
    recorded = {one for one in recorded_processes(launch) if one.alive()}
    return recorded - members_by_folder(launch.path, launch.server_log)


def measuring(state: RunState) -> bool:
    return state.running_cell() is not None


async def test_a_daemon_of_a_server_whose_runner_was_killed_is_found_by_the_runners_notes(service: Service) -> None:
    service.submit(submission([deployment("d01", strays=2, pace=0.05)], cells("d01", 1, max_tokens=200)))
    await until(service, "test-run", measuring)
    launch = directory(service).launch(1)
    strays = strays_of(launch)
    assert len(strays) == 2
    runner = runner_identity(launch)
    assert runner is not None
    assert runner.send(signal.SIGKILL)
    state = await until(service, "test-run", lambda state: 2 in state.launches)
    assert [one for one in strays if one.alive()] == []
    service.command(directory(service), Command("c1", "stop-run", "test"))
    state = await until(service, "test-run", ended)
    assert survivors(directory(service), state) == [], phases(state)


@pytest.fixture
def bystander() -> Iterator[ProcessIdentity]:
    """A process that is none of ours."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], cwd="/")
    known = identify(process.pid)
    assert known is not None
    yield known
    assert process.poll() is None, "the bystander was ended"
    process.kill()
    process.wait()


def forgeries(process: ProcessIdentity) -> list[ProcessIdentity]:
    """The bystander's pid as an old state file could name it: before a reboot, and before the pid was used again."""
    kernel, _, init = process.boot.partition("/")
    other_boots = ["00000000-0000-0000-0000-000000000000/" + init, f"{kernel}/{int(init) + 1}"]
    return [
        *(ProcessIdentity(boot, process.pid, process.started) for boot in other_boots),
        ProcessIdentity(process.boot, process.pid, process.started - 1),
        ProcessIdentity(process.boot, process.pid, process.started + 100),
        ProcessIdentity("", process.pid, process.started),
    ]


async def test_no_signal_reaches_a_process_that_forged_files_name(bystander: ProcessIdentity, tmp_path: Path) -> None:
    launch = LaunchDirectory(tmp_path)
    for forged in forgeries(bystander):
        assert not forged.alive()
        assert not forged.send(signal.SIGKILL)
        told = {"boot": forged.boot, "pid": forged.pid, "started": forged.started}
        launch.runner.write_text(json.dumps(told | {"manager": "user", "unit": "ssh.service"}))
        assert not ProcessLauncher().alive(launch)
        record_processes(launch, [forged])
        assert members_of(launch) == set()
        assert await clean(launch, engine("llamacpp"), SystemClock()) == ()
    launch.processes.write_text('[[1, 2], "x", {"pid": 3}]')
    assert members_of(launch) == set()


async def test_the_same_identity_is_found_and_ended(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "import time; time.sleep(600)", cwd="/")
    launch = LaunchDirectory(tmp_path)
    known = identify(process.pid)
    assert known is not None
    assert known.boot == boot_token()
    record_processes(launch, [known])
    assert members_of(launch) == {known}
    assert await clean(launch, engine("llamacpp"), SystemClock()) == ()
    assert await process.wait() == -signal.SIGTERM


FREEZER = Path("/sys/fs/cgroup/freezer")


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[ProcessIdentity]:
    """A process that no signal ends for as long as the test lasts: frozen by the kernel, in state D."""
    if os.geteuid() != 0 or not FREEZER.is_dir():
        pytest.skip("a process in state D needs root and the freezer of cgroups v1")
    group = FREEZER / f"ddconsole-{os.getpid()}"
    group.mkdir()
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], cwd=tmp_path)
    (group / "cgroup.procs").write_text(str(process.pid))
    (group / "freezer.state").write_text("FROZEN")
    known = identify(process.pid)
    assert known is not None
    try:
        yield known
    finally:
        (group / "freezer.state").write_text("THAWED")
        process.kill()
        process.wait()
        group.rmdir()


@pytest.mark.timeout(120)
async def test_what_no_signal_ends_is_named_with_its_pid_and_what_it_waits_for(
    stuck: ProcessIdentity, tmp_path: Path
) -> None:
    began = asyncio.get_running_loop().time()
    (left,) = await clean(LaunchDirectory(tmp_path), engine("llamacpp"), SystemClock())
    assert asyncio.get_running_loop().time() - began > 30
    assert left.startswith(f"pid {stuck.pid} python")
    assert "[uninterruptible (D) in " in left
