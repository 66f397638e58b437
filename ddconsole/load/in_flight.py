"""How many requests were in flight."""


class InFlight:
    """Integrates the number of requests in flight over time, from their beginnings and ends as they happen."""

    def __init__(self) -> None:
        self._running = 0
        self._sent = 0
        self._ended = 0
        self._integral = 0.0
        self._at: float | None = None
        self._first_sent = 0.0
        self._last_sent = 0.0
        self._integral_at_last_sent = 0.0
        self._ended_before_last_sent = 0

    def sent(self, at: float) -> None:
        """A request was sent at the monotonic time `at`."""
        if self._at is None:
            self._first_sent = at
        self._advance(at)
        self._running += 1
        self._sent += 1
        self._last_sent = at
        self._integral_at_last_sent = self._integral
        self._ended_before_last_sent = self._ended

    def ended(self, at: float) -> None:
        """A request ended at the monotonic time `at`."""
        self._advance(at)
        self._running -= 1
        self._ended += 1

    @property
    def while_sending(self) -> float | None:
        """Mean requests in flight from the first sending to the last; None while none was sent after another's end."""
        seconds = self._last_sent - self._first_sent
        if not self._ended_before_last_sent or seconds <= 0:
            return None
        return self._integral_at_last_sent / seconds

    @property
    def sending_rate(self) -> float | None:
        """Requests sent a second, from the first sending to the last; None while there is no time between them."""
        seconds = self._last_sent - self._first_sent
        return (self._sent - 1) / seconds if self._sent > 1 and seconds > 0 else None

    def _advance(self, at: float) -> None:
        if self._at is not None:
            self._integral += self._running * (at - self._at)
        self._at = at
