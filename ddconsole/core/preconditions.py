"""Whether a command still means what its operator saw: a late one must not stop an attempt that nobody looked at."""

from collections.abc import Mapping

from ddconsole.core import states as st
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import cell_label
from ddconsole.core.visible_text import visible_line
from ddconsole.core.wire import Command, Seen


def seen(row: CellRow) -> Seen:
    """A cell as it is now."""
    latest = row.latest()
    return Seen(row.state.phase.value, latest.number if latest else 0, row.cell.revision)


def moved_on(state: RunState, row: CellRow, expected: Mapping[str, Seen]) -> str:
    """What has become of a cell since the operator saw it; empty where it is as it was, or nothing was said."""
    was = expected.get(row.cell.id)
    now = seen(row)
    if was is None or was == now:
        return ""
    name = row.cell.id
    if was.revision != now.revision:
        label = cell_label(row.cell, state.deployments[row.cell.deployment])
        return f"{name} was edited meanwhile{_edits_since(row, was.revision)}: it is {label} now"
    if was.attempt != now.attempt:
        begun = f"attempt {now.attempt} of {name} has begun meanwhile"
        return f"{begun} and is {now.phase} now" if now.phase != st.CellPhase.RUNNING else f"{begun} and runs"
    return f"{name} was {was.phase} when this was asked, and is {now.phase} now"


def pause_moved_on(state: RunState, command: Command) -> str:
    """Why a `resume` would end a pause that its operator has not seen; empty where it would not."""
    if not command.expected_phase or command.expected_phase == state.phase_seq:
        return ""
    because = f": {state.paused_because}" if state.paused_because else ""
    return f"the run is {state.phase} for another reason by now{because}; {command.name} once more if that is well"


def _edits_since(row: CellRow, revision: int) -> str:
    edits = [edit for edit in row.edits if edit.revision > revision]
    if not edits:
        return ""
    parts = [f"by {edit.by}{_changes(edit.changes)}" for edit in edits]
    return " " + ", then ".join(parts)


def _changes(changes: Mapping[str, object]) -> str:
    if not changes:
        return ""
    said = [
        f"{name.removeprefix('flag:')} {'removed' if value is None else f'= {value}'}"
        for name, value in changes.items()
    ]
    return f" ({visible_line(', '.join(said))})"
