"""Continuous batching: all running requests step together, at absolute times of the rehearsal's clock.

Time within a batch is simulated, not slept: `advance` makes every step that is due and stamps nothing, so a late
wake-up delays a chunk but never the next one. Only the wake-ups for a request's first and last tokens are exact; those
between are batched, because a clock that runs a hundred times faster would else cost a wake-up per step.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ddconsole.core.clock import Clock
from ddconsole.rehearsal.output import Output
from ddconsole.rehearsal.rates import Speed
from ddconsole.rehearsal.timing import real_wait, simulated

WRITE_INTERVAL = 0.004
"""Real seconds that chunks may be held back, to be written together."""


@dataclass(eq=False)
class Sequence:
    """One request in the batch."""

    rid: str
    output: Output
    prompt_tokens: int
    cached_tokens: int
    arrived: float
    first_at: float = 0.0
    """When its first token is due."""
    ended: float = 0.0
    steps: int = 0
    """Verify steps so far."""
    tokens: int = 0
    """Output tokens so far."""
    ends: list[int] = field(default_factory=list)
    """Token counts after each chunk that was not taken yet."""
    finish: str | None = None
    """`length`, `stop` or `abort`, once it has ended."""
    leaves_at: float | None = None
    """Its client is gone; when the server notices."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self) -> list[int]:
        """The chunks since the last time, as token counts after each."""
        ends, self.ends = self.ends, []
        return ends

    @property
    def next_pace(self) -> float:
        """Duration of its next step in units of the table's."""
        return self.output.pace[self.steps]

    @property
    def steps_left(self) -> int:
        """Steps to its end."""
        return len(self.output.accepted) - self.steps


@dataclass(frozen=True, slots=True)
class DecodeFigures:
    """What a decode line of the log tells."""

    running: int
    queued: int
    tokens: int
    """In the KV pool."""
    acceptance: float
    rate: float
    """Output tokens a second since the line before, pauses included, as SGLang counts it."""
    decoded: int
    """Output tokens since the line before."""


class Watcher(Protocol):
    """Who hears what happens in the batch."""

    def prefilled(self, sequence: Sequence, running: int, queued: int) -> None:
        """The first token of a request is out."""
        ...

    def decoded(self, figures: DecodeFigures) -> None:
        """Another `interval` of decode steps is done."""
        ...

    def ended(self, sequence: Sequence) -> None:
        """A request is over."""
        ...

    def busy(self, busy: bool) -> None:
        """The GPUs begin or stop to compute."""
        ...


