"""`ddconsole cells`: the sweep table as text or JSON, from what is on disk here, or as the host says with `--host`."""

import argparse
import dataclasses
import sys

from ddconsole.commands.connection import EXPECTED, fail, printed
from ddconsole.commands.known_run import known_run
from ddconsole.core.drift import baseline_drift, drift_in_words
from ddconsole.core.row_text import RowText, baselines, plain_line, row_text
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.server_matrix import notes_of, server_matrices
from ddconsole.core.sweep import cell_label, to_json


def main(options: argparse.Namespace) -> int:
    """Print one line a cell."""
    try:
        known = known_run(options)
    except EXPECTED as problem:
        return fail(problem)
    state = known.state
    if options.json:
        if known.as_of:
            print(f"ddconsole: {known.name}: {known.as_of}", file=sys.stderr)
        printed([_as_json(state, row) for row in state.cells.values()])
        return 0
    because = f": {state.paused_because}" if state.paused_because else ""
    print("  ".join(filter(None, (known.name, f"{state.phase}{because}", state.outcome, known.as_of))))
    for line in (*table_lines(state), *drift_lines(state), *map(plain_line, server_lines(state))):
        print(line)
    return 0


def drift_lines(state: RunState) -> list[str]:
    """How far the baseline drifted, one line for each of its cells that was measured on several launches."""
    return [f"drift of {one.label} {one.cell}: {drift_in_words(one)}" for one in baseline_drift(state)]


def server_lines(state: RunState) -> list[str]:
    """Where servers differ and the plan does not account for it, one line a difference."""
    matrices = server_matrices(state)
    return [
        f"{shown} TP{matrix.tensor_parallel}: {note}"
        for matrix in matrices
        for shown, name in zip(matrix.labels, matrix.columns, strict=True)
        for note in notes_of([matrix], name)
    ]


def table_lines(state: RunState) -> list[str]:
    """The sweep table as text: a header, and one line a cell with its figures or the cause why there are none."""
    known = baselines(state)
    rows = [row_text(row, state, known, now=state.at) for row in state.cells.values()]
    table = [_HEADER, *(_fields(row) for row in rows)]
    widths = [max(len(line[column]) for line in table) for column in range(len(_HEADER))]
    lines = []
    for fields, cause in zip(table, ["", *(row.cause for row in rows)], strict=True):
        shown = [text.ljust(width) for text, width in zip(fields, widths, strict=True)]
        lines.append("  ".join([*shown[:_PLACE], cause] if cause else shown).rstrip())
    return lines


_HEADER = (
    "",
    "state",
    "cell",
    "method",
    "TP",
    "workload",
    "conc",
    "out",
    "tok/s",
    "±",
    "speed-up",
    "accept",
    "TTFT",
    "n",
)
_PLACE = 8
"""Columns that say which cell it is; figures, or a cause, follow."""


def _fields(row: RowText) -> tuple[str, ...]:
    which = (row.glyph, row.word, row.id, row.method, row.tensor_parallel, row.workload, row.concurrency, row.length)
    return (*which, row.rate, row.spread, row.speed_up, row.acceptance, row.ttft, row.count)


def _as_json(state: RunState, row: CellRow) -> dict[str, object]:
    return {
        "cell": row.cell.id,
        "label": cell_label(row.cell, state.deployments[row.cell.deployment]),
        "state": row.state.phase.value,
        "data": to_json(row.state),
        "attempts": [dataclasses.asdict(one) for one in row.attempts],
        "spec": to_json(row.cell),
    }
