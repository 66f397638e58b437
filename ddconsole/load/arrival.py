"""When bytes arrived, by the kernel: neither a busy event loop nor other streams' parsing makes a token late."""

import functools
import socket
import struct
import time
from contextlib import suppress

from ddconsole.core.clock import Clock

_TIMESTAMP_NS = 35
"""SO_TIMESTAMPNS of Linux on x86-64 and ARM64; Python's `socket` has no name for it."""
_TIMESPEC = struct.Struct("qq")
_READ = 64 * 1024
_ANCILLARY = socket.CMSG_SPACE(_TIMESPEC.size)
_MANY_SECONDS = 1e9


@functools.cache
def stamp_arrivals() -> None:
    """Have the kernel stamp what comes in, from some milliseconds after this call until the process ends.

    It does so for the whole machine as long as any socket asks for it, and takes its time to begin: a connection that
    is the only one to ask would have its first answer without a time.
    """
    keeping = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with suppress(OSError):
        keeping.setsockopt(socket.SOL_SOCKET, _TIMESTAMP_NS, 1)
    keeping.detach()


class ArrivalTimes:
    """Reads a connected stream socket that does not block.

    The time of a read is that at which its last byte, or the end of the stream after it, came in from the network.
    Where the kernel tells none, it is the time right after the read. The kernel tells it by the wall clock: that one
    may be set meanwhile, so a time before the read before counts as that read's.

    Args:
        connection: what is read.
        clock: the one of the times.
    """

    def __init__(self, connection: socket.socket, clock: Clock) -> None:
        self._connection = connection
        self._monotonic = clock.monotonic
        self._speed = _MANY_SECONDS / clock.real_seconds(_MANY_SECONDS)
        self._not_before = clock.monotonic()
        with suppress(OSError):  # then it is the time of the read
            connection.setsockopt(socket.SOL_SOCKET, _TIMESTAMP_NS, 1)

    def read(self) -> tuple[float, bytes]:
        """Monotonic time and bytes; no bytes at the end of the stream.

        Raises:
            OSError: as `socket.recvmsg`.
        """
        received, ancillary, _, _ = self._connection.recvmsg(_READ, _ANCILLARY)
        now = at = self._monotonic()
        if ancillary and ancillary[0][1] == _TIMESTAMP_NS:
            seconds, nanoseconds = _TIMESPEC.unpack(ancillary[0][2])
            age = time.time() - seconds - nanoseconds * 1e-9
            if age > 0:
                at = max(now - age * self._speed, self._not_before)
        self._not_before = now
        return at, received
