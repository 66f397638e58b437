"""What a good copy of a model was: sizes and hashes, written when it was staged, compared with ever after."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ddconsole.preflight.machine import Machine

_PIECE = 1 << 20
"""Bytes of each of the three samples of a file: its beginning, its middle, its end."""


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """One file of a model."""

    size: int
    sample: str
    """Hash of the samples: it costs no time, and sees what a header's sizes do not."""
    sha256: str = ""
    """Of all of it; empty where it was not read whole."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One model."""

    path: str
    at: float
    boot: str
    """The boot token then: another one means that tmpfs was emptied since."""
    files: Mapping[str, ManifestFile] = field(default_factory=dict)
    """By name below the model's folder; a single file has its own name."""

    @property
    def bytes(self) -> int:
        """Of all files."""
        return sum(one.size for one in self.files.values())


def manifest_file(folder: str, model: str) -> str:
    """Where the manifest of a model lies below the agent's folder."""
    return f"{folder.rstrip('/')}/{hashlib.sha256(model.rstrip('/').encode()).hexdigest()[:16]}.json"


def manifest_to_json(manifest: Manifest) -> dict[str, Any]:
    """As JSON."""
    return asdict(manifest)


def manifest_from_json(data: Any) -> Manifest:
    """The inverse.

    Raises:
        ValueError: this is no manifest.
    """
    try:
        files = {str(name): ManifestFile(**one) for name, one in data["files"].items()}
        return Manifest(str(data["path"]), float(data["at"]), str(data["boot"]), files)
    except (KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"not a manifest: {type(problem).__name__} {problem}") from problem


async def read_manifest(machine: Machine, folder: str, model: str) -> Manifest | None:
    """The manifest of a model; None where none was written.

    Raises:
        ValueError: it is damaged.
    """
    try:
        text = await machine.read_text(manifest_file(folder, model))
    except OSError:
        return None
    return manifest_from_json(json.loads(text))


def sample_spans(size: int) -> list[tuple[int, int]]:
    """Offsets and lengths that are looked at; a small file is read whole."""
    if size <= 3 * _PIECE:
        return [(0, size)]
    return [(0, _PIECE), (size // 2, _PIECE), (size - _PIECE, _PIECE)]


def sample_hash(pieces: Iterable[bytes]) -> str:
    """The hash of what stands in the spans."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


async def sample_of(machine: Machine, path: str, size: int) -> str:
    """The sample hash of a file on the machine."""
    return sample_hash([await machine.read_bytes(path, offset, length) for offset, length in sample_spans(size)])


def sample_of_file(path: Path, size: int) -> str:
    """The same of a file here."""
    with path.open("rb") as file:
        pieces = []
        for offset, length in sample_spans(size):
            file.seek(offset)
            pieces.append(file.read(length))
    return sample_hash(pieces)


def path_in(model: str, name: str) -> str:
    """The path of a manifest's file: below the model's folder, or the model itself."""
    return model if model.rstrip("/").endswith(f"/{name}") and name.endswith(".gguf") else f"{model.rstrip('/')}/{name}"
