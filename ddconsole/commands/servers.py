"""`ddconsole servers`: what the compared servers run with, beside the plan; status 1 where that does not explain it."""

import argparse

from ddconsole.commands.connection import EXPECTED, fail, printed, require_run, state_on_disk
from ddconsole.core.server_matrix import ServerMatrix, matrix_lines, server_matrices
from ddconsole.core.sweep import to_json


def main(options: argparse.Namespace) -> int:
    """Print one matrix for each tensor-parallel size."""
    try:
        folder = require_run(options.run)
        matrices = server_matrices(state_on_disk(folder))
    except EXPECTED as problem:
        return fail(problem)
    flagged = sum(len(matrix.flagged()) for matrix in matrices)
    if options.json:
        printed([to_json(matrix) for matrix in matrices])
    else:
        for line in _lines(matrices, every=options.all):
            print(line)
    return 1 if flagged else 0


def _lines(matrices: tuple[ServerMatrix, ...], *, every: bool) -> list[str]:
    if not matrices:
        return ["no server of this run was ready yet"]
    lines = []
    for matrix in matrices:
        lines += [*matrix_lines(matrix, every=every), ""]
    flagged = [row.argument for matrix in matrices for row in matrix.flagged()]
    if flagged:
        return [*lines, f"! {', '.join(dict.fromkeys(flagged))}: not as the plan says; pin them in engine.args"]
    return [*lines, "servers differ only as the plan says"]
