"""The journal of one run: the agent alone writes it, and nothing is shown before it is on disk."""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path

from ddconsole.core.clock import Clock
from ddconsole.core.events import Entry, EpochBegan, Event, JournalRepaired, Origin
from ddconsole.core.fold import apply, fold
from ddconsole.core.journal_line import encode_line, read_lines
from ddconsole.core.run_state import RunState
from ddconsole.runner.boot import Boot
from ddconsole.runner.durable import AppendFile, write_whole

_BALLAST_BYTES = 256 * 1024
"""Kept beside the journal and given up when the disk is full, so that the pause can still be written down."""


class JournalDamaged(Exception):
    """A line in the middle cannot be read: the file is left as it is, and no run goes on from it."""


class JournalHeld(Exception):
    """Another agent writes this journal; the text says which file."""


class Journal:
    """An open journal with the state that it folds to."""

    def __init__(self, path: Path, clock: Clock, entries: Sequence[Entry], lines: Sequence[bytes], lock: int) -> None:
        self.path = path
        self._lock: int | None = lock
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
        self._keep_ballast()

    @classmethod
    def open(cls, path: Path, clock: Clock, *, boot: Boot, pid: int, version: str) -> "Journal":
        """Open or create a journal and begin an epoch. A torn last line is cut off, kept aside, and reported.

        Raises:
            JournalHeld: another agent has it open.
            JournalDamaged: a line in the middle is damaged.
            OSError: it cannot be read or written.
        """
        lock = _lock(path.with_name(".agent.lock"))
        try:
            return cls._opened(path, clock, lock, boot=boot, pid=pid, version=version)
        except BaseException:
            os.close(lock)
            raise

    @classmethod
    def _opened(cls, path: Path, clock: Clock, lock: int, *, boot: Boot, pid: int, version: str) -> "Journal":
        data = path.read_bytes() if path.exists() else b""
        last_written = path.stat().st_mtime if data else 0.0
        entries, damage = read_lines(data)
        if damage is not None and not damage.torn_tail:
            raise JournalDamaged(
                f"{path}: line {damage.line} (byte {damage.offset}) is damaged; the file was not touched"
            )
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
        journal.append([EpochBegan(reason, boot.token, pid, version, since), *events])
        journal.began = reason
        return journal

    def close(self) -> None:
        """Let the journal go: another agent may write it."""
        if self._lock is not None:
            self._file.close()
            os.close(self._lock)
            self._lock = None

    def append(self, events: Sequence[Event], origin: Origin | None = None) -> None:
        """Write events down, durable before anybody sees them.

        Raises:
            OSError: nothing was written.
        """
        if not events:
            return
        at = self._clock.now()
        entries = [
            Entry(self._epoch, self.state.seq + 1 + place, at, event, origin) for place, event in enumerate(events)
        ]
        lines = [encode_line(entry) for entry in entries]
        self._file.append(b"".join(lines))
        self._file.sync()
        for entry in entries:
            self.state = apply(self.state, entry)
        self.lines += lines
        self._changed.set()
        self._changed = asyncio.Event()

    def give_up_ballast(self) -> None:
        """Free the reserve, so that a full disk takes one more event."""
        with contextlib.suppress(OSError):
            self._ballast.unlink()

    def _keep_ballast(self) -> None:
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


def _lock(path: Path) -> int:
    """Hold a journal for as long as the process lives: two writers would each see only their own events."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(descriptor)
        raise JournalHeld(f"{path.parent.name} is conducted by another agent") from problem
    return descriptor
