"""How fast what can wait may travel: beside commands and the journal, never before them."""

import asyncio
import time
from collections.abc import Awaitable, Callable

RATE = 256 * 1024
"""Bytes a second on the link at most."""
PIECE = 48 * 1024
"""Bytes on the link that one piece should be: what a command has to wait behind at most, 0.4 s at 1 Mbit/s."""
SMALLEST = 64 * 1024
LARGEST = 1024 * 1024
"""Bytes asked for at a time, before compression."""


class BackgroundPace:
    """Sizes pieces and pauses between them: never above the rate, and idle for as long as the link was busy.

    Args:
        rate: bytes a second.
        sleep: waits; for tests.
    """

    def __init__(self, rate: float = RATE, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._rate = rate
        self._sleep = sleep
        self._began = 0.0
        self.limit = SMALLEST
        """Bytes to ask for next."""
        self.sent = 0
        """Bytes that came over the link so far."""

    def begin(self) -> None:
        """A piece is asked for now."""
        self._began = time.monotonic()

    async def rest(self, sent: int, content: int) -> None:
        """A piece is here: pause.

        Args:
            sent: its bytes on the link.
            content: its bytes unpacked.
        """
        took = time.monotonic() - self._began
        self.sent += sent
        if sent and content:
            self.limit = min(max(int(PIECE * content / sent), SMALLEST), LARGEST)
        await self._sleep(max(took, sent / self._rate - took))
