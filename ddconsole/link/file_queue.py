"""The files that are to come from a host: one piece at a time, the most valuable first, at a pace that leaves room."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from ddconsole.link.background_pace import BackgroundPace
from ddconsole.link.client import AgentError, FilePiece, LinkLost
from ddconsole.link.file_copy import FileCopy, LeavesDirectory

_TRIES = 2


class PieceSource(Protocol):
    """Who has the files."""

    async def piece(self, run: str, path: str, offset: int, limit: int) -> FilePiece:
        """A piece of a file."""
        ...


class Rank(IntEnum):
    """What comes first."""

    CELL = 0
    SMALL = 1
    LOG = 2
    TELEMETRY = 3


@dataclass
class _Wanted:
    """A file that is to come, or to come further."""

    copy: FileCopy
    sha256: str
    """Empty for a file that grows: it is taken as far as it goes now."""
    tries: int = 0
    checked: bool = False


class FileQueue:
    """Brings files of a run into its directory here.

    Args:
        source: who has them.
        run: the run's id.
        directory: of the run, here.
        pace: how fast they may come.
        on_problem: told what could not be copied.
    """

    def __init__(
        self,
        source: PieceSource,
        run: str,
        directory: Path,
        pace: BackgroundPace,
        on_problem: Callable[[str], None],
    ) -> None:
        self._source = source
        self._run = run
        self._directory = directory
        self._pace = pace
        self._on_problem = on_problem
        self._wanted: dict[str, _Wanted] = {}
        self._working = asyncio.Lock()

    def want(self, path: str, sha256: str) -> None:
        """Bring a file; with an empty hash as much as there is of it by now."""
        try:
            self._wanted[path] = _Wanted(FileCopy(self._directory, path), sha256)
        except LeavesDirectory:
            self._on_problem(f"E302 {path!r} leaves the run directory; it was not copied")

    async def work(self) -> None:
        """Bring one piece after another until nothing is wanted.

        Raises:
            LinkLost: what is not here stays wanted.
            OSError: the disk here is full or broken; the same.
        """
        async with self._working:
            while self._wanted:
                path = min(self._wanted, key=rank_of)
                wanted = self._wanted[path]
                # A file that is wanted anew meanwhile, such as one that grew, stays wanted.
                if await self._advance(path, wanted) and self._wanted.get(path) is wanted:
                    del self._wanted[path]

    async def _advance(self, path: str, wanted: _Wanted) -> bool:
        """Bring one piece; whether nothing more is wanted of the file now."""
        if not wanted.checked:
            wanted.checked = True
            if await asyncio.to_thread(wanted.copy.is_whole, wanted.sha256):
                return True
        offset = wanted.copy.size
        try:
            piece = await self._piece(path, offset)
        except LinkLost:
            raise
        except AgentError as refused:
            # What grows may not be there yet; a launch that failed before its server was started has no log.
            if wanted.sha256:
                self._on_problem(f"{path}: {refused.text}")
            return True
        if piece.size < offset:
            wanted.copy.start_over()
            return False
        wanted.copy.append(piece.data, offset)
        if piece.data and offset + len(piece.data) < piece.size:
            return False
        return not wanted.sha256 or await self._finish(path, wanted)

    async def _piece(self, path: str, offset: int) -> FilePiece:
        self._pace.begin()
        piece = await self._source.piece(self._run, path, offset, self._pace.limit)
        await self._pace.rest(piece.sent, len(piece.data))
        return piece

    async def _finish(self, path: str, wanted: _Wanted) -> bool:
        if await asyncio.to_thread(wanted.copy.finish, wanted.sha256):
            return True
        wanted.tries += 1
        if wanted.tries >= _TRIES:
            self._on_problem(f"{path}: its content is not what its hash says; it was not copied")
        return wanted.tries >= _TRIES


def rank_of(path: str) -> Rank:
    """What a file of a run is worth."""
    if path.startswith("cells/"):
        return Rank.CELL
    if path == "telemetry.jsonl":
        return Rank.TELEMETRY
    return Rank.LOG if path.startswith("launches/") else Rank.SMALL
