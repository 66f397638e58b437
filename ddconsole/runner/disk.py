"""The file operations that durability rests on. Each error names its file: the system's own does not."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Disk:
    """One object does them all, so that a trial can put one in its place that fails, or that dies, at a chosen one."""

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """A descriptor that programs which are started do not inherit."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def write(self, descriptor: int, data: memoryview, path: Path) -> int:
        """Write some of `data`; the number of bytes. A short write is not an error of the system's."""
        with _of(path):
            return os.write(descriptor, data)

    def sync(self, descriptor: int, path: Path) -> None:
        """Make what was written durable."""
        with _of(path):
            os.fsync(descriptor)

    def cut(self, descriptor: int, size: int, path: Path) -> None:
        """Give a file back the size that it had."""
        with _of(path):
            os.ftruncate(descriptor, size)

    def rename(self, source: Path, target: Path) -> None:
        """Put a file in the place of another one."""
        os.rename(source, target)  # noqa: PTH104  # one of a row of system calls


@contextmanager
def _of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        problem.filename = str(path)
        raise


class _Place:
    """Where the disk is that durable files are written with."""

    def __init__(self) -> None:
        self.disk = Disk()


PLACE = _Place()
