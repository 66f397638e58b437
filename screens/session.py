"""What the screens of one console share."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from ddconsole.core.history import History
from ddconsole.core.run_state import CellRow
from ddconsole.core.wire import StageStatus
from ddconsole.link.feed import RunFeed
from screens.row_book import RowBook

if TYPE_CHECKING:
    from ddconsole.compare.comparison import Comparison  # it imports numpy, which the console rarely needs

Finding: TypeAlias = Mapping[str, Any]
"""id, proves, outcome (pass, warn, fail, skip, unknown), observed, expected, evidence, remedy, blocks."""
Preflight: TypeAlias = Callable[[], Awaitable[Sequence[Finding]]]
"""Runs the checks; raises `AgentError` where that is not possible."""


@runtime_checkable
class PreflightDesk(Protocol):
    """A `Preflight` that also takes orders. Each raises `AgentError` where that is not possible."""

    async def __call__(self) -> Sequence[Finding]:
        """Run the checks."""
        ...

    async def accept(self, check: str, because: str) -> Sequence[Finding]:
        """Accept a check's finding with a reason; the findings after it."""
        ...

    async def stage(self) -> StageStatus:
        """Begin to bring model and draft to where the plan wants them."""
        ...

    async def staged(self) -> StageStatus:
        """How far that is."""
        ...


Export: TypeAlias = Callable[[Callable[[str], None]], Awaitable[str]]
"""Writes tables and figures, says how far it is, and answers with the folder; raises `AgentError` or `OSError`."""


@runtime_checkable
class ResultsDesk(Protocol):
    """An `Export` that does more with what was measured. Each raises `AgentError` or `OSError` where it cannot."""

    async def __call__(self, say: Callable[[str], None]) -> str:
        """Write tables and figures; the path, and a line for each file that was kept."""
        ...

    def formats(self) -> Mapping[str, str]:
        """The other formats, with what each is."""
        ...

    async def save(self, name: str, say: Callable[[str], None]) -> str:
        """Write all cells in one of the other formats; the path, and a line for each file that was kept."""
        ...

    async def turns(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """By cell, the output rate at each turn of its conversation."""
        ...

    def others(self) -> Mapping[str, str]:
        """Other runs on this machine, with a line about each."""
        ...

    async def compare(self, run: str, say: Callable[[str], None]) -> "Comparison":
        """Compare this run with an earlier one, which is A."""
        ...

    async def export_comparison(self, comparison: "Comparison", figure: str, say: Callable[[str], None]) -> str:
        """Write a comparison for LaTeX; the path, and a line for each file that was kept."""
        ...


@dataclass
class Session:
    """One console on one run."""

    feed: RunFeed
    preflight: Preflight | None
    export: Export | None
    history: History | None = None
    """What earlier runs on the host told about times."""
    book: RowBook = field(init=False)
    marked: frozenset[str] = frozenset()
    """Ids of the marked cells."""
    findings: Sequence[Finding] | None = None
    """Of the last preflight; None before the first."""
    control_lost: float | None = None
    """When this console lost control (monotonic seconds); None where it has it, or never had it."""
    wanted_launch: int | None = None
    """The launch whose log another screen asked for."""

    def __post_init__(self) -> None:
        self.book = RowBook(self.feed, self.history)

    def rows(self, cells: Sequence[str]) -> list[CellRow]:
        """The rows of these cells, as they are now; what has vanished is left out."""
        known = self.feed.state.cells
        return [known[name] for name in cells if name in known]
