"""GPUs that report errors, and GPUs that others use, while a sweep goes on. They are simulated; processes are real."""

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from simulated_gpus import hold
from sweeps import cells, deployment, directory, ended, phases, submission, until

from ddconsole.agent.service import Service
from ddconsole.agent.xid_watch import XidWatch
from ddconsole.core import states as st
from ddconsole.core.host_state import HostState
from ddconsole.core.readings import Reading, read
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Placement
from ddconsole.core.wire import Command, Submission
from ddconsole.probe.monitor import one_sample

GPU = 3

pytestmark = pytest.mark.usefixtures("gpus")


def order(number: int = 2, **flags: float) -> Submission:
    plan = [replace(deployment("d01", "ar", **flags), placement=Placement((GPU,)))]
    return submission(plan, cells("d01", number, max_tokens=400))


def measuring(state: RunState) -> bool:
    return state.running_cell() is not None


def with_xids(host: HostState, gpu: int, numbers: Sequence[int]) -> HostState:
    xids: Reading[tuple[int, ...]] = read(tuple(numbers), host.at, "test")
    none: Reading[tuple[int, ...]] = read((), host.at, "test")
    return replace(host, gpus=tuple(replace(one, xids=xids if one.index == gpu else none) for one in host.gpus))


@pytest.mark.engine
async def test_an_error_that_needs_a_reset_pauses_the_sweep_and_is_told_once(service: Service) -> None:
    service.submit(order(3, pace=0.005))
    await until(service, "test-run", measuring)
    host = await one_sample()
    await service.telemetry.stop()

    async def reported(gpu: int, *numbers: int) -> RunState:
        service.telemetry.host = with_xids(host, gpu, numbers)
        seen = service.journal("test-run")
        assert seen is not None
        await seen.changed(1.0)
        return seen.state

    await reported(GPU)
    assert (await reported(GPU, 31)).phase is st.RunPhase.RUNNING, "of a program"
    assert (await reported(GPU + 1, 79)).phase is st.RunPhase.RUNNING, "of a GPU that no launch needs"
    service.telemetry.host = with_xids(host, GPU, (31, 79))
    state = await until(service, "test-run", lambda state: state.phase is st.RunPhase.PAUSED)
    assert state.paused_by == "ddconsole"
    assert state.paused_because.startswith(f"GPU {GPU} reported Xid 79 (the GPU has fallen off the bus): reset the GPU")
    assert service.command(directory(service), Command("go", "resume", "test")).taken
    state = await until(service, "test-run", ended)
    assert state.outcome == "complete", phases(state)


async def test_each_event_is_told_once_and_none_from_before_the_first_look(gpus: Path) -> None:
    host = await one_sample()
    watch = XidWatch()

    def said(*numbers: int) -> str:
        return watch.look(with_xids(host, GPU, numbers), {GPU})

    assert watch.look(None, {GPU}) == ""
    assert said(79) == ""
    assert said(79) == ""
    assert said(79, 48, 48).startswith(f"GPU {GPU} reported Xid 48 (double-bit memory error): ")
    assert said(*([48] * 20)).startswith(f"GPU {GPU} reported Xid 48 ")
    assert said(*([48] * 20)) == ""
    assert said(*([48] * 19), 119).startswith(f"GPU {GPU} reported Xid 119 (GSP did not answer): ")
    assert said(*([48] * 18), 119, 95).startswith(f"GPU {GPU} reported Xid 95 ")


@pytest.mark.trial
@pytest.mark.engine
async def test_a_process_that_takes_a_gpu_in_mid_cell_flags_the_cell_and_no_other(
    service: Service, gpus: Path, stranger: "subprocess.Popen[bytes]"
) -> None:
    """The driver's list of processes is read every ten seconds: the cells are longer than that."""
    service.submit(order(2, pace=0.04))
    state = await until(service, "test-run", measuring)
    hold(gpus, GPU, state.launches[1].pid or 0, 10)
    hold(gpus, GPU, stranger.pid, 2)
    state = await until(service, "test-run", lambda state: bool(state.cells["c001"].done_attempts()), 90)
    stranger.kill()
    stranger.wait()
    state = await until(service, "test-run", ended, 90)
    flags = [row.done_attempts()[0].flags for row in state.cells.values()]
    assert f"GPU {GPU} was used by another process too: pid {stranger.pid}, 2.0 GiB" in flags[0], phases(state)
    assert not [one for one in flags[1] if "another process" in one]
