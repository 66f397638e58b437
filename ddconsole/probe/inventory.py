"""What the driver is asked seldom, a line for each GPU as it answers: a driver that hangs is known by its last line."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pynvml

from ddconsole.core.inventory import GpuInventory, gpu_inventory_to_json
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml_calls import MEANINGS, Nvml

Value = TypeVar("Value")

_RECOVERY_FIELD, _HOT_FIELD, _BRAKE_FIELD = 230, 270, 271
_CLOCK_MEMORY = 2
_UNCORRECTED, _SINCE_LOAD = 1, 0
_UNSIGNED_INT = 1
"""NVML's value types: the other ones that are asked for are 64 bits wide."""


def inventory_lines(nvml: Nvml, now: Callable[[], float]) -> Iterator[dict[str, Any]]:
    """`{"asking": ..., "at": seconds}` before each call, `{"gpu": ...}` for each GPU, `{"done": ...}` at the end.

    `{"problem": text}` where the driver cannot be initialised. Never raises for the driver's sake.
    """
    began = time.monotonic()

    def asking(what: str) -> dict[str, Any]:
        return {"asking": what, "at": round(time.monotonic() - began, 3)}

    yield asking("nvmlInit")
    started = _ask(nvml, "nvmlInit", now, lambda _: True)
    count = _ask(nvml, "nvmlDeviceGetCount", now, int)
    if not started.known or not count.known:
        yield {"problem": started.unavailable or count.unavailable}
        return
    for index in range(count.require()):
        yield asking(f"GPU {index}, nvmlDeviceGetHandleByIndex")
        handle: Reading[Any] = _ask(nvml, "nvmlDeviceGetHandleByIndex", now, _same, index)
        if not handle.known:
            continue  # the sample says why
        reader = _GpuReader(nvml, index, handle.value, now)
        for call in reader.calls():
            yield asking(f"GPU {index}, {call}")
        yield {"gpu": gpu_inventory_to_json(reader.result()), "at": round(time.monotonic() - began, 3)}
    yield {"done": True, "at": round(time.monotonic() - began, 3)}


class _GpuReader:
    """Reads one GPU, a call at a time."""

    def __init__(self, nvml: Nvml, index: int, handle: Any, now: Callable[[], float]) -> None:
        self._nvml = nvml
        self._index = index
        self._handle = handle
        self._now = now
        self._found: dict[str, Reading[Any]] = {}
        self._slowest = ("", 0.0)

    def calls(self) -> Iterator[str]:
        """The name of each call, before it is made."""
        for name, (call, change, arguments) in _CALLS.items():
            yield call
            began = time.monotonic()
            self._found[name] = _ask(self._nvml, call, self._now, change, self._handle, *arguments)
            took = time.monotonic() - began
            if took > self._slowest[1]:
                self._slowest = (call, took)

    def result(self) -> GpuInventory:
        """What was read."""
        return GpuInventory(
            index=self._index, **self._found, slowest=self._slowest[0], seconds=round(self._slowest[1], 4)
        )


def _ask(
    nvml: Nvml, call: str, now: Callable[[], float], change: Callable[[Any], Value], *arguments: Any
) -> Reading[Value]:
    function = getattr(nvml, call, None)
    if function is None:
        return unavailable(f"{MEANINGS[13]} (NVML 13)", now(), call)
    try:
        return read(change(function(*arguments)), now(), call)
    except pynvml.NVMLError as problem:
        code = int(problem.value)
        return unavailable(f"{MEANINGS.get(code, str(problem))} (NVML {code})", now(), call)
    except OSError as problem:  # of a stand-in that keeps its state in files
        return unavailable(str(problem), now(), call)


def _field(values: Any) -> int:
    """The value of the one field that was asked for."""
    if not values:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    one = values[0]
    if int(one.nvmlReturn) != 0:
        raise pynvml.NVMLError(int(one.nvmlReturn))
    return int(one.value.uiVal if int(one.valueType) == _UNSIGNED_INT else one.value.ullVal)


def _same(value: Any) -> Any:
    return value


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _pair(value: Any) -> tuple[int, int]:
    return int(value[0]), int(value[1])


def _four(value: Any) -> tuple[int, ...]:
    return tuple(int(one) for one in value[:4])


def _watts(value: Any) -> float:
    return float(value) / 1000


def _pci_address(value: Any) -> str:
    domain, _, rest = _text(value.busId).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


_CALLS: dict[str, tuple[str, Callable[[Any], Any], tuple[Any, ...]]] = {
    "uuid": ("nvmlDeviceGetUUID", _text, ()),
    "pci_address": ("nvmlDeviceGetPciInfo", _pci_address, ()),
    "minor": ("nvmlDeviceGetMinorNumber", int, ()),
    "vbios": ("nvmlDeviceGetVbiosVersion", _text, ()),
    "firmware": ("nvmlDeviceGetGspFirmwareVersion", _text, ()),
    "persistence": ("nvmlDeviceGetPersistenceMode", bool, ()),
    "compute_mode": ("nvmlDeviceGetComputeMode", int, ()),
    "mig": ("nvmlDeviceGetMigMode", _pair, ()),
    "ecc": ("nvmlDeviceGetEccMode", _pair, ()),
    "ecc_uncorrected": ("nvmlDeviceGetTotalEccErrors", int, (_UNCORRECTED, _SINCE_LOAD)),
    "rows": ("nvmlDeviceGetRemappedRows", _four, ()),
    "recovery": ("nvmlDeviceGetFieldValues", _field, ([_RECOVERY_FIELD],)),
    "power_limit_default": ("nvmlDeviceGetPowerManagementDefaultLimit", _watts, ()),
    "power_limit_set": ("nvmlDeviceGetPowerManagementLimit", _watts, ()),
    "bar1": ("nvmlDeviceGetBAR1MemoryInfo", lambda info: int(info.bar1Total), ()),
    "memory_clock_max": ("nvmlDeviceGetMaxClockInfo", int, (_CLOCK_MEMORY,)),
    "replays": ("nvmlDeviceGetPcieReplayCounter", int, ()),
    "hot": ("nvmlDeviceGetFieldValues", _field, ([_HOT_FIELD],)),
    "braked": ("nvmlDeviceGetFieldValues", _field, ([_BRAKE_FIELD],)),
}
"""What is asked, in this order: the reading's name, the call, how its answer is read, and its arguments."""
