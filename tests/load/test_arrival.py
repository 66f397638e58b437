"""When a token has arrived: the kernel says so, however late it is read."""

import asyncio
import socket
import struct
import time
from typing import cast

from load_runs import Kept
from raw_server import ANSWER, chunk, raw_server, read_request

from ddconsole.core.clock import ScaledClock, SystemClock
from ddconsole.load.arrival import ArrivalTimes
from ddconsole.load.client import HttpStreamingClient


class Busy(Kept):
    """Keeps the event loop for 0.3 s whenever the second chunk comes."""

    def received(self, at: float, data: bytes) -> bool:
        if data == b"two":
            time.sleep(0.3)
        return super().received(at, data)


async def test_a_tokens_time_is_that_of_its_arrival_however_busy_the_loop_is() -> None:
    """Two streams get a chunk while the loop is blocked for 0.1 s, and handling the first one takes another 0.3 s."""
    beginning, rest = asyncio.Barrier(3), asyncio.Event()
    wrote: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER + chunk(b"one"))
        await beginning.wait()
        await rest.wait()
        wrote.append(time.monotonic())
        writer.write(chunk(b"two"))
        await writer.drain()
        await asyncio.sleep(1)
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async with raw_server(answer) as url:
        client = HttpStreamingClient(url, SystemClock())
        streams = [Busy(), Busy()]
        readers = [asyncio.create_task(client.stream({}, stream)) for stream in streams]
        await beginning.wait()
        rest.set()
        # The server's tasks write in the next round of the loop; both sockets are ready when it looks at them again.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251  # what the loop is busy with
        await asyncio.gather(*readers)
    arrived = [at for stream in streams for at, data in stream.pieces if data == b"two"]
    assert len(arrived) == 2
    assert all(-0.001 < at - written < 0.05 for at, written in zip(sorted(arrived), sorted(wrote), strict=True))


async def test_of_a_scaled_clock_the_arrival_is_scaled_too() -> None:
    clock = ScaledClock(scale=50.0, anchor=0.0)
    wrote: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        wrote.append(clock.monotonic())
        writer.write(ANSWER + chunk(b"one") + b"0\r\n\r\n")
        time.sleep(0.1)  # noqa: ASYNC251  # the client's loop too: its read is 5 s of this clock late
        await reader.read()

    kept = Kept()
    async with raw_server(answer) as url:
        client = HttpStreamingClient(url, clock)
        await asyncio.sleep(0.1)  # until the kernel does it
        await client.stream({}, kept)
    assert kept.sent_at[0] <= wrote[0]
    assert -0.05 < kept.pieces[0][0] - wrote[0] < 2.5


class LateSocket:
    """Reads that came in at times of the test's own, as the kernel tells them."""

    def __init__(self, ages: list[float]) -> None:
        self._ages = iter(ages)

    def setsockopt(self, *_: int) -> None: ...

    def recvmsg(self, *_: int) -> tuple[bytes, list[tuple[int, int, bytes]], int, None]:
        nanoseconds = time.time_ns() - round(next(self._ages) * 1e9)
        return b"x", [(socket.SOL_SOCKET, 35, struct.pack("qq", *divmod(nanoseconds, 10**9)))], 0, None


def test_a_wall_clock_that_is_set_makes_no_token_older_than_the_read_before() -> None:
    """Set ahead by an hour, a read looks an hour old; set back by one, it looks as if it were to come."""
    times = ArrivalTimes(cast("socket.socket", LateSocket([0.0, 3600.0, -3600.0])), SystemClock())
    began = time.monotonic()
    first, ahead, back = (times.read()[0] for _ in range(3))
    assert began - 0.001 <= first <= ahead <= back <= time.monotonic()
