"""The streaming client: one POST, and its answer as bytes with the time at which each piece arrived."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from ddconsole.core.clock import Clock
from ddconsole.load.arrival import stamp_arrivals
from ddconsole.load.connection import (
    Address,
    Connection,
    NoAnswer,
    NotConnected,
    Receiver,
    StreamError,
    addresses_of,
)

CHAT_COMPLETIONS = "/v1/chat/completions"
CONNECT_TIMEOUT = 10.0
"""Seconds until a connection that does not come about counts as failed."""


class StreamingClient(Protocol):
    """What the workloads send requests with."""

    retried: int
    """Requests sent a second time because the connection was reset before the first byte of the answer."""

    async def stream(self, body: Mapping[str, Any], receiver: Receiver) -> None:
        """POST `body`, until the answer has ended or its receiver wants no more.

        Raises:
            StreamError: it was refused or broke.
        """
        ...


class HttpStreamingClient:
    """The real one.

    Every request has a connection of its own: servers close kept-alive connections when they please, and a request
    that was written into such a close is lost. The number of connections is not limited; requests wait nowhere here.
    A time limit for the whole request is the caller's, who must also be able to end it for other reasons.

    Args:
        base_url: `http://127.0.0.1:PORT`.
        clock: stamps the reads.
        connect_timeout: seconds of `clock`.

    Raises:
        ValueError: the address is none of plain HTTP.
    """

    def __init__(self, base_url: str, clock: Clock, connect_timeout: float = CONNECT_TIMEOUT) -> None:
        self._url = base_url.rstrip("/") + CHAT_COMPLETIONS
        parts = urlsplit(self._url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{base_url!r} is no address of a server → http://HOST:PORT")
        self._host, self._port = parts.hostname, parts.port or 80
        self._head = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUser-Agent: ddconsole\r\n"
            "Accept: text/event-stream\r\nAccept-Encoding: identity\r\nConnection: close\r\n"
            "Content-Type: application/json\r\nContent-Length: "
        ).encode()
        stamp_arrivals()
        self._clock = clock
        self._connect_timeout = connect_timeout
        self._addresses: Sequence[Address] = ()
        self.retried = 0

    async def stream(self, body: Mapping[str, Any], receiver: Receiver) -> None:
        """As `StreamingClient.stream`."""
        payload = json.dumps(body).encode()
        request = b"%b%d\r\n\r\n%b" % (self._head, len(payload), payload)
        try:
            await self._exchange(request, receiver)
        except NoAnswer:
            self.retried += 1
        else:
            return
        try:
            await self._exchange(request, receiver)
        except NoAnswer as problem:
            raise StreamError(f"{self._url} did not answer: {problem}, also on a second connection") from problem

    async def _exchange(self, request: bytes, receiver: Receiver) -> None:
        connection = await self._connected(request, receiver)
        try:
            await connection.read()
        finally:
            connection.close()

    async def _connected(self, request: bytes, receiver: Receiver) -> Connection:
        """On the first of the host's addresses that takes it."""
        refused = "the name has no address"
        for address in await self._known_addresses():
            connection = Connection(address, self._clock, receiver)
            limit = asyncio.timeout(self._clock.real_seconds(self._connect_timeout))
            try:
                async with limit:
                    await connection.connect(request)
            except NotConnected as problem:
                connection.close()
                refused = str(problem)
            except BaseException as problem:
                connection.close()
                if isinstance(problem, TimeoutError) and limit.expired():
                    late = f"no connection to {self._url} within {self._connect_timeout:g} s"
                    raise StreamError(late) from problem
                raise
            else:
                return connection
        raise StreamError(f"no connection to {self._url}: {refused}")

    async def _known_addresses(self) -> Sequence[Address]:
        if not self._addresses:
            try:
                self._addresses = await addresses_of(self._host, self._port)
            except OSError as problem:
                raise StreamError(f"no connection to {self._url}: {problem}") from problem
        return self._addresses
