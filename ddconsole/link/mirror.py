"""The console's copy of a run that is on another machine: what is finished there is soon here, checked and whole."""

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, cast

from ddconsole.core.events import AttemptDone, AttemptFailed, AttemptStopped, Entry, LaunchFailed, LaunchGone, RunEnded
from ddconsole.core.fold import apply, fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.http_client import entry_or_beat
from ddconsole.link.reconnecting import Backoff
from ddconsole.link.stages import StageError

logger = logging.getLogger(__name__)

_LOG_PIECE = 1024 * 1024
_LARGEST_TRIES = 2


class MirrorSource(Protocol):
    """What a mirror asks of an agent; `HttpAgentClient` gives it."""

    def journal_lines(self, run: str, after: int) -> AsyncIterator[bytes]:
        """Journal lines with a higher seq, as they are on the host's disk, and heartbeats."""
        ...

    async def file(self, run: str, path: str) -> bytes:
        """A file of the run directory."""
        ...

    async def files(self, run: str) -> list[Mapping[str, Any]]:
        """The finished files: path, size, sha256."""
        ...

    async def log(self, run: str, launch: int, offset: int, limit: int) -> bytes:
        """A piece of a server's log."""
        ...


class Mirror:
    """Keeps `directory` up to date with a run: its journal line by line, its finished files, its servers' logs.

    It goes on where an earlier one ended. A file is here under its name only when it is whole and its hash is right.

    Args:
        source: the agent.
        run: the run's id.
        directory: `logs/<run>` here. A run of this machine that is in that very folder needs no mirror.
    """

    def __init__(self, source: MirrorSource, run: str, directory: Path) -> None:
        self._source = source
        self._run = run
        self._directory = directory
        self._state = RunState()
        self._task: asyncio.Task[None] | None = None
        self.problems: list[str] = []
        """What could not be copied, for people; newest last."""

    @property
    def seq(self) -> int:
        """The last journal entry that is here."""
        return self._state.seq

    def start(self) -> None:
        """Begin to copy, in the background, through losses of the link."""
        self._task = asyncio.create_task(self._keep(), name=f"mirror {self._run}")

    async def close(self) -> None:
        """End it; what is here stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def copy_files(self) -> None:
        """Fetch every finished file that is not here, or is not the same here, and what is new of the logs.

        Raises:
            LinkLost, AgentError: as the client.
            OSError: the disk here is full or read-only.
        """
        for about in await self._source.files(self._run):
            await self._fetch(str(about["path"]), str(about["sha256"]))
        for launch in self._state.launches:
            await self._copy_log(launch)

    # --- the journal

    async def _keep(self) -> None:
        backoff = Backoff()
        while True:
            try:
                self._open_journal()
                await self.copy_files()
                await self._follow(backoff)
            except (LinkLost, StageError):
                await asyncio.sleep(backoff.delay())
            except (AgentError, OSError) as problem:
                self._problem(str(problem))
                await asyncio.sleep(backoff.delay())

    def _open_journal(self) -> None:
        """Read what is here of the journal; a torn end is cut off and fetched again."""
        self._directory.mkdir(parents=True, exist_ok=True)
        journal = self._directory / "journal.jsonl"
        data = journal.read_bytes() if journal.exists() else b""
        entries, damage = read_lines(data)
        if damage is not None:
            with journal.open("r+b") as file:
                file.truncate(damage.offset)
        self._state = fold(entries)

    async def _follow(self, backoff: Backoff) -> None:
        lines = cast("AsyncGenerator[bytes, None]", self._source.journal_lines(self._run, self._state.seq))
        async with aclosing(lines):
            async for line in lines:
                backoff.reset()
                entry = entry_or_beat(line)
                if isinstance(entry, Entry):
                    self._append(line)
                    self._state = apply(self._state, entry)
                    await self._finished(entry)

    def _append(self, line: bytes) -> None:
        with (self._directory / "journal.jsonl").open("ab") as file:
            file.write(line + b"\n")

    async def _finished(self, entry: Entry) -> None:
        """Fetch what an entry says is finished."""
        event = entry.event
        if isinstance(event, AttemptDone | AttemptFailed | AttemptStopped) and event.sha256:
            await self._fetch(f"cells/{event.cell}/{event.attempt}.json", event.sha256)
        elif isinstance(event, LaunchGone | LaunchFailed):
            await self._copy_log(event.launch)
        elif isinstance(event, RunEnded):
            await self.copy_files()

    # --- files

    async def _fetch(self, path: str, sha256: str) -> None:
        place = self._place(path)
        if place is None or (place.is_file() and _sha256(place.read_bytes()) == sha256):
            return
        for _ in range(_LARGEST_TRIES):
            data = await self._source.file(self._run, path)
            if _sha256(data) == sha256:
                _write_whole(place, data)
                return
        self._problem(f"{path}: its content is not what its hash says; it was not copied")

    def _place(self, path: str) -> Path | None:
        """Where a file of the run goes here; None for a name that leads elsewhere."""
        name = PurePosixPath(path)
        place = self._directory / name
        inside = not name.is_absolute() and ".." not in name.parts and bool(name.parts)
        if not inside or not place.resolve().is_relative_to(self._directory.resolve()):
            self._problem(f"E302 {path!r} leaves the run directory; it was not copied")
            return None
        return place

    async def _copy_log(self, launch: int) -> None:
        """Append what is new of a server's log."""
        log = self._directory / "launches" / str(launch) / "server.log"
        offset = log.stat().st_size if log.exists() else 0
        while True:
            try:
                piece = await self._source.log(self._run, launch, offset, _LOG_PIECE)
            except LinkLost:
                raise
            except AgentError:
                # A launch that failed before its server was started has no log.
                return
            if not piece:
                return
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as file:
                file.write(piece)
            offset += len(piece)

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)
            logger.warning("mirror of %s: %s", self._run, text)


def needs_mirror(host: str, source: Path | None, directory: Path) -> bool:
    """Whether a run must be copied: not when it is on this machine in that very folder.

    Args:
        host: `local` or a host.
        source: the run directory, for `local`.
        directory: where the copy would be.
    """
    return host != "local" or source is None or source.resolve() != directory.resolve()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _write_whole(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
