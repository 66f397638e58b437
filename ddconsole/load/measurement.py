"""One cell being measured: sends requests, keeps their records, watches for stalls, and can be ended at any time."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ddconsole.core.clock import Clock
from ddconsole.core.records import CellProgress, RequestOutcome, RequestRecord
from ddconsole.load.chat_stream import ChatStream, RequestIdentity
from ddconsole.load.client import StreamingClient
from ddconsole.load.connection import StreamError
from ddconsole.load.in_flight import InFlight
from ddconsole.load.task import LoadReport, LoadTask

WARMUP_TOKENS = 128
"""Longest output of a warm-up request: enough for compilation and graphs, without paying for a whole cell."""
_WATCH_SECONDS = 0.02
_FEWEST_LOOKS = 25
"""Looks at the event loop's lateness, half a second of them, below which their mean says little."""
_LONGEST_SLEEP = 0.25
"""Seconds until a request is due after which a cancelled measurement is noticed."""
_RATE_TICKS = 5
"""Progress reports, a quarter of a second apart, over which the rate for watching is taken."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to send. The names are those of `RequestRecord`."""

    repetition: int
    prompt: str
    turn: int
    stream: int
    messages: tuple[Mapping[str, str], ...]
    intended: float | None = None


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """How a request ended, and what the model said, reasoning left out."""

    outcome: RequestOutcome
    content: str


