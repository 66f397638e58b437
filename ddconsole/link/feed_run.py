"""A run that an agent conducts, as a console knows it: replayed, followed, and connected again after a loss."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from ddconsole.core.events import Entry
from ddconsole.core.fold import apply
from ddconsole.core.host_state import HostState
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import CommandAnswer, DecodeFigures, Hello, LogPiece, Seen, Watchers
from ddconsole.link.change_board import ChangeBoard, Changed
from ddconsole.link.client import (
    AgentClient,
    AgentError,
    AgentRoute,
    JournalReader,
    LinkLost,
    LinkPhase,
    LinkState,
    LiveItem,
    Silence,
)
from ddconsole.link.handshake import NotAnswering
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.reconnecting import Backoff
from ddconsole.link.run_steering import RunSteering
from ddconsole.link.silence_watch import BEAT, WATCHED, SilenceWatch
from ddconsole.link.stages import Stage, StageError

logger = logging.getLogger(__name__)

RATES = 120
"""Values of the sparkline that are kept."""
HOST_SAMPLES = 150
"""Host samples that are kept: five minutes at one in two seconds."""
PING_INTERVAL = 5.0
"""Seconds between two measurements of the round trip and of the agent's clock."""
_SECOND_TRY = 10.0
"""Seconds that a command waits for the link to come back before it gives up."""


@dataclass
class _Follow:
    """The log that is streamed, and how far it is."""

    launch: int
    on_piece: Callable[[LogPiece], None]
    offset: int | None = None


