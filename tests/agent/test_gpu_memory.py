"""Between two launches: the next one waits until the GPUs' memory is back, and who holds it is named.

The GPUs are simulated behind NVML's interface; their holders are real processes.
"""

import asyncio
import getpass
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_gpus import GIB, hold
from sweeps import cells, deployment, directory, ended, submission, until

from ddconsole.agent.launcher import runner_identity
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Placement
from ddconsole.core.wire import Command, Submission
from ddconsole.runner.gpu_memory import GpuMemory, read_level

GPU = 3

pytestmark = pytest.mark.usefixtures("gpus")


def order() -> Submission:
    """Two launches on one GPU."""
    plan = [replace(deployment(name, name), placement=Placement((GPU,))) for name in ("d01", "d02")]
    return submission(plan, [*cells("d01", 1, max_tokens=400), *cells("d02", 1, 2)])


def measuring(state: RunState) -> bool:
    return state.running_cell() is not None


async def test_what_is_held_is_told_with_pid_user_command_and_mebibytes(
    gpus: Path, stranger: "subprocess.Popen[bytes]"
) -> None:
    hold(gpus, GPU, stranger.pid, 3)
    (held,) = await GpuMemory([GPU]).held({GPU: 0})
    assert held.startswith(f"GPU {GPU}: 3.0 GiB are not back: pid {stranger.pid} ({getpass.getuser()}, ")
    assert "# a stranger" in held
    assert held.endswith("holds 3072 MiB")
    assert await GpuMemory([GPU]).held({GPU: 3 * GIB}) == ()
    assert await GpuMemory([GPU]).held(None) == (held,)
    assert await GpuMemory([GPU + 1]).held({GPU + 1: 0}) == ()


async def test_the_answer_waits_until_the_memory_is_back(gpus: Path, stranger: "subprocess.Popen[bytes]") -> None:
    hold(gpus, GPU, stranger.pid, 3)
    waiting = asyncio.create_task(GpuMemory([GPU]).wait_until_back({GPU: 0}))
    await asyncio.sleep(3)
    assert not waiting.done()
    stranger.kill()
    stranger.wait()
    assert await waiting == ()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("end", ["ordered", "runner killed"])
async def test_memory_that_stays_held_pauses_the_sweep_and_the_next_launch_waits_for_it(
    end: str,
    gpus: Path,
    service: Service,
    stranger: "subprocess.Popen[bytes]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GpuMemory, "deadline", 5.0)  # the agent's; a runner waits the whole minute
    service.submit(order())
    await until(service, "test-run", measuring)
    launch = directory(service).launch(1)
    assert read_level(launch.gpu_memory) == {GPU: 0}
    hold(gpus, GPU, stranger.pid, 5)
    if end == "runner killed":
        runner = runner_identity(launch)
        assert runner is not None
        assert runner.send(signal.SIGKILL)
    state = await until(service, "test-run", lambda state: state.phase is st.RunPhase.PAUSED, 120)
    assert f"GPU {GPU}: 5.0 GiB are not back: pid {stranger.pid} ({getpass.getuser()}, " in state.paused_because
    assert "holds 5120 MiB" in state.paused_because
    assert list(state.launches) == [1]
    service.command(directory(service), Command("c1", "resume", "test"))
    await asyncio.sleep(3)
    assert list(service.state(directory(service)).launches) == [1], "no launch while the memory is held"
    os.kill(stranger.pid, signal.SIGKILL)
    stranger.wait()
    state = await until(service, "test-run", lambda state: state.launches[1].state.phase is st.LaunchPhase.GONE)
    if state.phase is st.RunPhase.PAUSED:
        service.command(directory(service), Command("c2", "resume", "test"))
    state = await until(service, "test-run", ended, 100)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}