class Batch:
    """The simulated scheduler.

    Args:
        clock: the rehearsal's.
        speed: the server's row of the table.
        most: requests that run at once.
        interval: decode steps between two lines of the log.
        watcher: who hears of it.
        wake: called as `wake(real seconds, callback)`; the event loop's `call_later`.
    """

    def __init__(
        self,
        clock: Clock,
        speed: Speed,
        most: int,
        interval: int,
        watcher: Watcher,
        wake: Callable[[float, Callable[[], None]], asyncio.TimerHandle] | None = None,
    ) -> None:
        self._clock = clock
        self._speed = speed
        self._most = most
        self._interval = interval
        self._watcher = watcher
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._held_back = simulated(clock, WRITE_INTERVAL)
        self.waiting: deque[Sequence] = deque()
        self.prefilling: list[Sequence] = []
        self.running: list[Sequence] = []
        self._stepping: tuple[Sequence, ...] = ()
        self._step_end = 0.0
        self._step_durations: dict[int, float] = {}
        self._prefill: list[Sequence] = []
        self._prefill_start = self._prefill_end = 0.0
        self._log_steps = self._log_tokens = self._log_request_steps = 0
        self._log_at = clock.monotonic()
        self.last_rate = 0.0
        self.frozen = False
        """The scheduler does not run: nothing moves, nothing ends."""
        self.silent = False
        """Nothing reaches the clients, but the batch goes on."""

    @property
    def size(self) -> int:
        """Requests that the server still works on."""
        return len(self.waiting) + len(self.prefilling) + len(self.running)

    @property
    def used_tokens(self) -> int:
        """Tokens in the KV pool."""
        return sum(sequence.prompt_tokens + sequence.tokens for sequence in self.running)

    def add(self, sequence: Sequence) -> None:
        """Take a request."""
        if not self.size:
            self._watcher.busy(True)
        self.waiting.append(sequence)
        self.tick()

    def abort(self, sequence: Sequence, at: float | None = None) -> None:
        """End a request before its time; with `at` only then, because SGLang looks for lost clients every 2 s."""
        sequence.leaves_at = self._clock.monotonic() if at is None else at
        self.tick()

    def freeze(self) -> None:
        """Stop the scheduler for good."""
        self.frozen = True
        self._cancel()

    def thaw(self) -> None:
        """Let the scheduler run on; the time that it was frozen is lost."""
        self.frozen = False
        now = self._clock.monotonic()
        if self._stepping:
            self._step_end = max(self._step_end, now)
        for sequence in self.prefilling:
            sequence.first_at = max(sequence.first_at, now)
        self.tick()

    def tick(self) -> None:
        """Make what is due and come back when more is."""
        self._cancel()
        if self.frozen:
            return
        now = self._clock.monotonic()
        self.advance(now)
        due = self.next_wake(now)
        if due is not None and self._wake is not None:
            self._timer = self._wake(real_wait(self._clock, due - self._clock.monotonic()), self.tick)

    def advance(self, now: float) -> None:
        """Make every step that is due at `now`."""
        self._admit(0.0)
        while True:
            joins = min((sequence.first_at for sequence in self.prefilling), default=float("inf"))
            leaves = min((one.leaves_at for one in self._all() if one.leaves_at is not None), default=float("inf"))
            step = self._step_end if self._stepping else float("inf")
            due = min(joins, leaves, step)
            if due > now:
                break
            if due == leaves:
                self._leave(due)
            elif due == joins:
                self._join(due)
            else:
                self._step(due)

    def next_wake(self, now: float) -> float | None:
        """When `advance` should be called again; None when nothing will happen by itself."""
        exact = [sequence.first_at for sequence in self.prefilling]
        exact += [one.leaves_at for one in self._all() if one.leaves_at is not None]
        if self._stepping:
            exact.append(self._next_step_that_matters(now + self._held_back))
        return min(exact, default=None)

    # --- within ------------------------------------------------------------------------------------------------

    def _all(self) -> list[Sequence]:
        return [*self.waiting, *self.prefilling, *self.running]

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _admit(self, free_at: float) -> None:
        """Let requests in, as many as there are places since `free_at`."""
        while self.waiting and len(self.running) + len(self.prefilling) < self._most:
            sequence = self.waiting.popleft()
            self.prefilling.append(sequence)
            self._plan_prefill(sequence, max(sequence.arrived, free_at))

    def _plan_prefill(self, sequence: Sequence, ready: float) -> None:
        """One prefill at a time: who comes while one runs goes into the next, together with all others who wait."""
        if ready <= self._prefill_start:
            self._prefill.append(sequence)
        else:
            self._prefill_start = max(ready, self._prefill_end)
            self._prefill = [sequence]
        tokens = sum(one.prompt_tokens - one.cached_tokens for one in self._prefill)
        self._prefill_end = self._prefill_start + self._speed.prefill_seconds(tokens)
        now = self._clock.monotonic()
        for one in set(self._prefill) & set(self.prefilling):
            one.first_at = max(self._prefill_end + self._speed.first_token_overhead, now)

    def _join(self, at: float) -> None:
        for sequence in [one for one in self.prefilling if one.first_at <= at]:
            self.prefilling.remove(sequence)
            sequence.tokens = 1
            sequence.ends.append(1)
            self._watcher.prefilled(sequence, len(self.running), len(self.waiting))
            self.running.append(sequence)
            self._tell(sequence)
            if not sequence.steps_left:
                self._end(sequence, at)
        if not self._stepping:
            self._begin_step(at)

    def _leave(self, at: float) -> None:
        for sequence in [one for one in self._all() if one.leaves_at is not None and one.leaves_at <= at]:
            self._end(sequence, at, "abort")
        if not any(one in self.running for one in self._stepping):
            self._begin_step(at)

    def _begin_step(self, at: float) -> None:
        self._stepping = tuple(self.running)
        if self._stepping:
            self._step_end = at + self._duration([one.next_pace for one in self._stepping])

    def _duration(self, paces: list[float]) -> float:
        running = len(paces)
        if running not in self._step_durations:
            self._step_durations[running] = self._speed.step_seconds(running)
        return self._step_durations[running] * sum(paces) / running

    def _step(self, at: float) -> None:
        stepped = [sequence for sequence in self._stepping if sequence.finish is None]
        for sequence in stepped:
            accepted = sequence.output.accepted[sequence.steps]
            sequence.steps += 1
            sequence.tokens += accepted
            self._log_tokens += accepted
            self._log_request_steps += 1
            sequence.ends.append(sequence.tokens)
            self._tell(sequence)
        self._log_steps += 1
        if self._log_steps >= self._interval:
            self._log(at)
        for sequence in stepped:
            if not sequence.steps_left:
                self._end(sequence, at)
        self._begin_step(at)

    def _log(self, at: float) -> None:
        self.last_rate = self._log_tokens / max(at - self._log_at, 1e-9)
        acceptance = self._log_tokens / max(self._log_request_steps, 1)
        self._watcher.decoded(
            DecodeFigures(
                len(self.running), len(self.waiting), self.used_tokens, acceptance, self.last_rate, self._log_tokens
            )
        )
        self._log_steps = self._log_tokens = self._log_request_steps = 0
        self._log_at = at

    def _tell(self, sequence: Sequence) -> None:
        if not self.silent:
            sequence.changed.set()

    def _end(self, sequence: Sequence, at: float, why: str | None = None) -> None:
        for group in (self.running, self.prefilling, self.waiting):
            if sequence in group:
                group.remove(sequence)
        sequence.finish = why or ("stop" if sequence.output.ended_by_itself else "length")
        sequence.ended = at
        sequence.leaves_at = None
        self._tell(sequence)
        self._watcher.ended(sequence)
        self._admit(at)
        if not self.size:
            self._stepping = ()
            self._watcher.busy(False)

    def _next_step_that_matters(self, horizon: float) -> float:
        """The end of the step in which a request ends, or else the last moment that chunks may be held back."""
        if self._step_end >= horizon:
            return self._step_end
        members = [sequence for sequence in self._stepping if sequence.finish is None]
        left = min((sequence.steps_left for sequence in members), default=0)
        at = self._step_end
        for ahead in range(1, left):
            at += self._duration([sequence.output.pace[sequence.steps + ahead] for sequence in members])
            if at >= horizon:
                return horizon
        return at
