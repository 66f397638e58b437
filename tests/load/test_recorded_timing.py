"""Streams of SGLang on an H200, replayed as they came: the figures are those of the recording's own times.

What is expected is worked out from the recorded text by regular expressions, not by the product's readers.
"""

import asyncio
import itertools
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from ddconsole.core.clock import SystemClock
from ddconsole.core.figures import end_to_end, output_rate, time_per_output_token, time_to_first_token
from ddconsole.load.chat_stream import ChatStream, RequestIdentity
from ddconsole.load.client import HttpStreamingClient

if TYPE_CHECKING:
    from tests.load.conftest import Recording

Recorded = Callable[[str], "Recording"]

STREAMS = ["reasoning", "spec-ngram", "spec-eagle", "spec-standalone"]
_TEXT = re.compile(rb'"(?:reasoning_)?content":"(?!")')
_END = re.compile(rb'"finish_reason":"')
_TOKENS = re.compile(rb'"completion_tokens":(\d+)')


@dataclass(frozen=True)
class Expected:
    """The figures of a stream, from the times of its pieces."""

    ttft: float
    end_to_end: float
    rate: float
    gaps: tuple[float, ...]


def expected(pieces: list[tuple[float, bytes]], sent: float) -> Expected:
    texts = [(at, len(_TEXT.findall(data))) for at, data in pieces if _TEXT.search(data)]
    first, with_first = texts[0]
    last = next(at for at, data in pieces if _END.search(data))
    tokens = int(_TOKENS.findall(b"".join(data for _, data in pieces))[-1])
    times = [at for at, chunks in texts for _ in range(chunks)]
    gaps = tuple(later - earlier for earlier, later in itertools.pairwise(times))
    return Expected(first - sent, last - sent, (tokens - with_first) / (last - first), gaps)


def stream_of(recording: Recorded, name: str) -> tuple[list[tuple[float, bytes]], ChatStream]:
    recorded = recording(f"sglang-0.5.16-{name}")
    asked = int(recorded.request["max_tokens"])
    return recorded.reads, ChatStream(RequestIdentity(0, 0, "x", 0, 0), 0.0, asked, fixed_length=True)


@pytest.mark.parametrize("name", STREAMS)
def test_figures_of_a_recorded_stream_are_those_of_its_times(recording: Recorded, name: str) -> None:
    reads, stream = stream_of(recording, name)
    for at, data in reads:
        stream.feed(at, data)
    record = stream.record(reads[-1][0])
    wanted = expected(reads, 0.0)
    assert time_to_first_token(record) == pytest.approx(wanted.ttft, abs=1e-9)
    assert end_to_end(record) == pytest.approx(wanted.end_to_end, abs=1e-9)
    assert output_rate(record) == pytest.approx(wanted.rate, rel=1e-9)
    assert time_per_output_token(record) == pytest.approx(1 / wanted.rate, rel=1e-9)
    assert [gap / 1e6 for gap in record.chunk_gaps_us] == pytest.approx(list(wanted.gaps), abs=1e-6)


class Replay:
    """Writes the pieces of a recording at their times, and keeps when it did: before and after each write."""

    def __init__(self, reads: list[tuple[float, bytes]], listener: socket.socket) -> None:
        self._reads = reads
        self._listener = listener
        self.written: list[tuple[float, float]] = []

    def run(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            asked = b""
            while b"\r\n\r\n" not in asked:
                asked += connection.recv(65536)
            began = time.monotonic()
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at, data in self._reads:
                time.sleep(max(0.0, began + at - time.monotonic()))
                before = time.monotonic()
                connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))
                self.written.append((before, time.monotonic()))
            connection.sendall(b"0\r\n\r\n")


def between(reads: list[tuple[float, bytes]]) -> list[float]:
    """Seconds from each piece of a recording to the next; nothing comes after the last."""
    return [later - earlier for (earlier, _), (later, _) in itertools.pairwise([*reads, (math.inf, b"")])]


@contextmanager
def replaying(reads: list[tuple[float, bytes]]) -> Iterator[tuple[Replay, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        replay = Replay(reads, listener)
        thread = threading.Thread(target=replay.run)
        thread.start()
        try:
            yield replay, f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join(30)


class Timed:
    """Hands what comes to a stream, and keeps the times."""

    def __init__(self, stream: ChatStream) -> None:
        self._stream = stream
        self.sent_at = 0.0
        self.pieces: list[tuple[float, bytes]] = []

    def sent(self, at: float) -> None:
        self.sent_at = at
        self._stream.sent(at)

    def received(self, at: float, data: bytes) -> bool:
        self.pieces.append((at, data))
        self._stream.feed(at, data)
        return self._stream.finished


@pytest.mark.parametrize("name", STREAMS)
def test_a_replayed_stream_is_timed_as_it_was_written(recording: Recorded, name: str) -> None:
    """Each piece's time lies between the begin and the end of the write that sent it, a millisecond aside."""
    reads, stream = stream_of(recording, name)
    timed = Timed(stream)
    with replaying(reads) as (replay, url):
        asyncio.run(HttpStreamingClient(url, SystemClock()).stream({"x": 1}, timed))
    record = stream.record(time.monotonic())
    assert [data for _, data in timed.pieces] == [data for _, data in reads][: len(timed.pieces)]
    times = [at for at, _ in timed.pieces]
    # Pieces that came in one read have the last one's time.
    alone = [
        (at, *written)
        for at, after, written in zip(times, [*times[1:], 0.0], replay.written, strict=False)
        if at != after
    ]
    assert len(alone) > len([gap for gap in between(reads) if gap > 0.002]) // 2
    assert [one for one in alone if not one[1] - 0.001 <= one[0] <= one[2] + 0.001] == []
    wanted = expected(timed.pieces, timed.sent_at)
    assert time_to_first_token(record) == pytest.approx(wanted.ttft, abs=1e-9)
    assert output_rate(record) == pytest.approx(wanted.rate, rel=1e-9)
