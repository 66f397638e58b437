"""One file of a run on its way here: under another name until it is whole and its hash is right."""

import contextlib
import hashlib
import os
from pathlib import Path, PurePosixPath

PART = ".part"
"""Behind the name of a file that is not whole: a log that still grows, or a transfer that goes on later."""


class LeavesDirectory(ValueError):
    """The name leads out of the run directory."""


class FileCopy:
    """A file of a run: `<name>.part` while it comes, `<name>` when it is whole.

    Args:
        directory: of the run, here.
        path: of the file in it, as the host says.

    Raises:
        LeavesDirectory: the name leads elsewhere.
    """

    def __init__(self, directory: Path, path: str) -> None:
        name = PurePosixPath(path)
        self._place = directory / name
        inside = not name.is_absolute() and ".." not in name.parts and bool(name.parts)
        if not inside or not self._place.resolve().is_relative_to(directory.resolve()):
            raise LeavesDirectory(path)
        self._part = self._place.with_name(self._place.name + PART)

    @property
    def size(self) -> int:
        """Bytes that are here of a file that is not whole."""
        try:
            return self._part.stat().st_size
        except FileNotFoundError:
            return 0

    def is_whole(self, sha256: str) -> bool:
        """Whether it is here with that hash; one without it is a beginning, and gone on with."""
        if not self._place.is_file():
            return False
        if _digest(self._place) == sha256:
            return True
        self._place.rename(self._part)
        return False

    def append(self, data: bytes, offset: int) -> None:
        """Write a piece at its place.

        Raises:
            OSError: the disk is full or broken; the piece is not there, or not whole, and is asked for again.
        """
        if not data:
            return
        self._part.parent.mkdir(parents=True, exist_ok=True)
        with self._part.open("ab") as file:
            file.truncate(offset)
            if any(data):
                file.write(data)
            else:
                # What a log that flooded has given back to the host's disk takes none here either.
                file.truncate(offset + len(data))

    def finish(self, sha256: str) -> bool:
        """Give it its name; False when its content is not what its hash says: then nothing of it is kept.

        Raises:
            OSError: the disk is full or broken.
        """
        if not self._part.exists():
            self._part.parent.mkdir(parents=True, exist_ok=True)
            self._part.touch()
        if _digest(self._part) != sha256:
            self._part.unlink()
            return False
        descriptor = os.open(self._part, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._part.rename(self._place)
        return True

    def start_over(self) -> None:
        """Forget what is here of it."""
        with contextlib.suppress(FileNotFoundError):
            self._part.unlink()


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
