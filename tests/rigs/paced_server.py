"""Answers that are known to the microsecond: `python paced_server.py` prints its port and serves until it is killed.

It streams chat and text completions at a pace of its own and keeps, for each request, when its last byte arrived (told
by the kernel) and when each chunk was written to the socket, with its tokens. `POST /mode` sets the pace and forgets
what was; `GET /truth` tells. One thread on bare sockets, so that it takes little of the machine that the load
generators are measured on.
"""

import heapq
import itertools
import json
import random
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

MODEL = "paced"
_TIMESTAMP_NS = 35
_TIMESPEC = struct.Struct("qq")
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass(frozen=True)
class Pace:
    """How answers are paced. Times in seconds."""

    first: float = 0.05
    gap: float = 0.01
    random_gaps: bool = False
    """Exponential gaps with the mean `gap`, else all the same."""
    most_tokens: int = 1
    """Tokens a chunk: from 1 to so many, at random."""
    close_after: float | None = None
    """So long after an answer a kept-alive connection is closed without a word; None is never."""


@dataclass
class Answered:
    """The truth of one request. Times are seconds of the monotonic clock."""

    arrived: float
    asked: int
    """Output tokens."""
    writes: list[tuple[float, int]] = field(default_factory=list)
    """When each chunk with text was written, and its tokens."""
    whole: bool = False


class Stream:
    """One answer."""

    def __init__(self, pace: Pace, answered: Answered, number: int, asked: dict[str, Any]) -> None:
        self.answered = answered
        self._pace = pace
        self._random = random.Random(number)
        self._chat = "messages" in asked
        self._counted = bool((asked.get("stream_options") or {}).get("continuous_usage_stats"))
        self._told = 0
        self.due = answered.arrived + pace.first

    def write(self, connection: socket.socket) -> bool:
        """The next chunk, and when the one after it is `due`; whether there is one."""
        tokens = min(self._random.randint(1, self._pace.most_tokens), self.answered.asked - self._told)
        head = b"" if self._told else _HEAD
        self._told += tokens
        events = [self._event(" x" * tokens, None, self._told if self._counted else None)]
        ended = self._told >= self.answered.asked
        if ended:
            events += [self._event("", "length", None), self._usage(), b"data: [DONE]\n\n"]
        data = b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in events)
        whole = head + data + (b"0\r\n\r\n" if ended else b"")
        at = time.monotonic()
        if connection.send(whole) != len(whole):
            raise BlockingIOError("the client does not read")
        self.answered.writes.append((at, tokens))
        self.answered.whole = ended
        gap = self._pace.gap
        self.due += self._random.expovariate(1 / gap) if self._pace.random_gaps else gap
        return not ended

    def _event(self, text: str, reason: str | None, counted: int | None) -> bytes:
        said = {"delta": {"role": None, "content": text, "reasoning_content": None}} if self._chat else {"text": text}
        choice = {"index": 0, **said, "logprobs": None, "finish_reason": reason}
        return self._sse([choice], None if counted is None else self._counts(counted))

    def _usage(self) -> bytes:
        return self._sse([], self._counts(self._told))

    def _counts(self, tokens: int) -> dict[str, int]:
        return {"prompt_tokens": 32, "completion_tokens": tokens, "total_tokens": 32 + tokens}

    def _sse(self, choices: list[Any], usage: dict[str, int] | None) -> bytes:
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        name = "84299009f446430c932048372da73961"
        data = {"id": name, "object": kind, "created": 1796009733, "model": MODEL, "choices": choices, "usage": usage}
        return b"data: " + json.dumps(data, separators=(",", ":")).encode() + b"\n\n"


