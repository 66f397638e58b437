import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from ddconsole.core.clock import ScaledClock, SystemClock
from ddconsole.load.client import HttpStreamingClient, StreamError
from ddconsole.load.sse import EventSplitter

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, Serve

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(handler: Handler) -> AsyncIterator[str]:
    """A server of which the test says every byte."""
    answering: set[asyncio.Task[None]] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.add(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(begin, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
        await asyncio.gather(*answering)


async def read_request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    return head + await reader.readexactly(length)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


async def read_all(url: str, retried: list[int] | None = None) -> bytes:
    async with HttpStreamingClient(url, SystemClock()) as client:
        try:
            return b"".join([received async for _, received in client.stream({"x": 1})])
        finally:
            if retried is not None:
                retried.append(client.retried)


async def test_every_request_has_a_connection_of_its_own_and_says_so() -> None:
    heads: list[bytes] = []

    async def answer_and_keep_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await read_request(reader))
        writer.write(ANSWER + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with raw_server(answer_and_keep_open) as url, HttpStreamingClient(url, SystemClock()) as client:
        for _ in range(3):
            assert [data async for _, data in client.stream({"x": 1})] == [b"data: [DONE]\n\n"]
    assert len(heads) == 3
    for head in heads:
        assert b"connection: close" in head.lower()
        assert b"accept-encoding: identity" in head.lower()


async def test_a_connection_that_is_reset_before_the_first_byte_is_tried_once_more() -> None:
    tries: list[bytes] = []

    async def reset_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(await read_request(reader))
        if len(tries) == 1:
            reset(writer)
            return
        writer.write(ANSWER + chunk(b"data: kept\n\n") + b"0\r\n\r\n")
        await writer.drain()

    retried: list[int] = []
    async with raw_server(reset_first) as url:
        assert await read_all(url, retried) == b"data: kept\n\n"
    assert retried == [1]
    assert len(tries) == 2


async def test_a_server_that_closes_without_a_word_is_tried_once_more_and_then_said_so() -> None:
    tries: list[bytes] = []

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(await read_request(reader))

    async with raw_server(close) as url:
        with pytest.raises(StreamError, match="did not answer: Server disconnected, also on a second connection"):
            await read_all(url)
    assert len(tries) == 2


async def test_a_stream_that_breaks_off_is_not_asked_for_again() -> None:
    tries: list[bytes] = []

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(await read_request(reader))
        writer.write(ANSWER + chunk(b"data: one\n\n") + b"ff\r\ndata: tw")
        await writer.drain()

    retried: list[int] = []
    async with raw_server(cut) as url:
        with pytest.raises(StreamError, match="the answer broke off"):
            await read_all(url, retried)
    assert (len(tries), retried) == (1, [0])


async def test_where_nobody_listens_nothing_is_tried_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        retried: list[int] = []
        with pytest.raises(StreamError, match=f"no connection to {url}/v1/chat/completions: connection refused"):
            await read_all(url, retried)
    assert retried == [0]


async def test_a_connection_that_does_not_come_about_in_time_is_said_so() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for one in waiting:
                one.setblocking(False)
                one.connect_ex(address)
            clock = ScaledClock(scale=100.0, anchor=0.0)
            async with HttpStreamingClient(f"http://127.0.0.1:{address[1]}", clock, connect_timeout=20) as client:
                with pytest.raises(StreamError, match="within 20 s"):
                    await anext(client.stream({}))
        finally:
            for one in waiting:
                one.close()


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (
            400,
            '{"object":"error","message":"The input (60011 tokens) is longer"}',
            "HTTP 400: The input (60011 tokens)",
        ),
        (503, '{"error":{"message":"Loading model","code":503}}', "HTTP 503: Loading model"),
        (404, '{"detail":"Not Found"}', "HTTP 404: Not Found"),
        (500, "Internal \x1b[31mServer Error", r"HTTP 500: Internal \^\[\[31mServer Error"),
        (502, "", "HTTP 502: no text in the answer"),
    ],
)
async def test_a_refusal_is_told_in_the_servers_words(status: int, body: str, said: str) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(f"HTTP/1.1 {status} No\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
        await writer.drain()

    async with raw_server(refuse) as url:
        with pytest.raises(StreamError, match=said.replace("(", r"\(").replace(")", r"\)")):
            await read_all(url)


async def test_a_line_of_a_megabyte_comes_through(serve: "Serve") -> None:
    long = b"y" * (3 * 1024 * 1024)

    async def answer(exchange: "Exchange") -> None:
        await exchange.send(b"data: " + long + b"\n\ndata: [DONE]\n\n")

    server = await serve(answer)
    splitter = EventSplitter()
    events: list[bytes] = []
    async with HttpStreamingClient(server.url, SystemClock()) as client:
        async for _, received in client.stream({}):
            events += splitter.feed(received)
    assert events == [long, b"[DONE]"]


async def test_two_hundred_streams_at_once_wait_for_no_connection(serve: "Serve") -> None:
    all_there = asyncio.Event()

    async def answer(exchange: "Exchange") -> None:
        if exchange.number == 200:
            all_there.set()
        await all_there.wait()
        await exchange.send(b"data: [DONE]\n\n")

    server = await serve(answer)
    async with HttpStreamingClient(server.url, SystemClock()) as client:

        async def one() -> bytes:
            return b"".join([data async for _, data in client.stream({})])

        answers = await asyncio.gather(*(one() for _ in range(200)))
    assert answers == [b"data: [DONE]\n\n"] * 200
    assert max(server.running_at_begin) == 200


async def test_a_tokens_time_is_that_of_the_read_however_busy_the_loop_is() -> None:
    """Two streams get a chunk while the loop is blocked. Handling the first one takes 0.3 s: the second's is no later.

    Taken when its turn came, its time would be 0.3 s too late.
    """
    beginning, rest = asyncio.Barrier(3), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER + chunk(b"one"))
        await rest.wait()
        writer.write(chunk(b"two"))
        await writer.drain()
        await asyncio.sleep(1)
        writer.write(chunk(b"three") + b"0\r\n\r\n")
        await writer.drain()

    async with raw_server(answer) as url, HttpStreamingClient(url, SystemClock()) as client:

        async def read() -> float:
            second = 0.0
            async for at, received in client.stream({}):
                if received == b"one":
                    await beginning.wait()
                elif received == b"two":
                    second = at
                    time.sleep(0.3)  # noqa: ASYNC251  # what the loop is busy with
            return second

        readers = [asyncio.create_task(read()) for _ in range(2)]
        await beginning.wait()
        rest.set()
        # The server's tasks write in the next round of the loop; both sockets are ready when it looks at them again.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        time.sleep(0.1)  # noqa: ASYNC251  # as above
        one, other = await asyncio.gather(*readers)
    assert abs(one - other) < 0.15
