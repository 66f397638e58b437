"""What happened to time while a cell was measured: the host slept, or its clock was set."""

import time

from ddconsole.core.clock import Clock
from ddconsole.core.states import Cause, Retry
from ddconsole.runner.boot import suspended_seconds

_SLEPT = 1.0
"""Seconds of sleep that void a cell: less is the two clocks being read one after the other."""
_SET = 2.0
"""Seconds by which the wall clock may go another way than the monotonic one: time servers slew by less."""


class CellTime:
    """Begins when it is made."""

    def __init__(self, clock: Clock) -> None:
        self.began = clock.now()
        self._suspended = suspended_seconds()
        self._apart = time.time() - time.monotonic()

    def void(self) -> Cause | None:
        """Why nothing that was measured since counts, or None: a server that slept is cold, and requests waited."""
        slept = suspended_seconds() - self._suspended
        if slept < _SLEPT:
            return None
        text = f"the host was suspended for {slept:.0f} s while this was measured"
        return Cause("HOST-SUSPENDED", text, do="keep the host awake during a sweep", retry=Retry.AS_IS)

    def flags(self) -> tuple[str, ...]:
        """A clock that was set: durations are not touched, but host samples are found by wall time."""
        # Sleep moves the two clocks apart as well.
        slept = suspended_seconds() - self._suspended
        by = time.time() - time.monotonic() - self._apart - slept
        if abs(by) < _SET:
            return ()
        return (
            f"the host's clock was set by {by:+.0f} s meanwhile: host samples may be missing, times are not affected",
        )
