"""One request on a connection of its own, and its answer as it arrives.

Straight on the socket: a task that waits for a stream reader costs more for a chunk than everything else together.
"""

import asyncio
import errno
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ddconsole.core.clock import Clock
from ddconsole.load.arrival import ArrivalTimes
from ddconsole.load.http_answer import BadAnswer, HttpAnswer
from ddconsole.load.server_error import error_of_answer

_LONGEST_REFUSAL = 64 * 1024
_IN_PROGRESS = (0, errno.EINPROGRESS, errno.EINTR)
_RESET = (errno.ECONNRESET, errno.EPIPE)
_OK = 200


class Receiver(Protocol):
    """Who takes what a request brings. Times are seconds of the monotonic clock."""

    def sent(self, at: float) -> None:
        """The request goes out."""
        ...

    def received(self, at: float, data: bytes) -> bool:
        """A piece of the answer's body has arrived; whether nothing more is wanted."""
        ...


class StreamError(Exception):
    """The request was refused, or its answer broke off. The text is for the operator."""


class NotConnected(Exception):
    """No connection came about. The text says why, without the address."""


class NoAnswer(Exception):
    """The connection ended before the first byte of an answer."""


@dataclass(frozen=True, slots=True)
class Address:
    """Where to connect to, as `getaddrinfo` tells it."""

    family: int
    socket_address: Any


class Connection:
    """Sends one request and reads its answer. Leave no instance without `close`.

    Args:
        address: the server's.
        clock: of all times.
        receiver: takes the body of an answer with status 200.
    """

    def __init__(self, address: Address, clock: Clock, receiver: Receiver) -> None:
        self._address = address
        self._clock = clock
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        self._socket = socket.socket(address.family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._times = ArrivalTimes(self._socket, clock)
        self._answer = HttpAnswer(self._take)
        self._at = 0.0
        self._answered = False
        self._refusal: list[bytes] = []
        self._refusal_length = 0
        self._unsent = memoryview(b"")
        self._connected: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def connect(self, request: bytes) -> None:
        """Connect and begin to send.

        Most connections stand at once, and the request goes out in the same turn of the loop: hundreds of them that
        begin together would otherwise wait for each other between the time of sending and the sending.

        Raises:
            NotConnected: the server or the network refused.
        """
        self._unsent = memoryview(request)
        began = self._clock.monotonic()
        error = self._socket.connect_ex(self._address.socket_address)
        if error not in _IN_PROGRESS:
            raise NotConnected(_words(OSError(error, os.strerror(error))))
        goes_out = self._clock.monotonic()
        self._write()
        # What waits for the server, or for the network, has been on its way from the beginning.
        self._receiver.sent(goes_out if self._connected.done() else began)
        if self._unsent and not self._ended.done():
            self._loop.add_writer(self._socket, self._writable)
        await self._connected

    async def read(self) -> None:
        """Until the answer has ended or its receiver wants no more.

        Raises:
            NoAnswer: not a byte came.
            StreamError: the server refused, or the answer broke off.
        """
        await self._ended

    def close(self) -> None:
        """Drop the connection, whatever is still on its way."""
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._socket.close()
        for future in (self._connected, self._ended):
            if not future.done():
                future.cancel()
            elif not future.cancelled():
                future.exception()  # nobody may be left to ask for it

    # --- sending -----------------------------------------------------------------------------------------------

    def _writable(self) -> None:
        if not self._connected.done():
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._not_connected(OSError(error, os.strerror(error)))
                return
        self._write()

    def _write(self) -> None:
        try:
            written = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return  # not connected yet, or the server does not read yet
        except OSError as problem:
            if not self._connected.done() and problem.errno not in _RESET:
                self._not_connected(problem)
                return
            written = len(self._unsent)  # the server reads no more: what it had to say is read all the same
        self._unsent = self._unsent[written:]
        if not self._unsent:
            self._loop.remove_writer(self._socket)
        if not self._connected.done():
            self._connected.set_result(None)
            self._loop.add_reader(self._socket, self._readable)

    def _not_connected(self, problem: OSError) -> None:
        self._loop.remove_writer(self._socket)
        self._connected.set_exception(NotConnected(_words(problem)))

    # --- reading -----------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        try:
            self._at, received = self._times.read()
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self._end(self._broken(_words(problem)))
            return
        if not received:
            self._end(None if self._answer.end() else self._broken("the server closed the connection"))
            return
        self._answered = True
        try:
            self._answer.feed(received)
        except BadAnswer as problem:
            self._end(StreamError(str(problem)))
            return
        except Exception as problem:  # noqa: BLE001  # a defect of the receiver: whoever waits must hear of it
            self._end(problem)
            return
        if self._answer.complete:
            self._end(None)

    def _take(self, piece: bytes) -> None:
        if self._answer.status != _OK:
            self._refusal.append(piece)
            self._refusal_length += len(piece)
            if self._refusal_length >= _LONGEST_REFUSAL:
                self._end(None)
        elif not self._ended.done() and self._receiver.received(self._at, piece):
            self._end(None)

    def _broken(self, why: str) -> Exception:
        if not self._answered:
            return NoAnswer(why)
        if self._answer.status not in (0, _OK):
            return self._refused()
        return StreamError(f"the answer broke off: {why}")

    def _refused(self) -> StreamError:
        text = b"".join(self._refusal)[:_LONGEST_REFUSAL].decode("utf-8", "replace")
        return StreamError(error_of_answer(self._answer.status, text))

    def _end(self, problem: Exception | None) -> None:
        if self._ended.done():
            return
        self._loop.remove_reader(self._socket)
        if problem is None and self._answer.status != _OK:
            problem = self._refused()
        if problem is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(problem)


async def addresses_of(host: str, port: int) -> Sequence[Address]:
    """Every address of a host.

    Raises:
        OSError: its name is not known.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [Address(family, address) for family, _, _, _, address in found]


def _words(problem: OSError) -> str:
    """As the operator reads it."""
    if problem.errno == errno.ECONNREFUSED:
        return "connection refused"
    return str(problem) or type(problem).__name__
