"""Marks: what is said of a figure beside the figure. The legend of a document is made from the marks that occur."""

from enum import Enum

from ddconsole.core.states import CellPhase


class Mark(Enum):
    """A mark: its sign in tables, and its line in the legend."""

    # In place of a figure
    NOT_IN_PLAN = ("--", "not in the plan, or not defined for this cell")
    FAILED = ("fail", "failed")
    OUT_OF_MEMORY = ("OOM", "out of memory")
    UNFIT = ("unfit", "too large: a lower bound of its memory is above what the GPU has, not tried")
    SKIPPED = ("skip", "left out by the plan or by the operator")
    PRUNED = ("pruned", "left out by the protocol, with the numbers that decided")
    STOPPED = ("stop", "stopped by the operator")
    INTERRUPTED = ("intr", "interrupted: the process that measured it died")
    BLOCKED = ("block", "blocked: its server did not start")
    OPEN = ("open", "not measured yet")
    EXCLUDED = ("excl", "kept out of the figures: its attempts cannot be used, or do not compare with the others")
    NOT_CERTIFIED = ("\u2020", "too few requests for this percentile (50th: 11, 90th: 64, 95th: 130, 99th: 662)")

    # Beside a figure
    WITHIN_ONE_LAUNCH = ("w", "within one launch: half the central 95 % of its requests in round brackets, no interval")
    TWO_LAUNCHES = ("t", "two launches: half the central 95 % of their requests in round brackets, no interval")
    INCOMPLETE = ("i", "not all launches of the plan are done")
    SOME_FAILED = ("r", "some requests failed; they are in no figure")
    ESTIMATED_TOKENS = ("e", "output tokens were estimated from chunks: the engine told no usage")
    LENGTH_NOT_FIXED = ("l", "output lengths were not fixed")
    FROM_COUNTERS = ("c", "acceptance from the engine's counters over the cell, not from its requests")
    FLAGGED = (
        "f",
        "disturbed, contradictory, or of a server that differs unplanned: see the list of what is left out or flagged",
    )
    SIMULATED = ("SIMULATED", "these figures were not measured on hardware")

    def __init__(self, sign: str, legend: str) -> None:
        self.sign = sign
        self.legend = legend

    @property
    def replaces_figure(self) -> bool:
        """Whether it stands where the figure would."""
        return self in _IN_PLACE


_IN_PLACE = frozenset(list(Mark)[: list(Mark).index(Mark.NOT_CERTIFIED) + 1])

_OF_PHASE: dict[CellPhase, Mark] = {
    CellPhase.FAILED: Mark.FAILED,
    CellPhase.UNFIT: Mark.UNFIT,
    CellPhase.SKIPPED: Mark.SKIPPED,
    CellPhase.PRUNED: Mark.PRUNED,
    CellPhase.STOPPED: Mark.STOPPED,
    CellPhase.INTERRUPTED: Mark.INTERRUPTED,
    CellPhase.BLOCKED: Mark.BLOCKED,
    CellPhase.PENDING: Mark.OPEN,
    CellPhase.RUNNING: Mark.OPEN,
    CellPhase.DONE: Mark.EXCLUDED,
}


def mark_of_phase(phase: CellPhase, cause: str = "") -> Mark:
    """The mark of a cell without figures. `cause` is the id of what failed."""
    if phase in (CellPhase.FAILED, CellPhase.BLOCKED) and ("OOM" in cause.upper() or "OUT-OF-MEMORY" in cause.upper()):
        return Mark.OUT_OF_MEMORY
    return _OF_PHASE[phase]


def in_order(marks: "set[Mark] | frozenset[Mark]") -> list[Mark]:
    """As the legend lists them."""
    return [mark for mark in Mark if mark in marks]
