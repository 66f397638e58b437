"""What a console knows of one run, kept up to date: the screens read this and nothing else."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ddconsole.core.host_state import HostState
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import CommandAnswer, DecodeFigures, LogPiece, Seen, Watchers
from ddconsole.link.client import LinkState
from ddconsole.link.console_identity import ConsoleIdentity


class RunFeed(Protocol):
    """One run as the console knows it.

    Values are replaced whole, so a reader that kept an old one can compare by identity. `changed` callbacks are called
    on the event loop, coalesced, with the names of what changed: `state`, `link`, `progress`, `decode`, `host`,
    `log`.
    """

    run: str
    host: str
    state: RunState
    link: LinkState
    progress: CellProgress | None
    rates: Sequence[float]
    """Output rate of the running cell, newest last, at most 120 values; for the sparkline."""
    decode: DecodeFigures | None
    host_state: HostState | None
    host_history: Sequence[HostState]
    """The last minutes, newest last."""
    simulated: bool
    identity: ConsoleIdentity
    """Who this console is."""
    readonly: bool
    """It only looks."""
    watchers: Watchers | None
    """Who is there; None where that is not known."""
    watchers_at: float
    """Wall time of the console at which that was so."""

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Be told what changed; the answer ends it."""
        ...

    def now(self) -> float:
        """Wall time on the agent's clock, as far as the console can tell: for ages and remaining times."""
        ...

    def has_control(self) -> bool:
        """Whether this console controls the run, as far as it knows."""
        ...

    async def take_control(self, shown: int | None) -> CommandAnswer:
        """Take control from who had it in the epoch that was shown; None: only where it is nobody's."""
        ...

    async def command(
        self,
        name: str,
        cells: Sequence[str] = (),
        changes: dict[str, str | None] | None = None,
        because: str = "",
        expected: Mapping[str, Seen] | None = None,
    ) -> CommandAnswer:
        """Tell the sweep something; a refusal comes as an answer, a lost link as `LinkLost`.

        Control that nobody has is taken with the first command. `expected`: the cells as the operator saw them.
        """
        ...

    def follow_log(self, launch: int | None, on_piece: Callable[[LogPiece], None]) -> None:
        """Stream one launch's log to `on_piece`, its last 500 lines first; None ends it."""
        ...

    async def read_log(self, launch: int, offset: int, limit: int) -> bytes:
        """A piece of a log, for searching and for scrolling back."""
        ...

    def retry_now(self) -> None:
        """Try the link again at once."""
        ...

    async def close(self) -> None:
        """Leave; the sweep goes on."""
        ...
