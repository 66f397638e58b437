"""What a console knows of one run, kept up to date: the screens read this and nothing else."""

from collections.abc import Callable, Sequence
from typing import Protocol

from ddconsole.core.host_state import HostState
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import CommandAnswer, DecodeFigures, LogPiece
from ddconsole.link.client import LinkState


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

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> Callable[[], None]:
        """Be told what changed; the answer ends it."""
        ...

    def now(self) -> float:
        """Wall time on the agent's clock, as far as the console can tell: for ages and remaining times."""
        ...

    async def command(
        self, name: str, cells: Sequence[str] = (), changes: dict[str, str | None] | None = None, because: str = ""
    ) -> CommandAnswer:
        """Tell the sweep something; a refusal comes as an answer, a lost link as `LinkLost`."""
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
