"""A TCP proxy before a real sshd: it counts bytes and cuts, silences, freezes, slows or delays what goes through it."""

import asyncio
import contextlib
import socket
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum

_PIECE = 16 * 1024
_FROM_CLIENT, _FROM_SERVER = 0, 1


class Cut(StrEnum):
    """How a link ends."""

    RESET = "reset"
    """Both sides get a RST at once."""
    SILENT = "silent drop"
    """Packets vanish, as when a laptop sleeps or a NAT forgets; new connections get no answer either."""


@dataclass
class CutProxy:
    """Listens on `port` and carries to `target`. Bytes are counted over its whole life, both ways apart."""

    target: int
    port: int = 0
    counted: list[int] = field(default_factory=lambda: [0, 0])
    """From the client, from the server."""
    delay: float = 0.0
    """Seconds each way."""
    rate: float | None = None
    """Bytes a second each way, as on a slow line; None: as fast as it goes."""
    connections: int = 0
    when: Callable[["CutProxy"], bool] | None = None
    """Asked before each piece is carried; at the first true answer `then` happens, once, and the piece is lost."""
    then: Callable[[], None] = field(default=lambda: None)
    cuts: int = 0
    _silent: bool = False
    _thawed: asyncio.Event = field(default_factory=asyncio.Event)
    _forgotten: set[asyncio.StreamWriter] = field(default_factory=set)
    _refusing: bool = False
    _pairs: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._thawed.set()

    def freeze(self) -> None:
        """Nothing is carried, nothing is lost, new connections wait: as before a peer that stands still."""
        self._thawed.clear()

    def thaw(self) -> None:
        """What waited is carried."""
        self._thawed.set()

    def forget(self) -> None:
        """End a silence for new connections only: what the old ones send vanishes for ever, as behind a NAT."""
        self._silent = False
        self._forgotten.update(writer for pair in self._pairs for writer in pair)

    def cut(self, how: Cut) -> None:
        """End every connection, now."""
        self.cuts += 1
        if how is Cut.SILENT:
            self._silent = True
            return
        for pair in self._pairs:
            for writer in pair:
                _reset(writer)
        self._pairs.clear()

    def mend(self) -> None:
        """New connections go through again; those that were silenced stay lost, as their packets are."""
        if self._silent:
            self._silent = False
            for pair in self._pairs:
                for writer in pair:
                    _reset(writer)
            self._pairs.clear()

    @property
    def total(self) -> int:
        """Bytes both ways."""
        return sum(self.counted)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["CutProxy"]:
        """Carry for as long as the context lasts."""
        server = await asyncio.start_server(self._take, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for pair in self._pairs:
                for writer in pair:
                    writer.transport.abort()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self._silent:
            await asyncio.sleep(0.02)
            if writer.is_closing():
                return
        await self._thawed.wait()
        try:
            to_server = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(writer)
            return
        self._pairs.append((writer, to_server[1]))
        self._start(self._carry(reader, to_server[1], _FROM_CLIENT))
        self._start(self._carry(to_server[0], writer, _FROM_SERVER))

    def _start(self, work: "asyncio._CoroutineLike[None]") -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)  # type: ignore[arg-type]  # a coroutine makes a task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: int) -> None:
        line: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(64)
        self._start(self._deliver(line, writer))
        with contextlib.suppress(OSError):
            while data := await reader.read(_PIECE):
                if self._silent or writer in self._forgotten:
                    continue
                self.counted[way] += len(data)
                if self.rate is not None:
                    await asyncio.sleep(len(data) / self.rate)
                if self.when is not None and self.when(self):
                    # What was to be carried is lost with the link.
                    self.when, then = None, self.then
                    then()
                    continue
                await line.put((time.monotonic() + self.delay, data))
        await line.put((0.0, b""))

    async def _deliver(self, line: "asyncio.Queue[tuple[float, bytes]]", writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = await line.get()
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._thawed.wait()
                if self._silent or writer in self._forgotten:
                    continue
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a RST instead of a FIN."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
