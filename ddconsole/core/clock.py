"""Time, asked of one injected clock, so that a rehearsal can run faster without its figures changing."""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Protocol

ENVIRONMENT_VARIABLE = "DDCONSOLE_CLOCK"
"""`SCALE@ANCHOR`: how many times faster than real time, and the wall time at which both clocks agreed."""


class Clock(Protocol):
    """What every timed part of ddconsole asks for the time."""

    def now(self) -> float:
        """Wall time in seconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back, the same for all processes of one host."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` of this clock pass."""
        ...

    def real_seconds(self, seconds: float) -> float:
        """How long `seconds` of this clock are on the machine's own clock: for time limits of libraries."""
        ...


@dataclass(frozen=True)
class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Wall time in seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """CLOCK_MONOTONIC in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        await asyncio.sleep(seconds)

    def real_seconds(self, seconds: float) -> float:
        """The same number."""
        return seconds


@dataclass(frozen=True)
class ScaledClock:
    """A clock that runs `scale` times faster than the machine's, for rehearsals.

    All processes that share `scale` and `anchor` (wall seconds at which both clocks agreed) agree on the time.
    """

    scale: float
    anchor: float

    def now(self) -> float:
        """Simulated wall time in seconds since 1970."""
        return self.anchor + (time.time() - self.anchor) * self.scale

    def monotonic(self) -> float:
        """Simulated monotonic seconds."""
        return time.monotonic() * self.scale

    async def sleep(self, seconds: float) -> None:
        """Sleep until `seconds` of simulated time have passed."""
        await asyncio.sleep(seconds / self.scale)

    def real_seconds(self, seconds: float) -> float:
        """Simulated seconds as real seconds, at least a quarter of a second, so that slow machines keep up."""
        return max(seconds / self.scale, 0.25)


def clock_from_environment() -> Clock:
    """The clock that the starter of this process asked for, else the machine's."""
    text = os.environ.get(ENVIRONMENT_VARIABLE, "")
    if not text:
        return SystemClock()
    scale, _, anchor = text.partition("@")
    return ScaledClock(scale=float(scale), anchor=float(anchor))
