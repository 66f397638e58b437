"""Marks of files by their content: cheap enough for a model of many gigabytes before each launch.

Copies of a file have one mark whatever their times are: a model that is staged again after a reboot is the same.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

_WHOLE = 32 * 1024 * 1024
"""Bytes up to which a file is read whole: programs, configurations."""
_SAMPLE = 64 * 1024
_SAMPLES = 16
"""A longer file is read at so many places: other weights differ everywhere."""

_Stamp = tuple[str, int, int, int]


class ContentMarks:
    """Marks, made anew only for files whose size, time or inode is another."""

    def __init__(self) -> None:
        self._known: dict[_Stamp, str] = {}

    def of(self, paths: Iterable[Path]) -> dict[str, str]:
        """Marks by file name; files that cannot be read are left out."""
        marks = {}
        for path in paths:
            try:
                marks[path.name] = self._mark(path)
            except OSError:
                continue
        return marks

    def _mark(self, path: Path) -> str:
        status = path.stat()
        stamp = (str(path), status.st_size, status.st_mtime_ns, status.st_ino)
        if stamp not in self._known:
            self._known[stamp] = f"{status.st_size} {_digest(path, status.st_size)}"
        return self._known[stamp]


def _digest(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        if size <= _WHOLE:
            digest.update(file.read())
        else:
            for number in range(_SAMPLES):
                file.seek((size - _SAMPLE) * number // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE))
    return digest.hexdigest()[:16]
