"""Calls of NVML as readings, through anything that speaks like pynvml: a simulation, or a recording.

What a GPU does not support is asked once, what does not change is asked once, what changes slowly is asked rarely, and
a lost GPU is asked no further in the same sample. The call that is being made stands in `current`, so that another
thread can see which one does not come back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import pynvml

from ddconsole.core.readings import Reading, read, unavailable

Value = TypeVar("Value")

MEANINGS = {
    3: "not supported by this GPU",
    4: "no permission (mode of the device node, or capabilities)",
    9: "the driver is not loaded, or /dev/nvidiactl is missing",
    12: "no NVIDIA driver library (libnvidia-ml.so.1) on this machine",
    13: "not in this driver's library",
    15: "the GPU is lost: it fell off the bus",
    16: "the GPU wants a reset by the host",
    17: "blocked by the operating system (container device rules)",
    18: "the driver's library and kernel module differ: Driver/library version mismatch",
    27: "the GPU is still initialising",
    999: "unknown error: in a container, usually lost access to the devices",
}
"""NVML's error codes in words, for the operator."""

_NEVER_AGAIN = frozenset({3, 13})
_WHOLE_GPU = frozenset({15, 16})
_FOR_EVER = float("inf")
_FIELDS = "nvmlDeviceGetFieldValues"
_FIELD_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of `nvmlValue_t` by `nvmlValueType_t`."""


class Nvml(Protocol):
    """The calls of pynvml that are used, by pynvml's names. Errors are `pynvml.NVMLError`.

    A call that a stand-in does not have counts as not in this driver's library.
    """

    def nvmlInit(self) -> object: ...  # noqa: N802, D102  # pynvml's name
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802, D102  # pynvml's name
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: N802, D102  # pynvml's name
    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int) -> Any: ...  # noqa: N802, D102  # pynvml's name


class Abandoned(Exception):
    """Nobody waits for this sample any more: another thread took over."""


@dataclass(frozen=True, slots=True)
class CurrentCall:
    """A call that has not come back yet."""

    name: str
    gpu: int | None
    """None: of the library as a whole."""
    since: float
    """Wall time."""


class Nonsense(Exception):
    """The driver answered with a value that cannot be: of a library of another version, or of a card in trouble."""


@dataclass
class GpuHandle:
    """One GPU, and what was learned of it."""

    index: int
    handle: Any
    never: dict[str, str] = field(default_factory=dict)
    """Calls that this GPU does not support, with the reason."""
    kept: dict[str, Reading[Any]] = field(default_factory=dict)
    """Readings that do not change while the handle lives, or not often."""
    lost: str | None = None
    """Set within a sample once a call said that the whole GPU is gone."""


class NvmlCalls:
    """Makes the calls, each as a reading.

    Args:
        nvml: pynvml, or a stand-in.
        now: wall clock.
    """

    def __init__(self, nvml: Nvml, now: Callable[[], float]) -> None:
        self.nvml = nvml
        self.now = now
        self.current: CurrentCall | None = None
        self.abandoned = False
        """Set by another thread: the next call raises `Abandoned`."""

    def ask(self, call: str, change: Callable[[Any], Value] = lambda value: value, *arguments: Any) -> Reading[Value]:
        """One call of the library."""
        function = getattr(self.nvml, call, None)
        if function is None:
            return unavailable(MEANINGS[13], self.now(), call)
        try:
            return read(change(self._made(call, None, function, *arguments)), self.now(), call)
        except pynvml.NVMLError as problem:
            return unavailable(meaning(problem), self.now(), call)
        except OSError as problem:  # of a stand-in that keeps its state in files
            return unavailable(str(problem), self.now(), call)

    def handle(self, index: int) -> Reading[Any]:
        """The handle of a GPU: the first call that touches it, and takes seconds without persistence mode."""
        call = "nvmlDeviceGetHandleByIndex"
        try:
            return read(self._made(call, index, self.nvml.nvmlDeviceGetHandleByIndex, index), self.now(), call)
        except pynvml.NVMLError as problem:
            return unavailable(meaning(problem), self.now(), call)

    def ask_gpu(self, gpu: GpuHandle, call: str, change: Callable[[Any], Value], *arguments: Any) -> Reading[Value]:
        """One call about one GPU."""
        reason = gpu.never.get(call) or gpu.lost
        function = getattr(self.nvml, call, None)
        if reason or function is None:
            return unavailable(reason or MEANINGS[13], self.now(), call)
        try:
            return read(change(self._made(call, gpu.index, function, gpu.handle, *arguments)), self.now(), call)
        except Nonsense as problem:
            return unavailable(str(problem), self.now(), call)
        except pynvml.NVMLError as problem:
            code = int(problem.value)
            if code in _NEVER_AGAIN:
                gpu.never[call] = meaning(problem)
            if code in _WHOLE_GPU:
                gpu.lost = meaning(problem)
            return unavailable(meaning(problem), self.now(), call)
        except OSError as problem:  # of a stand-in that keeps its state in files
            return unavailable(str(problem), self.now(), call)

    def once(self, gpu: GpuHandle, call: str, change: Callable[[Any], Value], *arguments: Any) -> Reading[Value]:
        """As `ask_gpu`, and never again when it was answered."""
        return self.every(_FOR_EVER, gpu, call, change, *arguments)

    def every(
        self, seconds: float, gpu: GpuHandle, call: str, change: Callable[[Any], Value], *arguments: Any
    ) -> Reading[Value]:
        """As `ask_gpu`, but an answer is kept for so many seconds, with the time at which it was given."""
        key = f"{call}{arguments}"
        kept = gpu.kept.get(key)
        if kept is not None and (seconds == _FOR_EVER or (self.now() - kept.at < seconds and gpu.lost is None)):
            return kept
        answer = self.ask_gpu(gpu, call, change, *arguments)
        if answer.known:
            gpu.kept[key] = answer
        return answer

    def fields(self, gpu: GpuHandle, numbers: Sequence[int]) -> dict[int, Reading[float]]:
        """Field values in one call. Each has a status of its own; one that is not supported is asked once."""
        wanted = [number for number in numbers if f"{_FIELDS} {number}" not in gpu.never]
        told: Reading[list[Any]] = self.ask_gpu(gpu, _FIELDS, list, wanted)
        values = told.value or []
        found = {int(one.fieldId): self._field(gpu, one) for one in values}
        return {
            number: found.get(number)
            or unavailable(
                gpu.never.get(f"{_FIELDS} {number}") or told.unavailable or "not answered", told.at, f"field {number}"
            )
            for number in numbers
        }

    def _field(self, gpu: GpuHandle, one: Any) -> Reading[float]:
        number, status = int(one.fieldId), int(one.nvmlReturn)
        source = f"field {number}"
        if status == 0:
            return read(float(getattr(one.value, _FIELD_TYPES[int(one.valueType)])), self.now(), source)
        why = f"{MEANINGS.get(status, 'error')} (NVML {status})"
        if status in _NEVER_AGAIN:
            gpu.never[f"{_FIELDS} {number}"] = why
        return unavailable(why, self.now(), source)

    def _made(self, name: str, gpu: int | None, function: Callable[..., Any], *arguments: Any) -> Any:
        if self.abandoned:
            raise Abandoned
        self.current = CurrentCall(name, gpu, self.now())
        try:
            return function(*arguments)
        finally:
            self.current = None


def meaning(problem: Any) -> str:
    """NVML's error in words, with its code."""
    code = int(problem.value)
    return f"{MEANINGS.get(code, str(problem))} (NVML {code})"
