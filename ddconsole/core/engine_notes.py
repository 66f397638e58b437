"""What is said of a cell when engine, model or configuration changed during its run."""

from ddconsole.core.row_text import Baselines, baseline_is_of_another_engine
from ddconsole.core.run_state import CellRow, RunState


def engine_notes(row: CellRow, state: RunState, known: Baselines) -> list[str]:
    """Sentences for the details; none where it changed nothing for this cell."""
    notes = []
    left_out = len(row.done_attempts()) - len(row.compared_attempts())
    if left_out:
        rounds = "1 round" if left_out == 1 else f"{left_out} rounds"
        notes.append(f"{rounds} in no figure: engine, model or configuration changed after it (R measures it again)")
    if baseline_is_of_another_engine(row, state, known):
        notes.append("no speed-up: the baseline was measured with another engine, model or configuration")
    return notes