class LiveRunFeed:
    """Implements `RunFeed` over an agent. `start` begins, `close` leaves; the client stays the caller's.

    Args:
        client: to the agent; it makes new links by itself.
        run: the run's id.
        wall: the console's wall clock, seconds since 1970.
        ping_interval: seconds between two measurements of the round trip.
        readonly: refuse every command here, before it reaches the agent.
        journal: where the journal is read, such as a mirror of it; the client where nothing is named.
        beat: real seconds between two heartbeats of the agent.
    """

    def __init__(
        self,
        client: AgentClient,
        run: str,
        *,
        wall: Callable[[], float] = time.time,
        ping_interval: float = PING_INTERVAL,
        readonly: bool = False,
        journal: JournalReader | None = None,
        beat: float = BEAT,
    ) -> None:
        self._journal = journal or client.journal
        self.readonly = readonly
        self.identity = client.identity
        self.run = run
        self.host = client.host
        self.state = RunState()
        self.link = LinkState(LinkPhase.CONNECTING, since=wall())
        self.progress: CellProgress | None = None
        self.rates: Sequence[float] = ()
        self.decode: DecodeFigures | None = None
        self.host_state: HostState | None = None
        self.host_history: Sequence[HostState] = ()
        self.simulated = False
        self.watchers: Watchers | None = None
        self.watchers_at = 0.0
        self._steering = RunSteering(client, run, lambda: self.state, self._back_in_time)
        self._client = client
        self._wall = wall
        self._ping_interval = ping_interval
        self._board = ChangeBoard()
        self._backoff = Backoff()
        http = client if isinstance(client, HttpAgentClient) else None
        self._route: AgentRoute | None = http.route if http is not None else None
        self._watch = SilenceWatch(lambda: self.link, self._set_link, self._route, beat)
        self._up = asyncio.Event()
        self._retry = asyncio.Event()
        self._follow: _Follow | None = None
        self._follow_changed = asyncio.Event()
        self._clock = (0.0, 0.0, 1.0)
        """Agent's wall time, console's wall time then, and how much faster the agent's clock runs."""
        self._gap_at: int | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._end_stages: Callable[[], None] | None = None

    # --- what screens call

    def start(self) -> None:
        """Begin to follow the run; needs a running event loop."""
        if isinstance(self._client, HttpAgentClient):
            self._end_stages = self._client.stages.subscribe(self._on_stage)
        work: dict[str, Callable[[], Awaitable[None]]] = {
            "journal": self._keep_journal,
            "live": self._keep_live,
            "ping": self._keep_ping,
            "silence": partial(self._watch.keep, self._up.is_set),
        }
        self._tasks = [asyncio.create_task(self._watched(one()), name=name) for name, one in work.items()]

    def subscribe(self, changed: Changed) -> Callable[[], None]:
        """Be told what changed; the answer ends it."""
        return self._board.subscribe(changed)

    def now(self) -> float:
        """Wall time on the agent's clock, as far as the console can tell: for ages and remaining times."""
        agent, console, scale = self._clock
        return agent + (self._wall() - console) * scale if console else self._wall()

    def has_control(self) -> bool:
        """Whether this console controls the run, as far as it knows."""
        return self._steering.epoch() > 0

    async def take_control(self, shown: int | None) -> CommandAnswer:
        """Take control from who had it in the epoch that was shown; None: only where it is nobody's."""
        if self.readonly:
            return CommandAnswer(False, "attached with --readonly: attach without it to take control")
        answer = await self._steering.take_control(shown)
        self._board.mark("state")
        return answer

    async def command(
        self,
        name: str,
        cells: Sequence[str] = (),
        changes: dict[str, str | None] | None = None,
        because: str = "",
        expected: Mapping[str, Seen] | None = None,
    ) -> CommandAnswer:
        """Tell the sweep something; a refusal comes as an answer, a lost link as `LinkLost`.

        A command whose answer was lost is sent once more with the same id, which takes effect at most once. Cells that
        are not as `expected` any more are left as they are.
        """
        if self.readonly:
            return CommandAnswer(False, f"attached with --readonly: {name} is refused; attach without it to steer")
        return await self._steering.command(name, cells, changes or {}, because, expected or {})

    def follow_log(self, launch: int | None, on_piece: Callable[[LogPiece], None]) -> None:
        """Stream one launch's log to `on_piece`, its last 500 lines first; None ends it."""
        self._follow = None if launch is None else _Follow(launch, on_piece)
        self._follow_changed.set()

    async def read_log(self, launch: int, offset: int, limit: int) -> bytes:
        """A piece of a log, for searching and for scrolling back."""
        return await self._client.log(self.run, launch, offset, limit)

    def retry_now(self) -> None:
        """Try the link again at once."""
        self._retry.set()

    async def close(self) -> None:
        """Leave; the sweep goes on."""
        if self._end_stages is not None:
            self._end_stages()
            self._end_stages = None
        self._board.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    # --- the link

    async def _watched(self, work: Awaitable[None]) -> None:
        """A mistake of ours stops the feed visibly instead of leaving old values on the screen."""
        try:
            await work
        except Exception as problem:
            logger.exception("the feed of %s stopped", self.run)
            self._set_link(LinkPhase.DOWN, f"ddconsole made a mistake: {type(problem).__name__}: {problem}")

    def _set_link(self, phase: LinkPhase, detail: str = "", next_try: float | None = None) -> None:
        since = self.link.since if phase is self.link.phase else self._wall()
        bridged = self._route is not None and self._route.bridged
        self.link = replace(self.link, phase=phase, since=since, detail=detail, next_try=next_try, bridged=bridged)
        # A stream on which a beat is late is still open: what comes on it counts.
        if phase is LinkPhase.UP:
            self._up.set()
        elif phase not in WATCHED:
            self._up.clear()
        self._board.mark("link")

    def _on_stage(self, stage: Stage) -> None:
        if self._up.is_set() or self.link.phase is LinkPhase.DOWN:
            return
        starts = stage in {Stage.UPLOAD, Stage.START} and self.link.heard is not None
        self._set_link(LinkPhase.AGENT_GONE if starts else self.link.phase, f"{stage} …")

    def _heard(self) -> None:
        self._watch.heard()
        if self._up.is_set() and self.link.phase is not LinkPhase.UP:
            self._set_link(LinkPhase.UP)
        now = self._wall()
        if self.link.heard is None or now - self.link.heard >= 1.0 or now < self.link.heard:
            self.link = replace(self.link, heard=now)
            self._board.mark("link")

    async def _greet(self) -> None:
        asked = self._wall()
        hello = await self._client.hello()
        answered = self._wall()
        self._set_clock(hello.now, (asked + answered) / 2, hello)
        self._steering.one_controls = hello.one_controls
        self.link = replace(self.link, round_trip=answered - asked, trouble="; ".join(hello.problems))
        if hello.simulated and not self.simulated:
            self.simulated = True
            self._board.mark("state")
        self._heard()

    def _set_clock(self, agent: float, console: float, hello: Hello | None = None) -> None:
        self._clock = (agent, console, hello.clock_scale if hello is not None else self._clock[2])

    async def _keep_ping(self) -> None:
        while True:
            await asyncio.sleep(self._ping_interval)
            await self._up.wait()
            # A lost link is the journal's to tell: its stream breaks at the same time.
            with suppress(AgentError):
                await self._greet()
                self._board.mark("link")

    async def _wait_to_retry(self, delay: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._retry.wait()

    # --- the journal

    async def _keep_journal(self) -> None:
        while True:
            self._retry.clear()
            try:
                await self._greet()
                self._set_link(LinkPhase.UP)
                journal = cast("AsyncGenerator[Entry | float, None]", self._journal(self.run, self.state.seq))
                async with aclosing(journal):
                    async for item in journal:
                        self._take(item)
            except (LinkLost, StageError, _Gap) as problem:
                final = isinstance(problem, StageError) and problem.final
                await self._lost(problem, final=final)
            except AgentError as problem:
                await self._lost(problem, final=True)

    async def _lost(self, problem: "AgentError | _Gap", *, final: bool) -> None:
        if final:
            self._set_link(LinkPhase.DOWN, str(problem))
            await self._wait_to_retry(None)
            if isinstance(self._client, HttpAgentClient):
                self._client.try_again()
            self._set_link(LinkPhase.CONNECTING if self.link.heard is None else LinkPhase.RECONNECTING)
            return
        delay = self._backoff.delay()
        phase = self._phase_after(problem)
        self._up.clear()
        self._set_link(phase, str(problem), next_try=self._wall() + delay)
        await self._wait_to_retry(delay)

    def _phase_after(self, problem: "AgentError | _Gap") -> LinkPhase:
        """What a loss says about the way."""
        if self.link.heard is None:
            return LinkPhase.CONNECTING
        if isinstance(problem, NotAnswering):
            return LinkPhase.STALLED
        found = self.link.phase in {LinkPhase.STALLED, LinkPhase.AGENT_GONE}
        if isinstance(problem, Silence):
            # What the watch has found out is more than that nothing came.
            return self.link.phase if found else LinkPhase.RECONNECTING
        stands = isinstance(problem, LinkLost) and self._route is not None and self._route.stands
        return LinkPhase.AGENT_GONE if stands else LinkPhase.RECONNECTING

    def _take(self, item: Entry | float) -> None:
        self._backoff.reset()
        self._heard()
        if isinstance(item, Entry):
            self._take_entry(item)
        else:
            self._set_clock(item, self._wall())

    def _take_entry(self, entry: Entry) -> None:
        if self.state.seq and entry.seq > self.state.seq + 1:
            if self._gap_at == self.state.seq:
                raise AgentError(
                    f"the journal jumps from entry {self.state.seq} to {entry.seq}", "look at journal.jsonl on the host"
                )
            self._gap_at = self.state.seq
            raise _Gap(f"entries after {self.state.seq} were lost on the way; asked again")
        self.state = apply(self.state, entry)
        self._board.mark("state")
        if self.state.created is not None and self.state.created.simulated:
            self.simulated = True
        running = self.state.running_cell()
        if self.progress is not None and (running is None or running.cell.id != self.progress.cell):
            self.progress, self.rates = None, ()
            self._board.mark("progress")

    # --- what may be dropped

    async def _keep_live(self) -> None:
        while True:
            await self._up.wait()
            self._follow_changed.clear()
            reading = asyncio.create_task(self._read_live(self._follow), name="live stream")
            changed = asyncio.create_task(self._follow_changed.wait(), name="log chosen")
            try:
                await asyncio.wait({reading, changed}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                reading.cancel()
                changed.cancel()
                await asyncio.gather(reading, changed, return_exceptions=True)

    async def _read_live(self, follow: _Follow | None) -> None:
        launch, offset = (None, None) if follow is None else (follow.launch, follow.offset)
        # A lost link shows in the journal; a refusal (no such launch yet) may be gone at the next try.
        live = cast("AsyncGenerator[LiveItem, None]", self._client.live(self.run, launch, offset))
        with suppress(AgentError):
            async with aclosing(live):
                async for item in live:
                    self._heard()
                    self._take_live(item, follow)
        await asyncio.sleep(1.0)

    def _take_live(self, item: LiveItem, follow: _Follow | None) -> None:
        if isinstance(item, CellProgress):
            before = self.progress
            same = before is not None and (before.cell, before.attempt) == (item.cell, item.attempt)
            kept = self.rates if same else ()
            self.progress = item
            if item.output_rate is not None:
                self.rates = (*kept, item.output_rate)[-RATES:]
            else:
                self.rates = kept
            self._board.mark("progress")
        elif isinstance(item, DecodeFigures):
            self.decode = item
            self._board.mark("decode")
        elif isinstance(item, Watchers):
            self.watchers, self.watchers_at = item, self._wall()
            self._board.mark("state")
        elif isinstance(item, HostState):
            self.host_state = item
            self.host_history = (*self.host_history, item)[-HOST_SAMPLES:]
            self._board.mark("host")
        elif follow is not None and follow is self._follow and item.launch == follow.launch:
            follow.offset = item.offset
            asyncio.get_running_loop().call_soon(follow.on_piece, item)
            self._board.mark("log")

    # --- commands

    async def _back_in_time(self) -> bool:
        """Whether the link is up again within a few seconds."""
        self.retry_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(_SECOND_TRY):
                await self._up.wait()
                return True
        return False


class _Gap(Exception):
    """Entries are missing between what is known and what came."""
