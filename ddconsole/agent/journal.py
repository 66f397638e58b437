"""The journal of one run: the agent alone writes it, and nothing is shown before it is on disk."""

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ddconsole.agent.run_lock import RunHeld, RunLock
from ddconsole.core.clock import Clock
from ddconsole.core.events import Entry, EpochBegan, Event, JournalRepaired, Origin, Warned
from ddconsole.core.fold import apply, fold
from ddconsole.core.journal_line import Damage, encode_line, read_lines
from ddconsole.core.run_state import RunState
from ddconsole.runner.boot import Boot
from ddconsole.runner.durable import AppendFile, StorageFailed, write_whole

FORMAT = 1
"""Of the journals that this version writes; the highest one that it may go on with."""
_BALLAST_BYTES = 256 * 1024
"""Kept beside the journal and given up when the disk is full, so that the pause can still be written down."""


class JournalDamaged(Exception):
    """A line in the middle cannot be read: the file is left as it is, and no run goes on from it."""


class JournalNewer(Exception):
    """A later version wrote it: the text names both. The file is left as it is."""


class JournalHeld(Exception):
    """Another agent writes this journal; the text says which file."""


class Journal:
    """An open journal with the state that it folds to."""

    def __init__(
        self, path: Path, clock: Clock, entries: Sequence[Entry], lines: Sequence[bytes], lock: RunLock
    ) -> None:
        self.path = path
        self._lock: RunLock | None = lock
        self._clock = clock
        self._file = AppendFile(path)
        self.state: RunState = fold(entries)
        self.lines: list[bytes] = list(lines)
        """Every line, newline included: what consoles are sent."""
        self._first_seq = entries[0].seq if entries else 1
        self._epoch = self.state.epoch + 1
        self._changed = asyncio.Event()
        self.began = "created"
        """Why this epoch began, as `EpochBegan` says it."""
        self._ballast = path.with_name(".ballast")
        self.keep_ballast()

    @classmethod
    def open(cls, path: Path, clock: Clock, *, boot: Boot, pid: int, version: str) -> "Journal":
        """Open or create a journal and begin an epoch. A torn last line is cut off, kept aside, and reported.

        Raises:
            JournalHeld: another agent has it open.
            JournalDamaged: a line in the middle is damaged.
            JournalNewer: a later version wrote it.
            OSError: it cannot be read or written.
        """
        try:
            lock = RunLock(path.parent)
        except RunHeld as held:
            raise JournalHeld(str(held)) from held
        try:
            return cls._opened(path, clock, lock, boot=boot, pid=pid, version=version)
        except BaseException:
            lock.close()
            raise

    @classmethod
    def _opened(cls, path: Path, clock: Clock, lock: RunLock, *, boot: Boot, pid: int, version: str) -> "Journal":
        data = _read_back(path)
        last_written = path.stat().st_mtime if data else 0.0
        entries, damage = read_lines(data)
        if damage is not None and not damage.torn_tail:
            raise JournalDamaged(_damage_in_words(path, data, damage))
        _require_known(path, entries, version)
        events: list[Event] = []
        if damage is not None:
            aside = path.with_name(f"{path.name}.torn-{int(time.time())}")
            write_whole(aside, data[damage.offset :])
            with path.open("r+b") as file:
                file.truncate(damage.offset)
            events.append(JournalRepaired(len(data) - damage.offset, aside.name))
            data = data[: damage.offset]
        journal = cls(path, clock, entries, data.splitlines(keepends=True), lock)
        reason, since = ("restarted", 0.0) if entries else ("created", 0.0)
        if entries and journal.state.boot != boot.token:
            reason, since = boot.since(last_written)
        journal.append([EpochBegan(reason, boot.token, pid, version, since, FORMAT), *events])
        journal.began = reason
        return journal

    def close(self) -> None:
        """Let the journal go: another agent may write it."""
        if self._lock is not None:
            self._file.close()
            self._lock.close()
            self._lock = None

    def append(self, events: Sequence[Event], origin: Origin | None = None) -> None:
        """Write events down, durable before anybody sees them: all of them, or none.

        Raises:
            StorageFailed: the journal takes nothing more until `write_anew`.
            OSError: nothing was written.
        """
        if not events:
            return
        at = self._clock.now()
        last = len(events) - 1
        entries = [
            Entry(self._epoch, self.state.seq + 1 + place, at, event, origin, more=last - place)
            for place, event in enumerate(events)
        ]
        lines = [encode_line(entry) for entry in entries]
        size = self._file.size
        self._file.append(b"".join(lines))
        try:
            self._file.sync()
        except StorageFailed as failure:
            # Nobody was told of these lines: an agent that reads the file should not find them either.
            self._file.cut_back(size, failure)
            raise
        for entry in entries:
            self.state = apply(self.state, entry)
        self.lines += lines
        self._changed.set()
        self._changed = asyncio.Event()

    @property
    def failed(self) -> StorageFailed | None:
        """Why the journal takes nothing more, once a sync has failed."""
        return self._file.failed

    def write_anew(self) -> None:
        """After a sync failed: put all that was acknowledged into a new file, and go on in that one.

        Raises:
            OSError: the storage still fails; the old file is as it was.
        """
        because = self._file.failed
        write_whole(self.path, b"".join(self.lines))
        fresh = AppendFile(self.path)
        self._file.close()
        self._file = fresh
        if because is not None:
            self.append([Warned(f"journal.jsonl was written anew: a sync of it had failed ({because.strerror})")])

    def give_up_ballast(self) -> None:
        """Free the reserve, so that a full disk takes one more event."""
        with contextlib.suppress(OSError):
            self._ballast.unlink()

    def keep_ballast(self) -> None:
        """Lay the reserve by, where it is not."""
        with contextlib.suppress(OSError):
            if not self._ballast.exists():
                self._ballast.write_bytes(b"\0" * _BALLAST_BYTES)

    def after(self, seq: int) -> list[bytes]:
        """The lines of all entries with a higher seq. `seq` counts up by one from the first line."""
        return self.lines[max(seq - self._first_seq + 1, 0) :]

    async def changed(self, timeout: float) -> bool:
        """Wait for the next append, at most `timeout` real seconds; whether there was one."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout)
        except TimeoutError:
            return False
        return True


def _read_back(path: Path) -> bytes:
    """What is on the disk, not what the page cache remembers: after a failed sync they differ."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        with contextlib.suppress(OSError):  # this sync is not relied on: pages that are still dirty cannot be dropped
            os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def _damage_in_words(path: Path, data: bytes, damage: Damage) -> str:
    behind = data[damage.end :].count(b"\n")
    return (
        f"{path}: line {damage.line} (bytes {damage.offset} to {damage.end}) is damaged, "
        f"{damage.offset} bytes before it are whole, {behind} lines stand behind it; the file was not touched"
    )


def _require_known(path: Path, entries: Sequence[Entry], version: str) -> None:
    """Refuse a journal that holds what this version does not know: going on from half of it would be a guess.

    Raises:
        JournalNewer: a later version wrote it.
    """
    began = [entry.event for entry in entries if isinstance(entry.event, EpochBegan)]
    unknown = next((entry.seq for entry in entries if entry.event is None), None)
    highest = max((one.format for one in began), default=FORMAT)
    if highest <= FORMAT and unknown is None:
        return
    what = f"format {highest}" if highest > FORMAT else f"entry {unknown} is of a kind that is not known here"
    theirs = began[-1].version if began else "?"
    raise JournalNewer(
        f"{path} was written by ddconsole {theirs} ({what}); this is ddconsole {version} (format {FORMAT}), "
        "which does not write to it; the file was not touched"
    )
