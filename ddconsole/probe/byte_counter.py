"""A rate from a counter of bytes that is 32 bits wide on some cards."""

from ddconsole.core.readings import Reading, read, unavailable

_WIDTH = 2.0**32


class ByteCounter:
    """Bytes a second between two readings of one counter.

    A counter of 32 bits runs over every 4 GB: the rate is a lower bound where more than that passed between two
    readings, and the source says that it may be.
    """

    def __init__(self) -> None:
        self._before: Reading[float] | None = None

    def rate(self, now: Reading[float]) -> Reading[float]:
        """The rate since the reading before this one."""
        before, self._before = self._before, now
        if now.value is None:
            return now
        if before is None or before.value is None or now.at <= before.at:
            return unavailable("the first reading has no interval", now.at, now.source)
        moved = now.value - before.value
        if moved < 0:
            moved = moved % _WIDTH
        return read(float(round(moved / (now.at - before.at))), now.at, now.source)
