"""Is the memory of a launch's GPUs back, and who holds it? Asked of the probe, in a process of its own."""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from ddconsole.core.host_state import GpuState
from ddconsole.core.visible_text import visible_line
from ddconsole.probe.monitor import ProbeProblem, one_sample
from ddconsole.runner.durable import write_json

_TOLERANCE = 512 * 1024 * 1024
"""Bytes above the level before the launch that still count as back: contexts of monitors come and go."""
_IDLE = 2 * 1024**3
"""Bytes that count as an idle GPU's where nobody knows the level before the launch."""
_ASK_DEADLINE = 10.0
"""Real seconds for one answer of the probe: NVML can hang in the driver."""
_MIB = 1024**2
_COMMAND = 100
"""Characters of a holder's command line."""


class GpuMemory:
    """The used memory of a few GPUs."""

    deadline = 60.0
    """Real seconds until memory that is not back counts as held."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = tuple(gpus)

    async def used(self) -> dict[int, int] | None:
        """Bytes by GPU index; None when there are no GPUs to ask for, or nobody answers."""
        seen = await self._look()
        return None if seen is None else {index: gpu.memory_used.require() for index, gpu in seen.items()}

    async def held(self, before: Mapping[int, int] | None) -> tuple[str, ...]:
        """What is held above the level `before`, and by whom; empty when it is back. None: above that of idle GPUs."""
        if not self._gpus:
            return ()
        seen = await self._look()
        if seen is None:
            return ("GPU memory: the probe gives no answer",)
        found = []
        for index, gpu in sorted(seen.items()):
            used = gpu.memory_used.require()
            level, tolerance = (0, _IDLE) if before is None else (before.get(index, used), _TOLERANCE)
            if used - level > tolerance:
                found.append(f"GPU {index}: {(used - level) / 2**30:.1f} GiB are not back: {_holders(gpu)}")
        return tuple(found)

    async def wait_until_back(self, before: Mapping[int, int]) -> tuple[str, ...]:
        """Wait until the memory is at the level `before`; the answer says what is held and by whom, empty when back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.deadline
        while True:
            held = await self.held(before)
            if not held or loop.time() > deadline:
                return held
            await asyncio.sleep(0.5)

    async def _look(self) -> dict[int, GpuState] | None:
        if not self._gpus:
            return None
        try:
            state = await one_sample(_ASK_DEADLINE)
        except ProbeProblem:
            return None
        return {gpu.index: gpu for gpu in state.gpus if gpu.index in self._gpus and gpu.memory_used.known}


def write_level(path: Path, used: Mapping[int, int]) -> None:
    """Write down what GPUs held before a launch.

    Raises:
        OSError: it cannot be written.
    """
    write_json(path, {str(gpu): bytes_ for gpu, bytes_ in used.items()})


def read_level(path: Path) -> dict[int, int] | None:
    """What GPUs held before a launch, or None where nobody wrote it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return {int(gpu): int(bytes_) for gpu, bytes_ in json.loads(path.read_bytes()).items()}
    return None


def _holders(gpu: GpuState) -> str:
    """Who holds memory of a GPU: pid, user, command and MiB, as far as the driver and this machine tell."""
    if not gpu.processes.known:
        return f"the driver does not say who holds it ({gpu.processes.unavailable})"
    told = []
    for one in gpu.processes.value or ():
        held = "" if one.memory_bytes is None else f" holds {one.memory_bytes // _MIB} MiB"
        told.append(f"pid {one.pid} ({_who(one.pid)}){held}")
    return "; ".join(told) or "no process that the driver shows holds it"


def _who(pid: int) -> str:
    """User and command of what has this number here; in a container the driver may mean another process by it."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            command = visible_line(" ".join(process.cmdline()) or process.name(), _COMMAND)
            return f"{process.username()}, {command.strip()}"
    except psutil.Error:
        return "no process has this number here"
