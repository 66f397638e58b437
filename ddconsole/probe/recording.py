"""A recorded NVML that answers like pynvml: for tests, and for looking at somebody else's machine."""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml

_RECORDED_AS = {
    "nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetComputeRunningProcesses": "nvmlDeviceGetComputeRunningProcesses_v3",
}
_INDEXED = frozenset({"nvmlDeviceGetClockInfo", "nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetTotalEccErrors"})
"""Calls that are recorded once for each of their arguments: `nvmlDeviceGetClockInfo[1]`."""


class RecordedNvml:
    """Answers from a recording: `{"nvmlDeviceGetCount": {"value": 2}, "devices": [{call: {...}}], "pairs": [...]}`.

    An answer is `{"value": ...}`, or `{"error": text, "code": NVML error code}`. `asked` counts the calls, by name
    and GPU index.
    """

    def __init__(self, recording: Mapping[str, Any]) -> None:
        self._recording = recording
        self.asked: dict[tuple[str, int], int] = {}

    def __getattr__(self, call: str) -> Callable[..., Any]:
        """The recorded answer of any call that takes a handle or nothing."""
        devices = self._recording["devices"]
        if call in self._recording:
            return lambda: _answer(self._recording[call])
        name = _RECORDED_AS.get(call, call)
        if any(key.partition("[")[0] == name for device in devices for key in device):
            return lambda handle, *arguments: self._device(call, name, handle, arguments)
        raise AttributeError(call)

    def nvmlInit(self) -> None:  # noqa: N802  # pynvml's name
        """Fails if the recording says so."""
        if "nvmlInit" in self._recording:
            _answer(self._recording["nvmlInit"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802  # pynvml's name
        """The index is the handle."""
        device = self._recording["devices"][index]
        if "nvmlDeviceGetHandleByIndex" in device:
            _answer(device["nvmlDeviceGetHandleByIndex"])
        return index

    def nvmlDeviceGetTopologyCommonAncestor(self, first: int, second: int) -> Any:  # noqa: N802  # pynvml's name
        """The recorded level of a pair."""
        return _answer(self._pair(first, second)["common_ancestor"])

    def nvmlDeviceGetP2PStatus(self, first: int, second: int, which: int) -> Any:  # noqa: N802  # pynvml's name
        """The recorded status of a pair."""
        pair = self._pair(first, second)
        if f"p2p[{which}]" not in pair:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return _answer(pair[f"p2p[{which}]"])

    def _pair(self, first: int, second: int) -> Mapping[str, Any]:
        for pair in self._recording["pairs"]:
            if (pair["a"], pair["b"]) == (first, second):
                return dict(pair)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def _device(self, call: str, name: str, handle: int, arguments: tuple[Any, ...]) -> Any:
        self.asked[call, handle] = self.asked.get((call, handle), 0) + 1
        key = f"{name}[{','.join(str(one) for one in arguments)}]" if call in _INDEXED else name
        device = self._recording["devices"][handle]
        if key not in device:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        answer = _answer(device[key])
        return [one for one in answer if one.fieldId in arguments[0]] if call == "nvmlDeviceGetFieldValues" else answer


def write_files(files: Mapping[str, str], root: Path) -> None:
    """Lay recorded files (path to content) out under `root`, as a tree that the probe can read."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def _answer(recorded: Mapping[str, Any]) -> Any:
    if "code" in recorded:
        raise pynvml.NVMLError(recorded["code"])
    return _as_structure(recorded["value"])


def _as_structure(value: Any) -> Any:
    """JSON objects as ctypes structures look: fields as attributes."""
    if isinstance(value, Mapping):
        return SimpleNamespace(**{name: _as_structure(one) for name, one in value.items()})
    if isinstance(value, list):
        return [_as_structure(one) for one in value]
    return value
