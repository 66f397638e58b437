"""Numbers that several processes take from one pile, each number once."""

import fcntl
import os
from collections.abc import Iterator
from typing import Self

_SIZE = 4


class Tickets:
    """A file in memory with a number a record. Processes that inherit it share its offset: a read takes the next one.

    Under a lock: the kernel makes a read and its move of the offset one step for other files, but not for these.

    Args:
        descriptor: of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    @classmethod
    def new(cls) -> Self:
        """An empty pile."""
        return cls(os.memfd_create("ddconsole-tickets"))

    def put(self, count: int) -> None:
        """The numbers from 0 on, in place of what was left. To be called while nobody takes any."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, b"".join(number.to_bytes(_SIZE, "little") for number in range(count)), 0)
        os.lseek(self.descriptor, 0, os.SEEK_SET)

    def take(self) -> Iterator[int]:
        """The next number that nobody has, until there is none."""
        while record := self._next():
            yield int.from_bytes(record, "little")

    def _next(self) -> bytes:
        fcntl.lockf(self.descriptor, fcntl.LOCK_EX)
        try:
            return os.read(self.descriptor, _SIZE)
        finally:
            fcntl.lockf(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the file up here; who inherited it keeps it."""
        os.close(self.descriptor)
