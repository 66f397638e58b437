"""Who is at fault for a silence: looked into as soon as a beat is missing, long before the link counts as lost."""

import asyncio
import time
from collections.abc import Callable

from ddconsole.link.client import AgentRoute, LinkPhase, LinkState, Way

BEAT = 5.0
"""Real seconds between two heartbeats of an agent's stream."""
LATE = 1.5
"""Seconds that a beat may be late before the operator is told."""
_LOOK = 0.5
_AGAIN = 3.0
"""Seconds between two looks at the way."""

WATCHED = frozenset({LinkPhase.UP, LinkPhase.SILENT, LinkPhase.STALLED, LinkPhase.AGENT_GONE})
"""Phases in which a stream is open and a beat may come at any time."""
_PHASES = {
    Way.ACCEPTS: (LinkPhase.STALLED, "the host answers, its agent does not"),
    Way.NOBODY: (LinkPhase.AGENT_GONE, "the host answers, its agent is not there"),
    Way.SILENT: (LinkPhase.SILENT, "the host does not answer"),
    Way.UNKNOWN: (LinkPhase.SILENT, "no beat came"),
}


class SilenceWatch:
    """Tells when the beats of an open stream stay away, and why.

    Args:
        link: what is known of the link.
        tell: takes the new phase and its detail.
        route: the way to look at; None where there is none to look at.
        beat: seconds between two beats.
    """

    def __init__(
        self,
        link: Callable[[], LinkState],
        tell: Callable[[LinkPhase, str], None],
        route: AgentRoute | None,
        beat: float = BEAT,
    ) -> None:
        self._link = link
        self._tell = tell
        self._route = route
        self._beat = beat
        self._heard = 0.0

    def heard(self) -> None:
        """Something came, now."""
        self._heard = _now()

    async def keep(self, stream_is_open: Callable[[], bool]) -> None:
        """Watch for ever."""
        looked = 0.0
        while True:
            await asyncio.sleep(min(_LOOK, self._beat / 2))
            if not stream_is_open() or self._link().phase not in WATCHED or not self._late():
                continue
            if self._link().phase is LinkPhase.UP:
                self._tell(LinkPhase.SILENT, "no beat came")
            elif _now() - looked < _AGAIN:
                continue
            looked = _now()
            way = await self._route.look() if self._route is not None else Way.UNKNOWN
            if self._late() and stream_is_open() and self._link().phase in WATCHED:
                self._tell(*_PHASES[way])

    def _late(self) -> bool:
        return _now() - self._heard > self._beat + min(LATE, self._beat)


def _now() -> float:
    """Seconds that count a suspended machine's sleep too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
