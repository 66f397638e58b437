"""Files that survive a kill and a power cut: written whole, or appended and synced."""

import contextlib
import errno
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ddconsole.runner.disk import PLACE


class StorageFailed(OSError):
    """A file cannot be trusted any more: its sync failed, or the ruins of a write could not be cut off.

    Its pages may be gone though they can still be read (fsyncgate): the sync is not tried again, and nothing more is
    written to the file.
    """


def in_words(problem: OSError) -> str:
    """`/runs/r/journal.jsonl: No space left on device (ENOSPC)`: what an operator needs to know of it."""
    name = errno.errorcode.get(problem.errno or 0, f"errno {problem.errno}")
    return f"{problem.filename or 'a file'}: {problem.strerror or problem} ({name})"


def write_whole(path: Path, data: bytes, mode: int = 0o644, *, durable: bool = True) -> None:
    """Replace `path` by `data`: temp file, fsync, rename, fsync of the folder. The old content stays on any failure.

    Args:
        path: what to replace.
        data: its new content.
        mode: permissions of a new file, before the umask.
        durable: False for what may be lost with the power: then nothing is synced.

    Raises:
        OSError: the disk is full, read-only or broken; nothing was replaced and no temp file is left. Where the sync
            of the folder fails, `path` is new, but may be the old one again after a power cut.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _write_new(temporary, data, mode, durable=durable)
        PLACE.disk.rename(temporary, path)
    except OSError as problem:
        problem.filename = str(path)
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def _write_new(path: Path, data: bytes, mode: int, *, durable: bool) -> None:
    descriptor = PLACE.disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        _write_all(descriptor, data, path)
        if durable:
            PLACE.disk.sync(descriptor, path)
    finally:
        os.close(descriptor)


def sweep_ruins(folders: Iterable[Path]) -> None:
    """Remove temp files of `write_whole` whose process is gone: a kill left them, and nobody knows of them."""
    for folder in folders:
        for path in folder.glob(".*.part"):
            pid = path.name.split(".")[-2]
            if pid.isdigit() and not _writes(pid):
                with contextlib.suppress(OSError):
                    path.unlink()


def _writes(pid: str) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


def write_json(path: Path, value: Any) -> None:
    """`write_whole` of JSON; NaN and infinities are refused."""
    write_whole(path, json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1).encode() + b"\n")


def _write_all(descriptor: int, data: bytes, path: Path) -> None:
    """Write all of `data`: a short write is not an error of the system's, but it is one of ours."""
    view = memoryview(data)
    while view:
        written = PLACE.disk.write(descriptor, view, path)
        if written == 0:
            raise OSError(errno.EIO, "nothing was written", str(path))
        view = view[written:]


def sync_folder(folder: Path) -> None:
    """Make a rename or a new file in `folder` durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        PLACE.disk.sync(descriptor, folder)
    finally:
        os.close(descriptor)


def append_line(path: Path, line: bytes, *, largest: int) -> None:
    """Append a line that may be lost with the power, or nothing; a line that a kill tore before is ended first.

    Raises:
        OSError: the disk is full or broken; the file is as it was, if it could be cut back.
    """
    descriptor = PLACE.disk.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        if size >= largest:
            return
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        try:
            _write_all(descriptor, b"\n" + line if torn else line, path)
        except OSError:
            PLACE.disk.cut(descriptor, size, path)
            raise
    finally:
        os.close(descriptor)


class AppendFile:
    """A file that lines are appended to; `sync` makes them durable.

    A line that could not be written whole is cut off again, so that the next one does not stand behind its ruins.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: StorageFailed | None = None
        """Why nothing more is written to it, once a sync has failed."""
        self._descriptor = PLACE.disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            sync_folder(path.parent)
        except OSError:
            os.close(self._descriptor)
            raise

    def append(self, data: bytes) -> None:
        """Append `data`, or nothing.

        Raises:
            StorageFailed: the file takes nothing more.
            OSError: the disk is full or broken; the file is as it was.
        """
        self._refuse_if_failed()
        size = os.fstat(self._descriptor).st_size
        try:
            _write_all(self._descriptor, data, self.path)
        except OSError as problem:
            self.cut_back(size, problem)
            raise

    def cut_back(self, size: int, because: OSError) -> None:
        """Take away what stands behind `size` bytes; where that fails too, the file takes nothing more."""
        try:
            PLACE.disk.cut(self._descriptor, size, self.path)
        except OSError:
            self._fail(because)

    def sync(self) -> None:
        """Make what was appended durable.

        Raises:
            StorageFailed: it may or may not be on disk. That is final for this file.
        """
        self._refuse_if_failed()
        try:
            PLACE.disk.sync(self._descriptor, self.path)
        except OSError as problem:
            raise self._fail(problem) from problem

    def _refuse_if_failed(self) -> None:
        if self.failed is not None:
            raise StorageFailed(self.failed.errno, self.failed.strerror, self.failed.filename)

    def _fail(self, because: OSError) -> StorageFailed:
        self.failed = StorageFailed(because.errno, because.strerror, str(self.path))
        return self.failed

    @property
    def size(self) -> int:
        """Bytes in the file now."""
        return os.fstat(self._descriptor).st_size

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
