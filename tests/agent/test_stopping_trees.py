"""Stopped while loading, while streaming and while stuck: no process, no port and no file in /dev/shm is left.

SGLang needs an interpreter with it: DDCONSOLE_SGLANG_PYTHON and DDCONSOLE_SGLANG_MODELS as for test_sglang_cpu.py.
"""

import asyncio
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from sglang_cpu import ENVIRONMENT, FLAGS, folders
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command, Submission

SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Stop:
    """When a server is stopped, and how long after that moment began."""

    when: str
    delay: float


def stops(number: int) -> list[Stop]:
    """Loading, streaming and stuck in turn, a little later each time."""
    names = ("loading", "streaming", "stuck")
    return [Stop(names[n % 3], 0.05 * (n // 3)) for n in range(number)]


MARK = f"m{os.getpid() % 1000}"
"""In the names of all that a tree server of this test starts: other tests may run at the same time."""


def tree_order(stop: Stop) -> Submission:
    """Workers that retitle themselves and call setsid, daemons that leave the tree, and a main process that drains."""
    load = 30.0 if stop.when == "loading" else 0.2
    hang = 5 if stop.when == "stuck" else 0
    one = deployment(
        "d01",
        workers=3,
        strays=2,
        load_seconds=load,
        hang_after=hang,
        pace=0.02,
        on_term="drain",
        mark=MARK,
        shared=f"{MARK}-shm",
    )
    return submission([one], cells("d01", 2, max_tokens=2000))


def sglang_order() -> Submission:
    python, models = folders()
    one = replace(deployment("d01", **FLAGS), env=ENVIRONMENT)
    made = submission([one], cells("d01", 2, max_tokens=1500), ready_timeout=300.0)
    engine = {**made.engine, "kind": "sglang", "command": [python, "-m", "sglang.launch_server"]}
    return replace(made, engine=engine, model={"path": f"{models}/tinypy-hf", "draft": None, "source": None})


def loading(state: RunState) -> bool:
    live = state.live_launch()
    return live is not None and live.pid is not None


def measuring(state: RunState) -> bool:
    return state.running_cell() is not None


def freeze_scheduler(state: RunState) -> None:
    """As a kernel that never returns: the process that computes does nothing any more."""
    live = state.live_launch()
    assert live is not None
    assert live.pid is not None
    found = [one for one in psutil.Process(live.pid).children(recursive=True) if "scheduler" in one.name()]
    found = found or [
        one for one in psutil.Process(live.pid).children(recursive=True) if "scheduler" in " ".join(one.cmdline())
    ]
    assert found
    for one in found:
        one.send_signal(signal.SIGSTOP)


SGLANG_FILES = ("sglang", "psm_", "sem.mp-")
"""What SGLang is known to leave there."""


def shared_files(names: tuple[str, ...]) -> set[str]:
    """Only those: other tests may have files of their own there at the same time."""
    return {one.name for one in SHARED_MEMORY.iterdir() if one.name.startswith(names)}


def is_left(process: psutil.Process) -> bool:
    """Whether it is of a tree server of this test; one that only waits to be reaped is not there any more."""
    return bool(process.info["name"].startswith(MARK)) and process.info["status"] != psutil.STATUS_ZOMBIE


async def stop_and_look(service: Service, order: Submission, stop: Stop, *, freeze: bool, seconds: float) -> None:
    names = SGLANG_FILES if freeze else (MARK,)
    before = shared_files(names)
    service.submit(order)
    state = await until(service, "test-run", loading if stop.when == "loading" else measuring, seconds)
    if stop.when == "stuck":
        await asyncio.sleep(1.0)
        if freeze:
            freeze_scheduler(state)
    await asyncio.sleep(stop.delay)
    service.command(directory(service), Command("stop", "stop-run", "test"))
    state = await until(service, "test-run", ended, 120)
    assert state.launches[1].state.phase is st.LaunchPhase.GONE, phases(state)
    assert survivors(directory(service), state) == []
    assert [one for one in psutil.process_iter(["name", "status"]) if is_left(one)] == []
    assert shared_files(names) - before == set()


@pytest.mark.parametrize("stop", stops(3), ids=lambda one: one.when)
async def test_nothing_is_left_of_a_tree_that_hides(stop: Stop, service: Service) -> None:
    await stop_and_look(service, tree_order(stop), stop, freeze=False, seconds=60)


@pytest.mark.trial
@pytest.mark.parametrize("stop", stops(100), ids=lambda one: f"{one.when}-{one.delay:.2f}")
async def test_a_hundred_trees_that_hide(stop: Stop, service: Service) -> None:
    await stop_and_look(service, tree_order(stop), stop, freeze=False, seconds=60)


@pytest.mark.trial
@pytest.mark.engine
@pytest.mark.timeout(900)
@pytest.mark.parametrize("stop", stops(int(os.environ.get("DDCONSOLE_SGLANG_STOPS", "12"))), ids=lambda one: one.when)
async def test_nothing_is_left_of_sglang_nor_of_one_whose_scheduler_is_frozen(stop: Stop, service: Service) -> None:
    await stop_and_look(service, sglang_order(), stop, freeze=True, seconds=600)
