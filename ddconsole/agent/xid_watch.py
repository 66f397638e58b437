"""The driver's error events while a sweep goes on: one that needs a reset, a reboot or a look pauses it."""

from collections.abc import Collection

from ddconsole.core.host_state import HostState
from ddconsole.core.xids import FATAL, MEANINGS


class XidWatch:
    """Remembers what the driver had reported, so that each event is told once."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, ...]] = {}

    def look(self, host: HostState | None, gpus: Collection[int]) -> str:
        """Why the sweep has to pause; empty where nothing new was reported of these GPUs that says so.

        What was there at the first look at a GPU is not new: the check of the kernel's log tells of it.
        """
        found = []
        for gpu in host.gpus if host is not None else ():
            if not gpu.xids.known or not gpu.uuid.known:
                continue
            now = gpu.xids.require()
            before = self._seen.get(gpu.uuid.require())
            self._seen[gpu.uuid.require()] = now
            if before is None or gpu.index not in gpus:
                continue
            fatal = dict.fromkeys(number for number in _new(before, now) if number in FATAL)
            found += [f"GPU {gpu.index} reported Xid {number} ({MEANINGS[number]})" for number in fatal]
        if not found:
            return ""
        return f"{', '.join(found)}: reset the GPU or reboot the host, check it with preflight, then resume"


def _new(before: tuple[int, ...], now: tuple[int, ...]) -> tuple[int, ...]:
    """What came behind `before`; the oldest events are let go of."""
    for kept in range(min(len(before), len(now)), 0, -1):
        if before[len(before) - kept :] == now[:kept]:
            return now[kept:]
    return now
