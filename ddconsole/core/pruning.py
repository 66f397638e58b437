"""Pruning: a method whose canary is far below the best at its tensor-parallel size stops there.

The canary of a method is its first cell at a size, in the order of the table. It is compared at its own workload point
with what every other method has measured there. The baseline is never pruned, and neither is what the operator asked
for: cells that were retried, told to come next, edited or duplicated.
"""

from collections.abc import Mapping, Sequence

from ddconsole.core import states as st
from ddconsole.core.events import CellsPruned
from ddconsole.core.row_text import PointKey, cell_figures, point_key
from ddconsole.core.run_state import CellRow, RunState

Sized = tuple[str, int]
"""Method and tensor-parallel size."""

_NO_CANARY = frozenset({st.CellPhase.SKIPPED, st.CellPhase.UNFIT, st.CellPhase.FAILED, st.CellPhase.BLOCKED})


def limit(state: RunState) -> float | None:
    """The share of the best rate below which a method stops; None where the plan prunes nothing."""
    asked = state.created.protocol.get("prune") if state.created else None
    return float(asked["below"]) if isinstance(asked, Mapping) and asked.get("below") else None


def canaries(state: RunState) -> dict[Sized, CellRow]:
    """The first cell of each method at each size that can be measured; the baseline's too."""
    found: dict[Sized, CellRow] = {}
    for row in state.cells.values():
        if row.done_attempts() or (row.state.phase not in _NO_CANARY and not isinstance(row.state, st.Stopped)):
            found.setdefault(_sized(state, row), row)
    return found


def undecided(state: RunState) -> dict[Sized, CellRow]:
    """The canaries that are still to be measured; empty where nothing is pruned."""
    if limit(state) is None:
        return {}
    return {
        sized: row
        for sized, row in canaries(state).items()
        if not row.done_attempts() and isinstance(row.state, st.Pending | st.Running)
    }


def prunings(state: RunState) -> list[CellsPruned]:
    """What is to be pruned now, one event a method and size, with the numbers that decide."""
    below = limit(state)
    if below is None or state.created is None:
        return []
    best = _best(state)
    events = []
    for sized, canary in canaries(state).items():
        method, size = sized
        rate = _rate(canary)
        if method == state.created.baseline or rate is None:
            continue
        top, holder = best[point_key(canary, state)]
        if rate >= below * top:
            continue
        cells = tuple(
            row.cell.id for row in state.cells.values() if _sized(state, row) == sized and _prunable(state, row)
        )
        if cells:
            numbers = (
                f"{rate:.1f} tok/s, {rate / top:.2f} of {holder}'s {top:.1f} at TP{size} {canary.cell.point.label}"
            )
            events.append(CellsPruned(cells, f"its canary {canary.cell.id} gave {numbers}: below {below:g}"))
    return events


def pruned_together(state: RunState, rows: Sequence[CellRow]) -> list[CellRow]:
    """The pruned cells that one of these was pruned with: they carry the same numbers."""
    reasons = {row.state.because for row in rows if isinstance(row.state, st.Pruned)}
    return [row for row in state.cells.values() if isinstance(row.state, st.Pruned) and row.state.because in reasons]


def asked_for(state: RunState, row: CellRow) -> bool:
    """Whether the operator wants this very cell."""
    again = isinstance(row.state, st.Pending) and row.state.again
    made = row.cell.revision > 0 or row.cell.derived_from is not None
    return again or made or row.kept or row.cell.id in state.queue


def _prunable(state: RunState, row: CellRow) -> bool:
    return isinstance(row.state, st.Pending) and not asked_for(state, row)


def _best(state: RunState) -> dict[PointKey, tuple[float, str]]:
    """By workload point, size and engine: the highest rate, and whose it is."""
    best: dict[PointKey, tuple[float, str]] = {}
    for row in state.cells.values():
        rate = _rate(row)
        if rate is not None:
            found = (rate, state.deployments[row.cell.deployment].method)
            key = point_key(row, state)
            best[key] = max(best.get(key, found), found)
    return best


def _rate(row: CellRow) -> float | None:
    figures = cell_figures(row)
    return figures.output_rate if figures else None


def _sized(state: RunState, row: CellRow) -> Sized:
    deployment = state.deployments[row.cell.deployment]
    return deployment.method, deployment.tensor_parallel
