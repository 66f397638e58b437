"""Which consoles are there, and when each was last heard. Kept in memory: nothing of the sweep depends on it."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ddconsole.core.run_state import Controller
from ddconsole.core.wire import Watchers

SILENT_AFTER = 15.0
"""Seconds without a request after which a console whose stream is still open counts as away: it asks every five."""
_MOST_KNOWN = 1000


class Presence:
    """Consoles by their ids. Times are real seconds of a clock that only grows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._heard: dict[str, float] = {}
        self._open: Counter[tuple[str, str]] = Counter()

    def heard(self, console: str) -> None:
        """A console asked for something."""
        if not console:
            return
        self._heard.pop(console, None)
        self._heard[console] = self._clock()
        while len(self._heard) > _MOST_KNOWN:
            del self._heard[next(iter(self._heard))]

    @contextmanager
    def watching(self, run: str, console: str) -> Iterator[None]:
        """A console's stream of a run is open."""
        key = (run, console)
        self._open[key] += 1
        try:
            yield
        finally:
            self._open[key] -= 1
            if not self._open[key]:
                del self._open[key]

    def watchers(self, run: str, controller: Controller | None) -> Watchers:
        """Who is there. A console that this agent has never heard has been silent for as long as the agent lives."""
        consoles = {console for name, console in self._open if name == run and console and self._is_here(run, console)}
        if controller is None:
            return Watchers(len(consoles), "", controller_here=False, controller_age=None)
        here = controller.console in consoles
        heard = self._heard.get(controller.console, self._began)
        return Watchers(len(consoles), controller.console, controller_here=here, controller_age=self._clock() - heard)

    def _is_here(self, run: str, console: str) -> bool:
        silent = self._clock() - self._heard.get(console, self._began)
        return (run, console) in self._open and silent <= SILENT_AFTER
