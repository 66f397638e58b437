"""The console's copy of a run that is on another machine: what is finished there is soon here, checked and whole."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from ddconsole.core.events import (
    AttemptDone,
    AttemptFailed,
    AttemptStopped,
    Entry,
    Event,
    LaunchFailed,
    LaunchGone,
    LaunchPlanned,
    RunEnded,
)
from ddconsole.link.background_pace import BackgroundPace
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.file_queue import FileQueue, PieceSource
from ddconsole.link.http_client import entry_or_beat
from ddconsole.link.journal_copy import CopyHeld, JournalCopy
from ddconsole.link.reconnecting import Backoff
from ddconsole.link.stages import StageError

logger = logging.getLogger(__name__)

_Items: TypeAlias = AsyncGenerator[Entry | float, None]

POLL = 10.0
"""Seconds between two looks at the files that grow."""
_OTHER_RUN = "E303"


class MirrorSource(PieceSource, Protocol):
    """What a mirror asks of an agent; `HttpAgentClient` gives it."""

    def journal(self, run: str, after: int) -> AsyncIterator[Entry | float]:
        """Journal entries with a higher seq, and heartbeats."""
        ...

    def journal_lines(self, run: str, after: int, checksum: str = "") -> AsyncIterator[bytes]:
        """The same as lines as they are on the host's disk; refused when the entry `after` has another checksum."""
        ...

    async def files(self, run: str, under: str = "") -> list[Mapping[str, Any]]:
        """The files: path, size, sha256, which is empty for one that still grows."""
        ...


