"""A limit on what a server's log takes of the disk: the middle of a log that floods is given back.

The server holds the file open and appends to it, so that it cannot be renamed or made shorter under it. Its blocks can
be given back: the file keeps its size and every byte its place, and whoever reads it at its end notices nothing.
"""

import ctypes
import logging
import os
from pathlib import Path

LARGEST = 1024**3
"""Bytes on the disk after which the middle goes."""
_KEPT_FIRST, _KEPT_LAST = LARGEST // 16, LARGEST // 4
"""How a server started, and what it said last."""
_BLOCK = 4096
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_GIB = 1024**3

logger = logging.getLogger(__name__)


class LogLimit:
    """Watches one log.

    Args:
        path: of the log; it need not be there yet.
        largest: bytes on the disk after which its middle goes.
        first: bytes that are kept of its beginning.
        last: bytes that are kept of its end, as it is when the middle goes.
    """

    def __init__(self, path: Path, largest: int = LARGEST, first: int = _KEPT_FIRST, last: int = _KEPT_LAST) -> None:
        self._path = path
        self._largest = largest
        self._first = -(-first // _BLOCK) * _BLOCK
        self._last = last
        self._impossible = False

    def look(self) -> None:
        """Give the middle back where the log has grown too large. Costs one `stat` where it has not."""
        try:
            about = self._path.stat()
        except OSError:
            return
        if about.st_blocks * 512 <= self._largest or self._impossible:
            return
        try:
            self._cut(about.st_size)
        except OSError as problem:
            # Some network file systems cannot: the sweep pauses when the disk is nearly full.
            self._impossible = True
            logger.warning("the log's middle cannot be given back to the disk: %s", problem)

    def _cut(self, size: int) -> None:
        end = (size - self._last) // _BLOCK * _BLOCK
        if end <= self._first + _BLOCK:
            return
        note = f"\n··· {(end - self._first) / _GIB:.3f} GiB of the log are left out here: it flooded ···\n".encode()
        with self._path.open("r+b") as log:
            _punch(log.fileno(), self._first + _BLOCK, end - self._first - _BLOCK)
            os.pwrite(log.fileno(), note.ljust(_BLOCK - 1) + b"\n", self._first)
            # The first line behind the hole begins with what is left of it: zeros would be a part of that line.
            os.pwrite(log.fileno(), b"\n", end - 1)
        logger.warning(
            "the server's log flooded: %d bytes of its middle were given back to the disk", end - self._first
        )


def _punch(descriptor: int, offset: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    fallocate = libc.fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
