"""Two runs compared: whether they may be, what changed around them, and what became of each cell."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ddconsole.compare.changes import Changes, changes_between
from ddconsole.compare.differences import (
    LEAST,
    Difference,
    ServerDifference,
    Verdict,
    difference_of,
    judged,
)
from ddconsole.compare.facts import Section
from ddconsole.compare.side import FIGURES, ComparedCell, Figure, Side
from ddconsole.core.states import CellPhase

_YET_TO_COME = frozenset({CellPhase.PENDING, CellPhase.RUNNING})
"""Phases of a cell that a run which goes on may still measure."""


@dataclass(frozen=True, slots=True)
class OneSided:
    """A cell that has figures in one run only."""

    cell: ComparedCell
    in_first: bool
    """It has them in the first run."""
    because: str
    """What the other run says of it."""
    lost: bool
    """The second run has it and is not going to have figures of it, whatever the reason."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One figure over all cells that have it in both runs."""

    figure: Figure
    differences: tuple[Difference, ...]
    """In the order of the first run."""
    servers: tuple[ServerDifference, ...]

    def of(self, verdict: Verdict) -> list[Difference]:
        """Those with a verdict, the largest change first."""
        found = [one for one in self.differences if one.verdict is verdict]
        return sorted(found, key=lambda one: -abs(one.ratio.value - 1))

    def worst_first(self) -> list[ServerDifference]:
        """The servers: regressed ones first, unchanged ones last."""
        order = list(Verdict)
        return sorted(self.servers, key=lambda one: order.index(one.verdict))


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that is said of two runs."""

    before: Side
    after: Side
    changes: Changes
    refusals: tuple[str, ...]
    """Why their figures do not compare; empty where they do."""
    figures: tuple[Compared, ...]
    one_sided: tuple[OneSided, ...]
    other_prompts: tuple[str, ...]
    """Labels of cells whose prompts are not the same texts."""
    least: float

    def compared(self, figure: str) -> Compared:
        """One figure, by its id."""
        return next(one for one in self.figures if one.figure.id == figure)

    @property
    def lost(self) -> list[OneSided]:
        """Cells that the first run measured, and that have no figures any more in the second one."""
        return [one for one in self.one_sided if one.lost]

    @property
    def not_known(self) -> list[str]:
        """What cannot be said because a journal could not be read to its end, in sentences without a full stop."""
        sides = (("A", self.before), ("B", self.after))
        return [
            f"what {name} did after the end of what could be read of it is not known: {side.damage}"
            for name, side in sides
            if side.damage
        ]

    @property
    def simulated(self) -> bool:
        """Neither was measured on hardware."""
        return self.before.simulated or self.after.simulated

    def is_worse(self, figure: str) -> bool:
        """Whether a cell or a server regressed in this figure, or a cell lost its figures."""
        compared = self.compared(figure)
        told = {one.verdict for one in compared.differences} | {one.verdict for one in compared.servers}
        return bool(self.lost) or Verdict.REGRESSED in told


def compare(before: Side, after: Side, *, least: float = LEAST) -> Comparison:
    """Compare two runs.

    Args:
        before: the first: what the second one is held against.
        after: the second.
        least: the change from which on a difference is told, as a share.
    """
    pairs = [(cell, after.cells[place]) for place, cell in before.cells.items() if place in after.cells]
    changes = changes_between(before, after, pairs)
    refusals = tuple(_refusals(before, after, pairs))
    measured = [(one, other) for one, other in pairs if one.observed and other.observed]
    texts = _other_texts(before.sections, after.sections)
    comparable = [pair for pair in measured if pair[0].point.prompts not in texts] if not refusals else []
    return Comparison(
        before=before,
        after=after,
        changes=changes,
        refusals=refusals,
        figures=tuple(_compared(figure, comparable, least) for figure in FIGURES),
        one_sided=tuple(_one_sided(before, after)),
        other_prompts=tuple(one.label for one, _ in measured if one.point.prompts in texts),
        least=least,
    )


def _compared(figure: Figure, pairs: Iterable[tuple[ComparedCell, ComparedCell]], least: float) -> Compared:
    found = [difference_of(one, other, figure) for one, other in pairs]
    differences, servers = judged([one for one in found if one is not None], figure, least)
    return Compared(figure, tuple(differences), tuple(servers))


def _refusals(before: Side, after: Side, pairs: Sequence[object]) -> Iterable[str]:
    if before.simulated != after.simulated:
        which = before.run if before.simulated else after.run
        yield f"{which} is simulated, the other was measured"
    models = _facts(before.sections, "model").get("files"), _facts(after.sections, "model").get("files")
    if None not in models and models[0] != models[1]:
        yield "they served different models: the files of one are not those of the other"
    if not pairs:
        yield "they have no cell in common: no method at the same tensor-parallel size with the same workload"


def _other_texts(before: Sequence[Section], after: Sequence[Section]) -> frozenset[str]:
    """Prompt sets and scripts that are others in the second run."""
    old, new = _facts(before, "texts"), _facts(after, "texts")
    return frozenset(name for name in old if name in new and old[name] != new[name])


def _facts(sections: Sequence[Section], name: str) -> Mapping[str, str]:
    return next((one.facts for one in sections if one.name == name), {})


def _one_sided(before: Side, after: Side) -> Iterable[OneSided]:
    for place, cell in before.cells.items():
        other = after.cells.get(place)
        if cell.observed and (other is None or not other.observed):
            yield OneSided(cell, True, _why(other, after), _is_lost(other, after))
    for place, cell in after.cells.items():
        other = before.cells.get(place)
        if cell.observed and (other is None or not other.observed):
            yield OneSided(cell, False, _why(other, before), False)


def _is_lost(other: ComparedCell | None, after: Side) -> bool:
    """Not one that the second plan skips or has not, for nobody wanted its figures."""
    if other is None or other.left_out:
        return False
    return after.ended or other.phase not in _YET_TO_COME


def _why(other: ComparedCell | None, side: Side) -> str:
    if other is None:
        return "not in the plan of the other"
    if side.damage and not other.reasons and other.phase in _YET_TO_COME:
        return "not known: the journal of the other cannot be read to its end"
    reason = "; ".join(other.reasons)
    state = "not used" if other.phase is CellPhase.DONE else other.phase.value
    return f"{state}: {reason}" if reason else state
