"""A host state as JSON, small enough to be sent and kept every second.

A reading is `[value, milliseconds since the sample, source]`, or `[null, milliseconds, source, reason]`. Sources and
reasons stand once each in `words`, and readings name them by number; in the form of earlier versions they stand in the
reading, and the time is the wall time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ddconsole.core.host_state import (
    DeviceOpener,
    DiskSpace,
    GpuProcess,
    GpuState,
    HostState,
    NumaNode,
    PairState,
    RemappedRows,
)
from ddconsole.core.readings import Reading, unavailable

Value = TypeVar("Value")
NOT_TOLD = "not told by the sender's version"


def host_state_to_json(state: HostState) -> dict[str, Any]:
    """A host state as JSON."""
    words: dict[str, int] = {}
    data: dict[str, Any] = _plain(state, state.at, words)
    return {**data, "words": list(words)}


def host_state_from_json(data: Mapping[str, Any]) -> HostState:
    """The inverse of `host_state_to_json`; unknown fields are ignored, missing readings are not available.

    Raises:
        ValueError: this is no host state.
    """
    try:
        return _Reader(data).host_state()
    except (KeyError, TypeError, IndexError, AttributeError) as problem:
        raise ValueError(f"not a host state: {type(problem).__name__} {problem}") from problem


def _plain(value: Any, at: float, words: dict[str, int]) -> Any:
    if isinstance(value, Reading):
        return _reading_to_json(value, at, words)
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name), at, words) for name in value.__dataclass_fields__}
    if isinstance(value, tuple | list):
        return [_plain(one, at, words) for one in value]
    return value


def _reading_to_json(reading: Reading[Any], at: float, words: dict[str, int]) -> list[Any]:
    said = [reading.source] if reading.unavailable is None else [reading.source, reading.unavailable]
    numbers = [words.setdefault(word, len(words)) for word in said]
    return [_plain(reading.value, at, words), round((reading.at - at) * 1000), *numbers]


class _Reader:
    """Takes one JSON object apart."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._data = data
        self._at = float(data["at"])
        self._words: Sequence[str] | None = data.get("words")

    def host_state(self) -> HostState:
        """The state."""
        data = self._data
        values = self._readings(data, HostState, {"load": _floats})
        values["at"] = self._at
        values["simulated"] = bool(data.get("simulated", False))
        values["quiet"] = bool(data.get("quiet", False))
        values["gpus"] = tuple(self._gpu(one) for one in data["gpus"])
        values["nodes"] = tuple(self._node(one) for one in data["nodes"])
        values["pairs"] = tuple(self._part(PairState, one, ("a", "b")) for one in data["pairs"])
        values["disks"] = tuple(self._part(DiskSpace, one, ("path",)) for one in data.get("disks", ()))
        return HostState(**values)

    def _reading(self, data: Iterable[Any], convert: Callable[[Any], Value]) -> Reading[Value]:
        value, when, source, *reason = data
        if self._words is None:
            at, source, said = float(when), str(source), [str(one) for one in reason]
        else:
            at, source, said = self._at + when / 1000, self._words[source], [self._words[one] for one in reason]
        if value is None:
            return unavailable(said[0] if said else NOT_TOLD, at, source)
        return Reading(convert(value), at, source)

    def _readings(
        self, data: Mapping[str, Any], kind: type, converters: Mapping[str, Callable[[Any], Any]]
    ) -> dict[str, Any]:
        """The fields of `kind` that are readings, by the name of their type."""
        values: dict[str, Any] = {}
        for name, about in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]  # one of our dataclasses
            if "Reading" not in str(about.type):
                continue
            if name in data:
                values[name] = self._reading(data[name], converters.get(name, _same))
            else:
                values[name] = unavailable(NOT_TOLD, self._at, "")
        return values

    def _part(self, kind: type[Value], data: Mapping[str, Any], plain: tuple[str, ...]) -> Value:
        return kind(**{name: data[name] for name in plain}, **self._readings(data, kind, {}))

    def _gpu(self, data: Mapping[str, Any]) -> GpuState:
        return GpuState(index=int(data["index"]), **self._readings(data, GpuState, _GPU_CONVERTERS))

    def _node(self, data: Mapping[str, Any]) -> NumaNode:
        readings = self._readings(data, NumaNode, {"distances": tuple})
        return NumaNode(index=int(data["index"]), gpus=tuple(data["gpus"]), **readings)


def _processes(data: Iterable[Mapping[str, Any]]) -> tuple[GpuProcess, ...]:
    return tuple(GpuProcess(int(one["pid"]), one.get("memory_bytes")) for one in data)


def _openers(data: Iterable[Mapping[str, Any]]) -> tuple[DeviceOpener, ...]:
    return tuple(DeviceOpener(int(one["pid"]), str(one["user"]), str(one["command"])) for one in data)


def _remapped(data: Mapping[str, Any]) -> RemappedRows:
    return RemappedRows(int(data["correctable"]), int(data["uncorrectable"]), data["pending"], data["failed"])


def _floats(data: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(one) for one in data)


def _same(value: Any) -> Any:
    return value


_GPU_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "compute_capability": tuple,
    "xids": tuple,
    "processes": _processes,
    "openers": _openers,
    "remapped_rows": _remapped,
}
