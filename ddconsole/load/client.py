"""The streaming client: one POST, and its answer as bytes with the time at which each piece was read."""

import asyncio
import errno
import json
from collections.abc import AsyncGenerator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

import aiohttp

from ddconsole.core.clock import Clock
from ddconsole.load.read_times import StampingConnector, handler_of
from ddconsole.load.server_error import error_of_answer

CHAT_COMPLETIONS = "/v1/chat/completions"
CONNECT_TIMEOUT = 10.0
"""Seconds until a connection that does not come about counts as failed."""
_LONGEST_REFUSAL = 64 * 1024
_HEADERS = {"Content-Type": "application/json", "Accept": "text/event-stream", "Accept-Encoding": "identity"}


class StreamError(Exception):
    """The request was refused, or its answer broke off. The text is for the operator."""


class StreamingClient(Protocol):
    """What the workloads send requests with."""

    retried: int
    """Requests sent a second time because the connection was reset before the first byte of the answer."""

    def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[tuple[float, bytes], None]:
        """POST `body` and yield (monotonic time of the read, bytes) until the answer ends.

        Raises:
            StreamError: it was refused or broke.
        """
        ...


class HttpStreamingClient:
    """The real one. Use it as an asynchronous context manager.

    Every request has a connection of its own: servers close kept-alive connections when they please, and a request
    that was written into such a close is lost. The number of connections is not limited; requests wait nowhere here.
    A time limit for the whole request is the caller's, who must also be able to end it for other reasons.

    Args:
        base_url: `http://127.0.0.1:PORT`.
        clock: stamps the reads.
        connect_timeout: seconds of `clock`.
    """

    def __init__(self, base_url: str, clock: Clock, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        self._url = base_url.rstrip("/") + CHAT_COMPLETIONS
        self._clock = clock
        self._connect_timeout = connect_timeout
        self._session: aiohttp.ClientSession | None = None
        self.retried = 0

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=StampingConnector(self._clock),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=self._clock.real_seconds(self._connect_timeout)),
            headers=_HEADERS,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            # Closed transports say goodbye in the loop's next round; a loop that ends before it would complain.
            await asyncio.sleep(0)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[tuple[float, bytes], None]:
        """As `StreamingClient.stream`."""
        response = await self._open(json.dumps(body).encode())
        try:
            if response.status != 200:
                text = (await response.content.read(_LONGEST_REFUSAL)).decode("utf-8", "replace")
                raise StreamError(error_of_answer(response.status, text))
            handler = handler_of(response)
            async for received in response.content.iter_any():
                at = handler.read_at if handler is not None else None
                yield self._clock.monotonic() if at is None else at, received
        except (aiohttp.ClientError, OSError) as problem:
            raise StreamError(f"the answer broke off: {_words(problem)}") from problem
        finally:
            response.close()

    async def _open(self, payload: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._post(payload)
        except (aiohttp.ClientError, OSError) as problem:
            if not _reset_before_answer(problem):
                raise StreamError(self._unreachable(problem)) from problem
        self.retried += 1
        try:
            return await self._post(payload)
        except (aiohttp.ClientError, OSError) as problem:
            raise StreamError(f"{self._unreachable(problem)}, also on a second connection") from problem

    async def _post(self, payload: bytes) -> aiohttp.ClientResponse:
        assert self._session is not None, "the client is an asynchronous context manager"
        return await self._session.post(self._url, data=payload, allow_redirects=False)

    def _unreachable(self, problem: Exception) -> str:
        if isinstance(problem, aiohttp.ServerTimeoutError):
            return f"no connection to {self._url} within {self._connect_timeout:g} s"
        if isinstance(problem, aiohttp.ClientConnectorError):
            return f"no connection to {self._url}: {_words(problem.os_error)}"
        return f"{self._url} did not answer: {_words(problem)}"


def _reset_before_answer(problem: Exception) -> bool:
    if isinstance(problem, aiohttp.ClientConnectorError):
        return False  # refused: nobody was there
    if isinstance(problem, aiohttp.ServerDisconnectedError | ConnectionResetError | BrokenPipeError):
        return True
    return isinstance(problem, OSError) and problem.errno in (errno.ECONNRESET, errno.EPIPE)


def _words(problem: Exception) -> str:
    """The library's words, without asyncio's repetition of the address."""
    if isinstance(problem, OSError) and problem.errno == errno.ECONNREFUSED:
        return "connection refused"
    return str(problem) or type(problem).__name__
