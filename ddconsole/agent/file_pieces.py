"""Files of a run for a console's mirror: which there are, and pieces of them, packed on the way."""

import asyncio
import hashlib
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.runner.run_directory import RunDirectory

_LARGEST_PIECE = 1024 * 1024
_WORTH_PACKING = 512
"""Bytes."""
_LEVEL = 1
"""Of zlib: 100 MB/s and more, and a server's log is a sixth of itself. The host's cores are for what is measured."""


class FileHashes:
    """SHA-256 of files that do not change any more, each read once."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[tuple[int, int], str]] = {}

    async def of(self, path: Path) -> str:
        """The hash as hex digits.

        Raises:
            OSError: it cannot be read.
        """
        about = path.stat()
        version = (about.st_size, about.st_mtime_ns)
        known = self._known.get(path)
        if known is None or known[0] != version:
            known = (version, await asyncio.to_thread(_digest, path))
            self._known[path] = known
        return known[1]


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def files_of(run: RunDirectory, state: RunState, hashes: FileHashes, under: str = "") -> list[Mapping[str, Any]]:
    """The files of a run: `path`, `size`, and `sha256`, which is empty for one that still grows.

    Args:
        run: where it is.
        state: what its journal says.
        hashes: of files that were read before.
        under: only those whose path begins so.
    """
    found: list[Mapping[str, Any]] = []
    for row in state.cells.values():
        for attempt in row.attempts:
            path = run.attempt(row.cell.id, attempt.number)
            name = str(path.relative_to(run.path))
            if attempt.sha256 and name.startswith(under) and path.is_file():
                found.append({"path": name, "size": path.stat().st_size, "sha256": attempt.sha256})
    for path, grows in _others(run, state):
        name = str(path.relative_to(run.path))
        if name.startswith(under) and path.is_file() and not path.is_symlink():
            digest = "" if grows else await hashes.of(path)
            found.append({"path": name, "size": path.stat().st_size, "sha256": digest})
    return found


def _others(run: RunDirectory, state: RunState) -> Iterator[tuple[Path, bool]]:
    """What is no attempt, and whether it still grows."""
    for path in (run.plan, run.texts, run.submission, run.environment, run.preflight):
        yield path, False
    for number, launch in state.launches.items():
        folder = run.launch(number)
        grows = launch.state.phase in st.LIVE_LAUNCH_PHASES or launch.state.phase is st.LaunchPhase.DIRTY
        yield folder.server_log, grows
    yield run.path / "telemetry.jsonl", state.phase is not st.RunPhase.ENDED or state.live_launch() is not None


async def piece_of(request: web.Request, path: Path, offset: int, limit: int) -> web.Response:
    """Bytes of a file from `offset` on, packed where the console takes that; `X-Size` is the file's size now.

    Raises:
        OSError: it cannot be read.
    """
    packs = "deflate" in request.headers.get("Accept-Encoding", "")
    data, size, packed = await asyncio.to_thread(_read, path, offset, min(limit, _LARGEST_PIECE), packs=packs)
    headers = {"X-Size": str(size)}
    if packed:
        headers["Content-Encoding"] = "deflate"
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


def _read(path: Path, offset: int, limit: int, *, packs: bool) -> tuple[bytes, int, bool]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(offset)
        data = file.read(limit)
    if packs and len(data) >= _WORTH_PACKING:
        packed = zlib.compress(data, _LEVEL)
        if len(packed) < len(data):
            return packed, size, True
    return data, size, False
