"""Signs that a method does not do what it says: outputs that are not the baseline's, acceptance that falls.

A larger budget only offers more to accept, so acceptance that falls from one budget to the next larger one is a sign
that state leaks between the branches of a draft. Outputs may also differ because requests were batched otherwise,
which changes the rounding of sums.
"""

from itertools import pairwise

from ddconsole.core.outputs import equal_outputs
from ddconsole.core.row_text import cell_figures, point_key
from ddconsole.core.run_state import CellRow, RunState

FALL = 0.01
"""Share by which acceptance may fall from one budget to the next larger one: rounding and ties of the drafts."""


def acceptance_by_budget(row: CellRow, state: RunState) -> dict[int, tuple[CellRow, float]]:
    """Acceptance of the same kind of speculation at this cell's workload point, by budget, smallest first."""
    own = state.deployments[row.cell.deployment].speculative
    if own is None or own.budget is None:
        return {}
    found: dict[int, tuple[CellRow, float]] = {}
    for other in state.cells.values():
        speculative = state.deployments[other.cell.deployment].speculative
        if speculative is None or speculative.kind != own.kind or speculative.budget is None:
            continue
        figures = cell_figures(other)
        if figures is None or figures.acceptance is None or point_key(other, state) != point_key(row, state):
            continue
        found.setdefault(speculative.budget, (other, figures.acceptance))
    return dict(sorted(found.items()))


def falling_acceptance(row: CellRow, state: RunState) -> str:
    """That this cell's acceptance is below that of the next smaller budget; empty where it is not."""
    for (smaller, (_, before)), (larger, (other, length)) in pairwise(acceptance_by_budget(row, state).items()):
        if other.cell.id == row.cell.id and length < before * (1 - FALL):
            return f"acceptance falls from {before:.2f} to {length:.2f} as the budget grows from {smaller} to {larger}"
    return ""


def leakage_notes(row: CellRow, state: RunState) -> list[str]:
    """What is to be said beside a cell's figures."""
    notes = []
    equal = equal_outputs(row, state)
    if equal is not None and equal[0] < equal[1]:
        baseline = state.created.baseline if state.created else "the baseline"
        notes.append(f"{equal[0]} of {equal[1]} prompts give {baseline}'s text under greedy decoding")
    falls = falling_acceptance(row, state)
    return [*notes, falls] if falls else notes