class Mirror:
    """Keeps `directory` up to date with a run, and goes on where an earlier one ended.

    The journal is copied as it passes by: whoever shows the run reads it from here, so it crosses the link once, and
    what is here of it does not cross it again. Files follow one piece at a time, the most valuable first, at a pace
    that leaves the link to others. A file has its name only when it is whole and its hash is right.

    Args:
        source: the agent.
        run: the run's id.
        directory: `logs/<run>` here.
        pace: how fast files may come.
        poll: seconds between two looks at the files that grow.
    """

    def __init__(
        self, source: MirrorSource, run: str, directory: Path, *, pace: BackgroundPace | None = None, poll: float = POLL
    ) -> None:
        self._source = source
        self._run = run
        self._directory = directory
        self._files = FileQueue(source, run, directory, pace or BackgroundPace(), self._problem)
        self._poll = poll
        self._copy: JournalCopy | None = None
        self._unusable = False
        self._growing: set[str] = set()
        self._ended = False
        """Something that grew may be whole now."""
        self._wake = asyncio.Event()
        self._streaming = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.problems: list[str] = []
        """What could not be copied, for people; newest last."""

    @property
    def seq(self) -> int:
        """The last journal entry that is here."""
        return self._copy.seq if self._copy is not None else 0

    def start(self, *, reads_journal: bool = True) -> None:
        """Begin to copy, in the background, through losses of the link.

        Args:
            reads_journal: False when somebody else reads `journal` all the time, such as the feed of the screens.
        """
        work = [self._keep_files(), *([self._keep_journal()] if reads_journal else [])]
        self._tasks = [asyncio.create_task(one, name=f"mirror {self._run}") for one in work]

    async def close(self) -> None:
        """End it; what is here stays."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    # --- the journal

    async def journal(self, run: str, after: int) -> _Items:
        """As `AgentClient.journal`: what is here comes from here, the rest over the link, and is then here too."""
        if (copy := self._opened()) is not None:
            try:
                async with aclosing(self._continued(copy, after)) as items:
                    async for item in items:
                        after = item.seq if isinstance(item, Entry) else after
                        yield item
            except AgentError as refused:
                if not refused.text.startswith(_OTHER_RUN):
                    raise
                self._give_up(f"{self._directory} holds another run of that name; it is left alone")
        async with aclosing(cast("_Items", self._source.journal(run, after))) as items:
            async for item in items:
                yield item

    async def _continued(self, copy: JournalCopy, after: int) -> _Items:
        """What is here, and what the host has behind it."""
        lines = cast("AsyncGenerator[bytes, None]", self._source.journal_lines(self._run, copy.seq, copy.checksum))
        try:
            async with aclosing(lines):
                # The host has answered that what is here is the beginning of what it has: only then it is shown.
                first = await anext(lines)
                for entry in copy.entries_after(after):
                    after = entry.seq
                    yield entry
                behind = _seq_of(first)
                async for line in _behind(first, lines):
                    item = self._keep(copy, line)
                    if not isinstance(item, Entry) or item.seq > after:
                        after = item.seq if isinstance(item, Entry) else after
                        yield item
                    if after >= behind:
                        self._streaming.set()
        finally:
            self._streaming.clear()

    def _opened(self) -> JournalCopy | None:
        if self._copy is None and not self._unusable:
            try:
                self._copy = JournalCopy(self._directory)
            except (CopyHeld, OSError) as problem:
                self._give_up(str(problem))
        return self._copy

    def _give_up(self, why: str) -> None:
        self._unusable = True
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        self._problem(f"this run is not copied: {why}")

    def _keep(self, copy: JournalCopy, line: bytes) -> Entry | float:
        """Write a line down, as far as this machine's disk takes it."""
        item = entry_or_beat(line)
        try:
            # It was closed when this mirror was, or given up.
            if copy is self._copy:
                copy.heard()
                if isinstance(item, Entry):
                    copy.append(line, item)
        except CopyHeld as problem:
            self._give_up(str(problem))
        except OSError as problem:
            self._problem(f"the journal cannot be copied: {problem.strerror or problem} ({self._directory})")
        if isinstance(item, Entry):
            self._notice(item.event)
        return item

    def _notice(self, event: Event | None) -> None:
        """An event says which files there are now, and which do not grow any more."""
        if isinstance(event, AttemptDone | AttemptFailed | AttemptStopped) and event.sha256:
            self._files.want(f"cells/{event.cell}/{event.attempt}.json", event.sha256)
            self._wake.set()
        elif isinstance(event, LaunchPlanned):
            self._growing |= {f"launches/{event.launch}/server.log", "telemetry.jsonl"}
        elif isinstance(event, LaunchGone | LaunchFailed | RunEnded):
            self._ended = True
            self._wake.set()

    async def _keep_journal(self) -> None:
        backoff = Backoff()
        while True:
            try:
                async with aclosing(self.journal(self._run, self.seq)) as journal:
                    async for _ in journal:
                        backoff.reset()
            except (LinkLost, StageError):
                await asyncio.sleep(backoff.delay())
            except AgentError as problem:
                self._problem(str(problem))
                await asyncio.sleep(backoff.delay())

    # --- files

    async def copy_files(self) -> None:
        """Bring everything that is not here, or is not the same here.

        Raises:
            LinkLost, AgentError: as the client.
            OSError: the disk here is full or read-only.
        """
        if self._opened() is None:
            return
        await self._list()
        await self._files.work()

    async def finish(self, seconds: float) -> None:
        """Bring what is missing, for at most so long; what does not come in time comes the next time."""
        with suppress(TimeoutError, AgentError, OSError):
            async with asyncio.timeout(seconds):
                await self.copy_files()

    async def _keep_files(self) -> None:
        backoff = Backoff()
        while True:
            await self._streaming.wait()
            if self._unusable:
                return
            try:
                await self.copy_files()
                backoff.reset()
                while self._streaming.is_set():
                    self._wake.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(self._poll):
                            await self._wake.wait()
                    await self._look_again()
                    await self._files.work()
            except (LinkLost, StageError):
                await asyncio.sleep(backoff.delay())
            except (AgentError, OSError) as problem:
                self._problem(str(problem))
                await asyncio.sleep(backoff.delay())

    async def _look_again(self) -> None:
        """What grows has grown; what grew and does not any more has a hash now."""
        if self._ended:
            self._ended = False
            for path in tuple(self._growing):
                self._growing.discard(path)
                await self._list(path)
        for path in self._growing:
            self._files.want(path, "")

    async def _list(self, under: str = "") -> None:
        for about in await self._source.files(self._run, under):
            path, sha256 = str(about["path"]), str(about["sha256"])
            if sha256:
                self._growing.discard(path)
            else:
                self._growing.add(path)
            self._files.want(path, sha256)

    def _problem(self, text: str) -> None:
        if text not in self.problems:
            self.problems.append(text)
            logger.warning("mirror of %s: %s", self._run, text)


def _seq_of(line: bytes) -> int:
    """The last entry that the host has, as its first beat says."""
    with suppress(ValueError, KeyError, TypeError):
        return int(json.loads(line)["seq"])
    return 0


async def _behind(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line
