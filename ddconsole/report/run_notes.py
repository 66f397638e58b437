"""What the run as a whole says against a cell's figures: its server differs unplanned, its baseline drifted."""

from collections.abc import Sequence
from dataclasses import replace

from ddconsole.core.drift import drift_notes
from ddconsole.core.run_state import RunState
from ddconsole.core.server_matrix import notes_of, server_matrices
from ddconsole.report.marks import Mark, in_order
from ddconsole.report.result_set import CellResult

_MOST = 6
"""Differences of one server that are told beside each of its cells; `ddconsole servers` has all."""


def with_run_notes(cells: Sequence[CellResult], state: RunState) -> list[CellResult]:
    """The cells; those with figures that something is to be said of are flagged and have it among their reasons."""
    matrices = server_matrices(state)
    of_deployment = {name: _short(notes_of(matrices, name)) for name in state.deployments}
    of_size: dict[int, list[str]] = {}
    told = []
    for cell in cells:
        if cell.tensor_parallel not in of_size:
            of_size[cell.tensor_parallel] = drift_notes(state.cells[cell.cell], state)
        texts = [*of_deployment[cell.deployment.id], *of_size[cell.tensor_parallel]]
        told.append(flagged(cell, texts) if texts and cell.figures is not None else cell)
    return told


def flagged(cell: CellResult, texts: Sequence[str]) -> CellResult:
    """The cell with the mark and these reasons."""
    marks = tuple(in_order({*cell.marks, Mark.FLAGGED}))
    return replace(cell, marks=marks, reasons=(*cell.reasons, *texts))


def _short(notes: Sequence[str]) -> list[str]:
    rest = len(notes) - _MOST
    return [*notes[:_MOST], f"and {rest} more: ddconsole servers lists them"] if rest > 0 else list(notes)
