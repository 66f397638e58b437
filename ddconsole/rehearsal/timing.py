"""The rehearsal's clock where no event loop runs, and for timers that need more than the clock's floor."""

from ddconsole.core.clock import Clock, ScaledClock


def real_wait(clock: Clock, seconds: float) -> float:
    """Simulated seconds as real ones, without the floor that `Clock.real_seconds` has for time limits."""
    scale = clock.scale if isinstance(clock, ScaledClock) else 1.0
    return max(seconds, 0.0) / scale


def simulated(clock: Clock, real_seconds: float) -> float:
    """Real seconds as simulated ones."""
    return real_seconds * (clock.scale if isinstance(clock, ScaledClock) else 1.0)
