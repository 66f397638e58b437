"""Tells subscribers what changed, at most ten times a second, however often it did."""

import asyncio
from collections.abc import Callable
from typing import TypeAlias

Changed: TypeAlias = Callable[[frozenset[str]], None]

INTERVAL = 0.1
"""Seconds between two calls of a subscriber at least."""


class ChangeBoard:
    """Names of what changed, gathered until the next call is due. Lives on one event loop."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._subscribers: list[Changed] = []
        self._names: set[str] = set()
        self._due: asyncio.TimerHandle | None = None
        self._told = 0.0

    def subscribe(self, changed: Changed) -> Callable[[], None]:
        """Be told; the answer ends it."""
        self._subscribers.append(changed)

        def end() -> None:
            if changed in self._subscribers:
                self._subscribers.remove(changed)

        return end

    def mark(self, name: str) -> None:
        """Something changed."""
        self._names.add(name)
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._told + self._interval), self._tell)

    def close(self) -> None:
        """Tell nobody any more."""
        self._subscribers.clear()
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _tell(self) -> None:
        loop = asyncio.get_running_loop()
        self._due, self._told = None, loop.time()
        names, self._names = frozenset(self._names), set()
        for subscriber in tuple(self._subscribers):
            # Each on its own: what one of them raises does not keep the others from hearing.
            loop.call_soon(subscriber, names)
