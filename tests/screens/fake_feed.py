"""A feed over a journal in memory, which a test drives: events, link, progress, logs, host samples."""

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace

from ddconsole.core import events as ev
from ddconsole.core.commands import decide
from ddconsole.core.fold import apply
from ddconsole.core.host_state import HostState
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command, CommandAnswer, DecodeFigures, LogPiece, Seen, Watchers
from ddconsole.link.client import LinkLost, LinkPhase, LinkState
from ddconsole.link.console_identity import ConsoleIdentity


@dataclass(frozen=True)
class Told:
    """A command as the feed was told it."""

    name: str
    cells: tuple[str, ...]
    changes: dict[str, str | None] | None = None


@dataclass
class FakeFeed:
    """Satisfies `RunFeed`. Commands take effect through the same pure function as in the agent."""

    run: str = "ddtree-ct200-0412"
    host: str = "ct200"
    state: RunState = field(default_factory=RunState)
    link: LinkState = field(
        default_factory=lambda: LinkState(LinkPhase.UP, time.time(), heard=time.time(), round_trip=0.012)
    )
    progress: CellProgress | None = None
    rates: Sequence[float] = ()
    decode: DecodeFigures | None = None
    host_state: HostState | None = None
    host_history: Sequence[HostState] = ()
    simulated: bool = False
    identity: ConsoleIdentity = field(default_factory=lambda: ConsoleIdentity("op@laptop", "pts/1", "mine"))
    readonly: bool = False
    watchers: Watchers | None = None
    watchers_at: float = field(default_factory=time.time)
    clock: float = 1_790_000_000.0
    runs: bool = False
    """The clock goes on by itself."""
    told: list[Told] = field(default_factory=list)
    logs: dict[int, bytes] = field(default_factory=dict)
    lost: bool = False
    retried: int = 0
    closed: bool = False
    _began: float = field(default_factory=time.monotonic)
    _listeners: list[Callable[[frozenset[str]], None]] = field(default_factory=list)
    followed: int | None = None
    _on_piece: Callable[[LogPiece], None] | None = None

    # --- what a test drives

    def emit(self, *events: ev.Event, seconds: float = 0.0) -> None:
        """Let these happen, and tell the listeners once."""
        for event in events:
            self.clock += seconds
            self.state = apply(self.state, ev.Entry(1, self.state.seq + 1, self.clock, event))
        self.changed("state")

    def changed(self, *names: str) -> None:
        """Tell the listeners, as from a task that knows nothing of the app."""
        for listener in tuple(self._listeners):
            Context().run(listener, frozenset(names))

    def set_link(self, phase: LinkPhase, detail: str = "", silent: float = 0.0) -> None:
        """Another state of the link, last heard some seconds ago."""
        now = time.time()
        self.link = LinkState(phase, now - silent, detail, heard=now - silent, round_trip=0.012)
        self.changed("link")

    def set_progress(self, progress: CellProgress, *rates: float, acceptance: float | None = None) -> None:
        """The running cell goes on."""
        self.progress = progress
        self.rates = (*self.rates, *rates)[-120:]
        if acceptance is not None:
            self.decode = DecodeFigures(1, self.clock, progress.output_rate, 1, 0, acceptance)
        self.changed("progress")

    def set_host(self, *samples: HostState) -> None:
        """Newest last."""
        self.host_history = (*self.host_history, *samples)[-300:]
        self.host_state = self.host_history[-1]
        self.changed("host")

    def log(self, launch: int, *lines: str, dropped: int = 0) -> None:
        """A server says something."""
        data = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogatepass")
        self.logs[launch] = self.logs.get(launch, b"") + data
        if self.followed == launch and self._on_piece is not None:
            Context().run(self._on_piece, LogPiece(launch, len(self.logs[launch]), lines, dropped))

    # --- what the screens use

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Be told what changed; the answer ends it."""
        self._listeners.append(changed)
        return lambda: self._listeners.remove(changed)

    def now(self) -> float:
        """The clock of the test."""
        return self.clock + (time.monotonic() - self._began if self.runs else 0.0)

    def has_control(self) -> bool:
        """As the journal says."""
        return self.state.controller is not None and self.state.controller.console == self.identity.console

    async def take_control(self, shown: int | None) -> CommandAnswer:
        """Take effect at once."""
        return self._give(replace(self._blank("take-control"), epoch=shown or 0, take=shown is not None))

    async def command(
        self,
        name: str,
        cells: Sequence[str] = (),
        changes: dict[str, str | None] | None = None,
        because: str = "",
        expected: Mapping[str, Seen] | None = None,
    ) -> CommandAnswer:
        """Take effect at once."""
        if self.lost:
            raise LinkLost("the link ended", "ctrl+r tries again")
        self.told.append(Told(name, tuple(cells), changes))
        if not self.has_control():
            answer = await self.take_control(None)
            if not answer.taken:
                return answer
        command = replace(self._blank(name), cells=tuple(cells), changes=changes or {}, because=because)
        assert self.state.controller is not None
        return self._give(replace(command, epoch=self.state.controller.epoch, expected=expected or {}))

    def _blank(self, name: str) -> Command:
        me = self.identity
        return Command(uuid.uuid4().hex, name, me.by, console=me.console, where=me.where)

    def _give(self, command: Command) -> CommandAnswer:
        decision = decide(self.state, command, self.watchers)
        self.emit(*decision.events)
        return decision.answer

    def follow_log(self, launch: int | None, on_piece: Callable[[LogPiece], None]) -> None:
        """The last 500 lines at once, then what comes."""
        self.followed, self._on_piece = launch, on_piece
        data = self.logs.get(launch or 0, b"")
        if launch is not None and data:
            lines = tuple(data.decode("utf-8", "surrogatepass").removesuffix("\n").split("\n"))
            on_piece(LogPiece(launch, len(data), lines[-500:]))

    async def read_log(self, launch: int, offset: int, limit: int) -> bytes:
        """A piece of what was said."""
        return self.logs.get(launch, b"")[offset : offset + limit]

    def retry_now(self) -> None:
        """Counted."""
        self.retried += 1
        self.link = replace(self.link, phase=LinkPhase.CONNECTING)

    async def close(self) -> None:
        """Remembered."""
        self.closed = True