class Measurement:
    """Sends the requests of one cell and keeps count.

    Args:
        task: the cell.
        client: sends them.
        clock: all times of the records.
        planned: measured requests that the workload will send.
        keep: takes each record as its request ends.
    """

    def __init__(
        self,
        task: LoadTask,
        client: StreamingClient,
        clock: Clock,
        planned: int,
        keep: Callable[[RequestRecord], None],
    ) -> None:
        self._task = task
        self._client = client
        self._clock = clock
        self._planned = planned
        self._keep = keep
        self._scopes: set[asyncio.Timeout] = set()
        self._interruption: str | None = None
        self._cancelled = False
        self._next_index = 0
        self._done = 0
        self._failed = 0
        self._warmups = 0
        self._warmups_failed = 0
        self._chunks = 0
        self._ratio = _TokensPerChunk()
        self._ticks: deque[tuple[float, int]] = deque(maxlen=_RATE_TICKS)
        self._in_flight = InFlight()
        self._last_told = 0.0
        self._worst_lag = 0.0
        self._lag = 0.0
        self._lags = 0
        self._began = time.perf_counter()
        self._cpu_began = time.process_time()
        self._notes: list[str] = []

    @property
    def open(self) -> bool:
        """Whether further requests may be sent."""
        return self._interruption is None

    def cancel(self) -> None:
        """The operator stops the cell: running requests end at once, no further ones are sent."""
        self._cancelled = True
        self._interrupt("stopped by the operator")

    def note(self, text: str) -> None:
        """Something that belongs into the report."""
        self._notes.append(text)

    async def send(self, request: ChatRequest) -> ChatAnswer:
        """Send one measured request, wait for its end, and keep its record."""
        identity = RequestIdentity(
            self._next_index, request.repetition, request.prompt, request.turn, request.stream, request.intended
        )
        self._next_index += 1
        point = self._task.point
        record, content = await self._exchange(
            identity, self._body(request), point.max_tokens, fixed_length=point.sampling.ignore_eos
        )
        self._done += 1
        if record.outcome in (RequestOutcome.FAILED, RequestOutcome.SHORT):
            self._failed += 1
        self._ratio.learn(record)
        self._keep(record)
        return ChatAnswer(record.outcome, content)

    async def warm_up(self, request: ChatRequest) -> None:
        """Send one request whose record is not kept, at most `WARMUP_TOKENS` long."""
        identity = RequestIdentity(-1, request.repetition, request.prompt, request.turn, request.stream)
        body = self._body(request)
        for name in ("max_tokens", "max_completion_tokens"):
            if isinstance(body.get(name), int):
                body[name] = min(body[name], WARMUP_TOKENS)
        self._warmups += 1
        record, _ = await self._exchange(identity, body, WARMUP_TOKENS, fixed_length=False)
        if record.outcome is not RequestOutcome.OK:
            self._warmups_failed += 1
            if record.error is not None:
                self.note(f"warm-up request {self._warmups} failed: {record.error}")

    def end_of_warm_up(self) -> None:
        """What is counted for the report's concurrency begins now."""
        self._in_flight = InFlight()

    async def wait_until(self, due: float) -> None:
        """Sleep until `due`, seconds of the clock of the records, or until the measurement is not open any more."""
        while self.open and (left := due - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(left, _LONGEST_SLEEP))

    @property
    def now(self) -> float:
        """Seconds of the clock of the records."""
        return self._clock.monotonic()

    def progress(self) -> CellProgress:
        """How far it is. To be asked at a steady pace: the rate is taken between the last few answers."""
        now = self._clock.monotonic()
        self._ticks.append((now, self._chunks))
        began, chunks = self._ticks[0]
        rate = (self._chunks - chunks) / (now - began) * self._ratio.value if now > began else None
        return CellProgress(
            cell=self._task.cell,
            attempt=self._task.attempt,
            requests_done=self._done,
            requests_planned=self._planned,
            requests_failed=self._failed,
            running=len(self._scopes),
            output_rate=rate,
            at=self._clock.now(),
        )

    def report(self) -> LoadReport:
        """What the generator says of itself. CPU, wall time and lag are seconds of the machine's own clock."""
        notes = list(self._notes)
        if self._client.retried:
            notes.append(f"requests sent again, reset before the first byte of the answer: {self._client.retried}")
        if self._done < self._planned:
            notes.append(f"requests not sent: {self._planned - self._done} of {self._planned}")
        return LoadReport(
            cpu_seconds=time.process_time() - self._cpu_began,
            wall_seconds=time.perf_counter() - self._began,
            worst_loop_lag=self._worst_lag,
            cancelled=self._cancelled,
            warmup_requests=self._warmups,
            warmup_failed=self._warmups_failed,
            notes=tuple(notes),
            achieved_concurrency=self._in_flight.while_sending,
            mean_loop_lag=self._lag / self._lags if self._lags >= _FEWEST_LOOKS else None,
            achieved_rate=self._in_flight.sending_rate,
        )

    async def watch(self) -> None:
        """Measure how late the event loop is, and interrupt when no stream tells anything for too long.

        Runs until it is cancelled.
        """
        loop = asyncio.get_running_loop()
        limit = self._clock.real_seconds(self._task.point.stall_timeout)
        while True:
            due = loop.time() + _WATCH_SECONDS
            await asyncio.sleep(_WATCH_SECONDS)
            now = loop.time()
            self._worst_lag = max(self._worst_lag, now - due)
            self._lag += now - due
            self._lags += 1
            if self._scopes and self.open and now - self._last_told > limit:
                why = f"no token for {self._task.point.stall_timeout:g} s"
                self.note(f"stalled: {why} from any of {len(self._scopes)} running requests")
                self._interrupt(why)

    def _interrupt(self, why: str) -> None:
        if self._interruption is None:
            self._interruption = why
        now = asyncio.get_running_loop().time()
        for scope in self._scopes:
            if not scope.expired():
                scope.reschedule(now)

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        return {
            "max_tokens": self._task.point.max_tokens,
            "stream_options": {"include_usage": True},
            **self._task.body,
            "model": self._task.model,
            "messages": list(request.messages),
            "stream": True,
        }

    async def _exchange(
        self, identity: RequestIdentity, body: Mapping[str, Any], max_tokens: int, *, fixed_length: bool
    ) -> tuple[RequestRecord, str]:
        loop = asyncio.get_running_loop()
        if not self._scopes:
            self._last_told = loop.time()
        limit = self._task.point.request_timeout
        broken: str | None = None
        sent = self._clock.monotonic()
        stream = ChatStream(identity, sent, max_tokens, fixed_length=fixed_length)
        scope = asyncio.timeout(self._clock.real_seconds(limit))
        self._in_flight.sent(sent)
        try:
            async with scope:
                self._scopes.add(scope)
                await self._client.stream(body, _Reading(stream, self))
        except TimeoutError:
            broken = self._interruption or f"not ended within {limit:g} s"
        except StreamError as problem:
            broken = str(problem)
        finally:
            self._scopes.discard(scope)
            end = self._clock.monotonic()
            self._in_flight.ended(end)
        return stream.record(end, broken, cancelled=self._cancelled and broken is not None), stream.content

    def told(self, chunks: int) -> None:
        """A stream told something, of which so many chunks had text."""
        self._last_told = time.monotonic()
        self._chunks += chunks


class _Reading:
    """Hands what a request brings to its stream."""

    __slots__ = ("_measurement", "_stream")

    def __init__(self, stream: ChatStream, measurement: Measurement) -> None:
        self._stream = stream
        self._measurement = measurement

    def sent(self, at: float) -> None:
        self._stream.sent(at)

    def received(self, at: float, data: bytes) -> bool:
        stream = self._stream
        before = stream.chunks
        if stream.feed(at, data):
            self._measurement.told(stream.chunks - before)
        return stream.finished


class _TokensPerChunk:
    """Tokens in a chunk, as far as requests that ended have told; 1 before."""

    def __init__(self) -> None:
        self._tokens = 0
        self._chunks = 0

    def learn(self, record: RequestRecord) -> None:
        if record.outcome is RequestOutcome.OK:
            self._tokens += record.output_tokens or 0
            self._chunks += record.chunks

    @property
    def value(self) -> float:
        return self._tokens / self._chunks if self._chunks else 1.0
