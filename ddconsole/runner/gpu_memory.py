"""Is the memory of a launch's GPUs back? Asked of the probe, in a process of its own."""

import asyncio
from collections.abc import Sequence

from ddconsole.probe.monitor import ProbeProblem, one_sample

_TOLERANCE = 512 * 1024 * 1024
"""Bytes above the level before the launch that still count as back: contexts of monitors come and go."""
_ASK_DEADLINE = 10.0
"""Real seconds for one answer of the probe: NVML can hang in the driver."""


class GpuMemory:
    """The used memory of a few GPUs."""

    deadline = 60.0
    """Real seconds until memory that is not back counts as held."""

    def __init__(self, gpus: Sequence[int]) -> None:
        self._gpus = tuple(gpus)

    async def used(self) -> dict[int, int] | None:
        """Bytes by GPU index; None when there are no GPUs to ask for, or nobody answers."""
        if not self._gpus:
            return None
        try:
            state = await one_sample(_ASK_DEADLINE)
        except ProbeProblem:
            return None
        return {
            gpu.index: gpu.memory_used.require()
            for gpu in state.gpus
            if gpu.index in self._gpus and gpu.memory_used.known
        }

    async def wait_until_back(self, before: dict[int, int]) -> tuple[str, ...]:
        """Wait until the memory is at the level `before`; the answer says what is held, empty when it is back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.deadline
        while True:
            now = await self.used()
            if now is None:
                return ("GPU memory: the probe gives no answer",)
            above = {gpu: used - before.get(gpu, used) for gpu, used in now.items()}
            held = {gpu: extra for gpu, extra in above.items() if extra > _TOLERANCE}
            if not held:
                return ()
            if loop.time() > deadline:
                return tuple(f"GPU {gpu}: {extra / 2**30:.1f} GiB are not back" for gpu, extra in sorted(held.items()))
            await asyncio.sleep(0.5)