class Peer:
    """One connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = b""
        self.arrived = 0.0
        self.requests = 0


class PacedServer:
    """Serves until it is killed."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._answers: list[Answered] = []
        self._numbers = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
        self._listener.setsockopt(socket.SOL_SOCKET, _TIMESTAMP_NS, 1)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ, None)
        self.port = int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """For ever."""
        while True:
            wait = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
            for key, _ in self._selector.select(wait):
                if key.data is None:
                    self._accept()
                else:
                    self._read(key.data)
            while self._due and self._due[0][0] <= time.monotonic():
                heapq.heappop(self._due)[2]()

    def _at(self, due: float, work: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due, next(self._numbers), work))

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, Peer(connection))

    def _drop(self, peer: Peer) -> None:
        if peer.connection.fileno() >= 0:
            self._selector.unregister(peer.connection)
            peer.connection.close()

    def _read(self, peer: Peer) -> None:
        try:
            received, ancillary, _, _ = peer.connection.recvmsg(1 << 20, 64)
        except BlockingIOError:
            return
        except OSError:
            received, ancillary = b"", []
        if not received:
            self._drop(peer)
            return
        peer.arrived = time.monotonic() - _age(ancillary)
        peer.received += received
        head, found, body = peer.received.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if not found or len(body) < length:
            return
        peer.received = body[length:]
        peer.requests += 1
        path = head.split(b" ", 2)[1].decode().partition("?")[0]
        asked = json.loads(body[:length]) if length else {}
        self._answer(peer, path, asked, keep=b"connection: close" not in lines)

    def _answer(self, peer: Peer, path: str, asked: dict[str, Any], *, keep: bool) -> None:
        if path in ("/v1/chat/completions", "/v1/completions"):
            tokens = int(asked.get("max_completion_tokens") or asked.get("max_tokens") or 16)
            answered = Answered(peer.arrived, tokens)
            self._answers.append(answered)
            if asked.get("stream"):
                stream = Stream(self._pace, answered, len(self._answers), asked)
                self._at(stream.due, lambda: self._go_on(peer, stream, keep=keep))
            else:
                usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
                message = {"role": "assistant", "content": "x"}
                choice = {"index": 0, "message": message, "text": "x", "finish_reason": "stop"}
                _say(peer, {"id": "x", "model": MODEL, "choices": [choice], "usage": usage})
        elif path == "/mode":
            self._pace, self._answers = Pace(**asked), []
            _say(peer, {})
        elif path == "/truth":
            _say(peer, [asdict(one) for one in self._answers])
        elif path == "/v1/models":
            card = {"id": MODEL, "object": "model", "root": MODEL, "max_model_len": 65536}
            _say(peer, {"object": "list", "data": [card]})
        else:
            _say(peer, {"status": "ok", "model_path": MODEL, "internal_states": [{}]})

    def _go_on(self, peer: Peer, stream: Stream, *, keep: bool) -> None:
        try:
            more = stream.write(peer.connection)
        except OSError:  # the client has gone
            self._drop(peer)
            return
        if more:
            self._at(stream.due, lambda: self._go_on(peer, stream, keep=keep))
        elif not keep:
            self._drop(peer)
        elif self._pace.close_after is not None:
            served = peer.requests
            self._at(time.monotonic() + self._pace.close_after, lambda: self._close_idle(peer, served))

    def _close_idle(self, peer: Peer, served: int) -> None:
        """Close it if no other request came meanwhile: one that is on its way now is lost."""
        if peer.requests == served and not peer.received:
            self._drop(peer)


def _say(peer: Peer, data: Any) -> None:
    body = json.dumps(data).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    peer.connection.settimeout(30)
    peer.connection.sendall(head.encode() + body)
    peer.connection.settimeout(0)


def _age(ancillary: list[tuple[int, int, bytes]]) -> float:
    """Seconds since what was read came in."""
    for _, kind, told in ancillary:
        if kind == _TIMESTAMP_NS:
            seconds, nanoseconds = _TIMESPEC.unpack(told)
            return max(0.0, time.time() - float(seconds + nanoseconds * 1e-9))
    return 0.0


def main() -> None:
    server = PacedServer()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    server.serve()


if __name__ == "__main__":
    main()
