"""A run's journal on the console's machine: continued by number and checksum, never mixed with another run's."""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ddconsole.core.events import Entry
from ddconsole.core.journal_line import checksum_of, read_lines

_HEARD_EVERY = 5.0
"""Seconds between two notes of when the host was last heard."""
_HEARD = "mirror.json"


class CopyHeld(Exception):
    """Somebody else writes this copy, or it is the original; the text says which."""


class JournalCopy:
    """`journal.jsonl` of a mirror. What cannot be read at its end is replaced by what the host sends.

    Args:
        directory: of the run, here. It is made.

    Raises:
        CopyHeld: another console copies the run, or an agent conducts it here.
        OSError: it cannot be read or written.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._path = directory / "journal.jsonl"
        self._lock = _only_writer(directory)
        data = self._path.read_bytes() if self._path.exists() else b""
        entries, damage = read_lines(data)
        self._entries: Sequence[Entry] = entries
        self._size = len(data) if damage is None else damage.offset
        self._length_on_disk = len(data)
        self._heard = 0.0
        self.seq = entries[-1].seq if entries else 0
        """The last entry that is here."""
        self._file = self._path.open("ab", buffering=0)
        lines = data[: self._size].splitlines()
        self.checksum = checksum_of(lines[-1]) if lines else ""
        """Of that entry's line: the host is asked whether it has the same."""

    def close(self) -> None:
        """Let others copy."""
        self._file.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def entries_after(self, seq: int) -> Iterator[Entry]:
        """What was here when it was opened."""
        return (entry for entry in self._entries if entry.seq > seq)

    def append(self, line: bytes, entry: Entry) -> bool:
        """Write a line down as the host has it; False when it is not the next one.

        Raises:
            CopyHeld: the file is not as it was left.
            OSError: the disk is full or broken; the next line is refused until this one came again.
        """
        if entry.seq != self.seq + 1:
            return False
        if os.fstat(self._file.fileno()).st_size != self._length_on_disk:
            raise CopyHeld(f"{self._path} was changed by somebody else; it is not continued")
        if self._length_on_disk != self._size:
            self._file.truncate(self._size)
        data = line + b"\n"
        try:
            if self._file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        finally:
            self._length_on_disk = os.fstat(self._file.fileno()).st_size
        self._size = self._length_on_disk
        self.seq, self.checksum = entry.seq, checksum_of(line)
        return True

    def heard(self) -> None:
        """Note that the host was heard now."""
        now = time.time()
        if now - self._heard < _HEARD_EVERY:
            return
        self._heard = now
        fresh = self._directory / f".{_HEARD}.part"
        fresh.write_text(json.dumps({"heard": now}))
        fresh.rename(self._directory / _HEARD)


def last_heard(directory: Path) -> float | None:
    """When a mirror's host was last heard, in wall seconds of this machine; None where that is not known."""
    try:
        return float(json.loads((directory / _HEARD).read_bytes())["heard"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _only_writer(directory: Path) -> int | None:
    """Hold the mirror's lock, and look whether an agent holds the journal's; None where the disk knows no locks."""
    lock = os.open(directory / ".mirror.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (directory / ".agent.lock").exists():
            with (directory / ".agent.lock").open("rb") as agents:
                fcntl.flock(agents, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        os.close(lock)
        raise CopyHeld(f"{directory} is written by another process of this machine") from problem
    except OSError:
        os.close(lock)
        return None
    return lock
