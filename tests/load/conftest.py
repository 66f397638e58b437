"""Recorded streams, and a server that streams what a test tells it to."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.load.task import LoadTask, Prompt

FIXTURES = Path(__file__).parent.parent / "fixtures" / "load"
Answer = Callable[["Exchange"], Awaitable[None]]


@dataclass
class Recording:
    """One recorded stream."""

    request: Mapping[str, Any]
    reads: list[tuple[float, bytes]]

    @property
    def whole(self) -> bytes:
        return b"".join(read for _, read in self.reads)


@pytest.fixture
def recording() -> Callable[[str], Recording]:
    return read_recording


def read_recording(name: str) -> Recording:
    head, *lines = (FIXTURES / f"{name}.jsonl").read_text().splitlines()
    reads = [json.loads(line) for line in lines]
    timed = [(number * 0.01 if at is None else at, text.encode()) for number, (at, text) in enumerate(reads, start=1)]
    return Recording(json.loads(head)["request"], timed)


def event(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def text_event(text: str) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


ROLE = event({"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]})
DONE = b"data: [DONE]\n\n"


def ending(tokens: int | None, reason: str = "length") -> bytes:
    """Finish reason, usage unless `tokens` is None, `[DONE]`."""
    last = event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + (tokens or 0)}
    return last + (b"" if tokens is None else event({"choices": [], "usage": usage})) + DONE


@dataclass
class Exchange:
    """One request that the server is answering."""

    number: int
    body: Mapping[str, Any]
    _request: web.Request
    _response: web.StreamResponse | None = None

    @property
    def first_words(self) -> str:
        """The beginning of the last message."""
        return str(self.body["messages"][-1]["content"])[:40]

    async def send(self, data: bytes) -> None:
        if self._response is None:
            self._response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await self._response.prepare(self._request)
        await self._response.write(data)

    async def send_tokens(self, tokens: int, per_chunk: int = 1) -> None:
        await self.send(ROLE)
        for begin in range(0, tokens, per_chunk):
            await self.send(text_event("x " * min(per_chunk, tokens - begin)))
            await asyncio.sleep(0)
        await self.send(ending(tokens))

    def cut(self) -> None:
        """Reset the connection."""
        transport = self._request.transport
        assert transport is not None
        transport.abort()

    @property
    def response(self) -> web.StreamResponse:
        assert self._response is not None, "nothing was sent"
        return self._response


@dataclass
class StreamServer:
    """Answers `/v1/chat/completions` with `answer`, and keeps what was asked."""

    answer: Answer
    url: str = ""
    bodies: list[Mapping[str, Any]] = field(default_factory=list)
    running: int = 0
    running_at_begin: list[int] = field(default_factory=list)
    """Requests in flight when each request came in, itself included."""
    connections: set[Any] = field(default_factory=set)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        self.running += 1
        self.running_at_begin.append(self.running)
        self.connections.add(request.transport.get_extra_info("peername") if request.transport else None)
        exchange = Exchange(len(self.bodies), body, request)
        try:
            await self.answer(exchange)
        finally:
            self.running -= 1
        return exchange.response


Serve = Callable[[Answer], Awaitable[StreamServer]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(answer: Answer) -> StreamServer:
        server = StreamServer(answer)
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/v1/chat/completions", server.handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return server

    yield start
    for runner in runners:
        await runner.cleanup()


MakeTask = Callable[..., LoadTask]


@pytest.fixture
def make_task() -> MakeTask:
    def make(
        url: str = "http://127.0.0.1:1",
        kind: str = "closed-loop",
        prompts: Sequence[str] = ("first", "second", "third"),
        *,
        ignore_eos: bool = True,
        warmup: int = 0,
        script: Any = None,
        **point: Any,
    ) -> LoadTask:
        values: dict[str, Any] = {
            "workload": "test",
            "kind": kind,
            "prompts": "test",
            "concurrency": 1,
            "max_tokens": 4,
            "repetitions": 1,
            "requests": len(prompts),
            "sampling": Sampling(ignore_eos=ignore_eos),
        }
        return LoadTask(
            cell="c001",
            attempt=1,
            base_url=url,
            model="tested",
            point=WorkloadPoint(**values | point),
            prompts=tuple(Prompt(text, text) for text in prompts) if script is None else (),
            script=script,
            warmup=warmup,
        )

    return make
