"""When bytes came off the socket: the time is taken there, and not when the task that waits for them gets its turn.

With many streams ready at once, the last one's turn comes after all others were parsed: milliseconds at 500 streams.
"""

import asyncio
import functools

import aiohttp
from aiohttp.client_proto import ResponseHandler

from ddconsole.core.clock import Clock


class StampingHandler(ResponseHandler):
    """aiohttp's protocol of one connection, with the time of the last read."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        super().__init__(loop=loop)
        self._clock = clock
        self.read_at: float | None = None
        """Seconds of the monotonic clock; None before the first read."""

    def data_received(self, data: bytes) -> None:
        """As the library's; called right after the read."""
        if data:
            self.read_at = self._clock.monotonic()
        super().data_received(data)


class StampingConnector(aiohttp.TCPConnector):
    """Connections of which each is used once, without a limit to their number."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(limit=0, force_close=True)
        # No public way leads to the handler's class; the cap on aiohttp's version stands for this too.
        self._factory = functools.partial(StampingHandler, clock=clock, loop=self._loop)  # type: ignore[assignment]


def handler_of(response: aiohttp.ClientResponse) -> StampingHandler | None:
    """The handler of a response whose body has not ended; None when everything came with its head."""
    protocol = response.connection.protocol if response.connection is not None else None
    return protocol if isinstance(protocol, StampingHandler) else None
