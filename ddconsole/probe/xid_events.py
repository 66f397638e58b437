"""The driver's error events (Xid), collected from the moment at which they were asked for."""

from typing import Any

import pynvml

from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml_calls import MEANINGS, GpuHandle, NvmlCalls

_SOURCE = "nvmlEventSetWait_v2"
_XID = 0x8
_KEPT = 20
"""Events of one GPU that are kept."""
_MOST_IN_ONE_LOOK = 64


class XidEvents:
    """One event set for all GPUs. Events from before its beginning are not told by the driver."""

    def __init__(self, calls: NvmlCalls) -> None:
        self._calls = calls
        self._set: Any = None
        self._problem = ""
        self._registered: set[int] = set()
        self._by_address: dict[str, int] = {}
        self._seen: dict[int, list[int]] = {}

    def watch(self, gpu: GpuHandle, uuid: str) -> None:
        """Collect the events of this GPU from now on."""
        if gpu.index in self._registered or self._problem:
            return
        if self._set is None:
            made: Reading[Any] = self._calls.ask("nvmlEventSetCreate")
            self._set, self._problem = made.value, made.unavailable or ""
        if self._set is None:
            return
        done: Reading[bool] = self._calls.ask_gpu(gpu, "nvmlDeviceRegisterEvents", lambda _: True, _XID, self._set)
        if done.known:
            self._registered.add(gpu.index)
            self._by_address[uuid] = gpu.index
            self._seen[gpu.index] = []

    def collect(self) -> None:
        """Take what has come, without waiting."""
        wait = getattr(self._calls.nvml, _SOURCE, None)
        uuid_of = getattr(self._calls.nvml, "nvmlDeviceGetUUID", None)
        if self._set is None or wait is None or uuid_of is None:
            return
        for _ in range(_MOST_IN_ONE_LOOK):
            try:
                event = wait(self._set, 0)
                uuid = uuid_of(event.device)
            except pynvml.NVMLError:  # time-out: nothing came
                return
            index = self._by_address.get(uuid.decode() if isinstance(uuid, bytes) else str(uuid))
            if index is not None:
                self._seen[index] = [*self._seen[index], int(event.eventData)][-_KEPT:]

    def of(self, gpu: GpuHandle) -> Reading[tuple[int, ...]]:
        """Numbers of the events of a GPU, the oldest first."""
        at = self._calls.now()
        if gpu.index in self._registered:
            return read(tuple(self._seen[gpu.index]), at, _SOURCE)
        return unavailable(self._problem or gpu.never.get("nvmlDeviceRegisterEvents") or MEANINGS[13], at, _SOURCE)
