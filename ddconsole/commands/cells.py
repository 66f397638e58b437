"""`ddconsole cells`: the sweep table as text or JSON, from what is on disk here."""

import argparse
import dataclasses

from ddconsole.commands.connection import EXPECTED, fail, printed, require_run, state_on_disk
from ddconsole.core.fold import CellRow, RunState
from ddconsole.core.row_text import sweep_lines
from ddconsole.core.sweep import cell_label, to_json


def main(options: argparse.Namespace) -> int:
    """Print one line a cell."""
    try:
        folder = require_run(options.run)
        state = state_on_disk(folder)
    except EXPECTED as problem:
        return fail(problem)
    if options.json:
        printed([_as_json(state, row) for row in state.cells.values()])
        return 0
    print(f"{folder.name}  {state.phase}{f': {state.paused_because}' if state.paused_because else ''}  {state.outcome}")
    for line in sweep_lines(state):
        print(line)
    return 0


def _as_json(state: RunState, row: CellRow) -> dict[str, object]:
    return {
        "cell": row.cell.id,
        "label": cell_label(row.cell, state.deployments[row.cell.deployment]),
        "state": row.state.phase.value,
        "data": to_json(row.state),
        "attempts": [dataclasses.asdict(one) for one in row.attempts],
        "spec": to_json(row.cell),
    }
