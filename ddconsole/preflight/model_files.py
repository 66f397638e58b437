"""Whether a model's files are all there and whole, by their own headers: no hash, so seconds for any size."""

import json
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddconsole.preflight.gguf import GgufError, gguf_size
from ddconsole.preflight.machine import Machine

_LONGEST_HEADER = 100_000_000
"""Bytes; the limit that safetensors itself sets."""
_SPLIT = re.compile(r"^(?P<stem>.*)-\d{5}-of-(?P<count>\d{5})(?P<end>\.gguf|\.safetensors)$")


@dataclass
class ModelReport:
    """What was found of one model."""

    problems: list[str] = field(default_factory=list)
    """What is missing or short: one line each, with the file."""
    unsure: list[str] = field(default_factory=list)
    """What could not be judged."""
    files: int = 0
    bytes: int = 0

    def summary(self) -> str:
        """Files and size."""
        return f"{self.files} files, {self.bytes / 1024**3:.1f} GiB"


def is_hub_name(path: str) -> bool:
    """Whether this reads like `owner/model` and not like a path."""
    return re.fullmatch(r"[\w.-]+/[\w.-]+", path) is not None and not path.startswith((".", "~"))


async def examine_model(machine: Machine, path: str) -> ModelReport:
    """Look at a folder of safetensors or at a GGUF file.

    Raises:
        OSError: the machine could not read it.
    """
    report = ModelReport()
    status = await machine.status(path)
    if status is None:
        if is_hub_name(path):
            report.unsure.append(f"{path} is a name on a hub, no path: the engine will look for it by itself")
        else:
            report.problems.append(f"{path} is not there")
    elif status.kind == "folder":
        await _examine_folder(machine, path.rstrip("/"), report)
    elif path.endswith(".gguf"):
        for part in _parts_of(path):
            await _examine_gguf(machine, part, report)
    else:
        report.unsure.append(f"{path} is neither a folder nor a GGUF file")
    return report


async def read_json(machine: Machine, path: str) -> Mapping[str, Any] | None:
    """A JSON object from a file, or None where it is none.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = json.loads(await machine.read_text(path))
    except ValueError:
        return None
    return data if isinstance(data, dict) else None


async def _examine_folder(machine: Machine, folder: str, report: ModelReport) -> None:
    names = await machine.list_folder(folder)
    if "config.json" not in names:
        report.problems.append(f"{folder}/config.json is not there")
    elif await read_json(machine, f"{folder}/config.json") is None:
        report.problems.append(f"{folder}/config.json is no JSON object: damaged, or cut short")
    shards = await _shards(machine, folder, names, report)
    for shard in shards:
        await _examine_safetensors(machine, f"{folder}/{shard}", report)
    if shards or report.problems:
        return
    if any(name.endswith((".bin", ".pt", ".pth")) for name in names):
        report.unsure.append(f"{folder} has its weights in a format that does not tell its size")
    elif any(name.endswith(".gguf") for name in names):
        report.unsure.append(f"{folder} is a folder of GGUF files: name the file")
    else:
        report.problems.append(f"{folder} has no weights")


async def _shards(machine: Machine, folder: str, names: Sequence[str], report: ModelReport) -> list[str]:
    """Names of the weight files that must be there: by the index, else by the names of those that are."""
    index = "model.safetensors.index.json"
    there = [name for name in names if name.endswith(".safetensors")]
    if index in names:
        data = await read_json(machine, f"{folder}/{index}") or {}
        weights = data.get("weight_map")
        if isinstance(weights, dict) and weights:
            return sorted({str(name) for name in weights.values()})
        report.problems.append(f"{folder}/{index} names no weights: damaged, or cut short")
        return there
    expected = [part for name in there for part in _parts_of(name)]
    return list(dict.fromkeys(expected))


def _parts_of(name: str) -> list[str]:
    """All parts of a split file, by the name of one of them."""
    match = _SPLIT.match(name)
    if match is None:
        return [name]
    count = int(match["count"])
    return [f"{match['stem']}-{part:05}-of-{count:05}{match['end']}" for part in range(1, count + 1)]


async def _size(machine: Machine, path: str, report: ModelReport) -> int | None:
    status = await machine.status(path)
    if status is None:
        report.problems.append(f"{path} is not there")
        return None
    report.files += 1
    report.bytes += status.size
    return status.size


async def _examine_safetensors(machine: Machine, path: str, report: ModelReport) -> None:
    """The file must end exactly where its header says that the last tensor ends."""
    size = await _size(machine, path, report)
    if size is None:
        return
    start = await machine.read_bytes(path, 0, 8)
    if start.startswith(b"version "):
        report.problems.append(f"{path} is a git-lfs pointer, not the file itself")
        return
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else _LONGEST_HEADER + 1
    if length > _LONGEST_HEADER or length + 8 > size:
        report.problems.append(f"{path} is cut short or damaged: {size:,} bytes, no whole header")
        return
    end = _data_end(await machine.read_bytes(path, 8, length))
    if end is None:
        report.problems.append(f"{path} is damaged: its header is no list of tensors")
    elif 8 + length + end != size:
        report.problems.append(f"{path} has {size:,} of {8 + length + end:,} bytes")


def _data_end(header: bytes) -> int | None:
    try:
        tensors = json.loads(header)
        return max((int(one["data_offsets"][1]) for name, one in tensors.items() if name != "__metadata__"), default=0)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


async def _examine_gguf(machine: Machine, path: str, report: ModelReport) -> None:
    size = await _size(machine, path, report)
    if size is None:
        return

    async def read_at(offset: int, length: int) -> bytes:
        return await machine.read_bytes(path, offset, length)

    try:
        asked = await gguf_size(read_at)
    except GgufError as problem:
        report.problems.append(f"{path} is cut short or damaged: {problem}")
        return
    if size < asked.at_least:
        report.problems.append(f"{path} has {size:,} of {asked.at_least:,} bytes")
    elif not asked.exact:
        report.unsure.append(f"{path} has a tensor type that is not known here: its end was not checked")
