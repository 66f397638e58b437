"""Files that survive a kill and a power cut: written whole, or appended and synced."""

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write_whole(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace `path` by `data`: temp file, fsync, rename, fsync of the folder. The old content stays on any failure.

    Raises:
        OSError: the disk is full, read-only or broken; nothing was replaced and no temp file is left.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    """`write_whole` of JSON; NaN and infinities are refused."""
    write_whole(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n")


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of `data`: a short write is not an error of the system's, but it is one of ours."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class AppendFile:
    """A file that lines are appended to; `sync` makes them durable.

    A line that could not be written whole is cut off again, so that the next one does not stand behind its ruins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        sync_folder(path.parent)

    def append(self, data: bytes) -> None:
        """Append `data`, or nothing.

        Raises:
            OSError: the disk is full or broken; the file is as it was.
        """
        size = os.fstat(self._descriptor).st_size
        try:
            write_all(self._descriptor, data)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, size)
            raise

    def sync(self) -> None:
        """Make what was appended durable. A failed sync is final: the pages may be gone (fsyncgate)."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
