import asyncio
import itertools
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from load_runs import Kept, answer_of
from raw_server import ANSWER, chunk, raw_server, read_request

from ddconsole.core.clock import ScaledClock, SystemClock
from ddconsole.load.client import HttpStreamingClient
from ddconsole.load.connection import StreamError, addresses_of
from ddconsole.load.http_answer import HttpAnswer
from ddconsole.load.sse import EventSplitter

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, Serve


def reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    writer.transport.abort()


async def read_all(url: str, retried: list[int] | None = None) -> bytes:
    client = HttpStreamingClient(url, SystemClock())
    try:
        return await answer_of(client)
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

    async with raw_server(answer_and_keep_open) as url:
        client = HttpStreamingClient(url, SystemClock())
        for _ in range(3):
            assert await answer_of(client) == b"data: [DONE]\n\n"
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
        with pytest.raises(StreamError, match="did not answer: the server closed the connection, also on a second"):
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
        with pytest.raises(StreamError, match="the answer broke off: the server closed the connection"):
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
            client = HttpStreamingClient(f"http://127.0.0.1:{address[1]}", clock, connect_timeout=20)
            with pytest.raises(StreamError, match="within 20 s"):
                await answer_of(client)
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
    kept = Kept()
    await HttpStreamingClient(server.url, SystemClock()).stream({}, kept)
    assert [event for _, received in kept.pieces for event in splitter.feed(received)] == [long, b"[DONE]"]


async def test_two_hundred_streams_at_once_wait_for_no_connection(serve: "Serve") -> None:
    all_there = asyncio.Event()

    async def answer(exchange: "Exchange") -> None:
        if exchange.number == 200:
            all_there.set()
        await all_there.wait()
        await exchange.send(b"data: [DONE]\n\n")

    server = await serve(answer)
    client = HttpStreamingClient(server.url, SystemClock())
    answers = await asyncio.gather(*(answer_of(client) for _ in range(200)))
    assert answers == [b"data: [DONE]\n\n"] * 200
    assert max(server.running_at_begin) == 200


# --- what servers do -------------------------------------------------------------------------------------------


async def answered(raw: bytes) -> bytes:
    """What the client makes of `raw`, after which the server closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(raw)
        await writer.drain()

    async with raw_server(answer) as url:
        return await read_all(url)


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nTrailer: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Encoding: identity\r\n\r\nhello and more",
    ],
)
async def test_every_way_in_which_a_body_ends(raw: bytes) -> None:
    assert await answered(raw) == b"hello"


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "the answer broke off: the server closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "the answer broke off: the server closed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "the answer is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b", r"compressed \(gzip\)"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 50_000, "the head of the answer is longer than 64 KiB"),
        (b"HTTP/1.1 503 No\r\nContent-Length: 999\r\n\r\nnot ready", "HTTP 503: not ready"),
    ],
)
async def test_an_answer_that_cannot_be_read_is_said_so(raw: bytes, said: str) -> None:
    with pytest.raises(StreamError, match=said):
        await answered(raw)


async def test_a_refusal_that_comes_before_all_of_the_request_was_read() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 No\r\nContent-Length: 8\r\n\r\ntoo long")
        await writer.drain()
        await reader.read(1 << 20)

    async with raw_server(refuse) as url:
        with pytest.raises(StreamError, match="HTTP 413: too long"):
            await HttpStreamingClient(url, SystemClock()).stream({"x": "y" * 20_000_000}, Kept())


async def test_a_server_on_ipv6() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_request(reader)
        assert b"Host: [::1]:" in head
        writer.write(ANSWER + chunk(b"six") + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "::1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await answer_of(HttpStreamingClient(f"http://[::1]:{port}", SystemClock())) == b"six"


async def test_of_a_name_with_two_addresses_the_one_that_listens_is_found() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER + chunk(b"four") + b"0\r\n\r\n")
        await writer.drain()

    async with raw_server(answer) as url:
        client = HttpStreamingClient(url, SystemClock())
        port = int(url.rsplit(":", 1)[1])
        client._addresses = [*await addresses_of("::1", port), *await addresses_of("127.0.0.1", port)]
        assert await answer_of(client) == b"four"


async def test_a_request_that_is_given_up_leaves_no_connection() -> None:
    gone = asyncio.Event()

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER + chunk(b"one"))
        await writer.drain()
        with suppress(ConnectionError):
            await reader.read()
        gone.set()

    async with raw_server(endless) as url:
        kept = Kept()
        running = asyncio.create_task(HttpStreamingClient(url, SystemClock()).stream({}, kept))
        while not kept.pieces:  # noqa: ASYNC110  # the product has no event for it
            await asyncio.sleep(0.005)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(gone.wait(), 30)


async def test_a_defect_of_the_receiver_reaches_whoever_waits() -> None:
    class Broken(Kept):
        def received(self, at: float, data: bytes) -> bool:
            raise RuntimeError(f"a defect at {at} in {data!r}")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(ANSWER + chunk(b"one"))
        await writer.drain()
        await reader.read()

    async with raw_server(answer) as url:
        with pytest.raises(RuntimeError, match="a defect"):
            await HttpStreamingClient(url, SystemClock()).stream({}, Broken())


@pytest.mark.parametrize("url", ["https://127.0.0.1:1", "127.0.0.1:1", "http://"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="→ http://HOST:PORT"):
        HttpStreamingClient(url, SystemClock())


_ANSWERS = st.sampled_from(
    [
        ANSWER + chunk(b"data: one\n\n") + chunk(b"data: two\n\n") + b"0\r\n\r\n",
        b"HTTP/1.1 102 Wait\r\n\r\n" + ANSWER + chunk(b"x" * 300) + b"0\r\nA: b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n01234567890123456789",
        b"HTTP/1.0 200 OK\r\n\r\nuntil it closes",
        b"HTTP/1.1 429 Slow\r\nContent-Length: 4\r\n\r\nslow",
    ]
)


@given(_ANSWERS, st.lists(st.integers(0, 400), max_size=40))
def test_where_an_answer_is_cut_changes_nothing(raw: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cut for cut in cuts if cut < len(raw)), len(raw)]

    def read(pieces: list[bytes]) -> tuple[int, bytes, bool]:
        body: list[bytes] = []
        answer = HttpAnswer(body.append)
        for piece in pieces:
            answer.feed(piece)
        return answer.status, b"".join(body), answer.end()

    pieces = [raw[begin:end] for begin, end in itertools.pairwise(places)]
    assert read([one for one in pieces if one]) == read([raw]) == read([raw[at : at + 1] for at in range(len(raw))])
