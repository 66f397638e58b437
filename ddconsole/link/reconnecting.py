"""How long to wait before the next try of a lost link."""

import random

_FIRST = 1.0
_LONGEST = 30.0


class Backoff:
    """1, 2, 4 .. 30 seconds, each up to a fifth shorter or longer, so that many consoles do not come at once."""

    def __init__(self) -> None:
        self._next = _FIRST

    def reset(self) -> None:
        """The link was good."""
        self._next = _FIRST

    def delay(self) -> float:
        """Seconds until the next try."""
        delay = self._next
        self._next = min(2 * self._next, _LONGEST)
        return delay * random.uniform(0.8, 1.2)
