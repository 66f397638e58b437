r"""`results-macros.tex`: every figure as a macro, for numbers in prose.

Names are letters only: `\ddcRateDdtreeBOneFiveTpOneGenerateCOneLTwoFiveSix` is the rate of ddtree-b15 at TP1, workload
generate, concurrency 1, length 256. The macro of a figure that is missing stops LaTeX and says which.
"""

from collections.abc import Callable

from ddconsole.report.fragment import header
from ddconsole.report.latex_text import comment_text, macro_letters, number_text
from ddconsole.report.result_set import CellFigures, CellResult, ResultSet

_FIGURES: tuple[tuple[str, int, Callable[[CellFigures], float | None]], ...] = (
    ("Rate", 1, lambda one: one.output_rate.value if one.output_rate else None),
    ("ServerRate", 1, lambda one: one.server_rate),
    ("SpeedUp", 2, lambda one: one.speed_up.value if one.speed_up else None),
    ("Acceptance", 2, lambda one: one.acceptance_length),
    ("TtftMs", 1, lambda one: None if (seconds := one.ttft.at(0.50)) is None else seconds * 1000),
)

_MISSING = r"""\providecommand{\ddcMissing}[1]{%
  \PackageError{ddconsole}{No number for #1}{The cell has no such figure: see tab-exclusions.}}
"""


def macros_tex(result: ResultSet) -> str:
    """The file."""
    lines = [header(result), _MISSING]
    taken: set[str] = set()
    for cell in result.cells:
        stem = _stem(cell)
        if stem in taken:
            stem += macro_letters(cell.cell)
        taken.add(stem)
        for name, decimals, figure in _FIGURES:
            value = figure(cell.figures) if cell.figures else None
            if value is None:
                body = rf"\ddcMissing{{{comment_text(f'{name} of {cell.label} ({cell.cell} is {cell.phase.value})')}}}"
            else:
                body = number_text(value, decimals)
            lines.append(rf"\newcommand{{\ddc{name}{stem}}}{{{body}}}" + "\n")
    return "".join(lines)


def _stem(cell: CellResult) -> str:
    point = cell.point
    load = f"C {point.concurrency}" if point.rate is None else f"R {point.rate:g}".replace(".", " P ")
    return macro_letters(f"{cell.method} Tp {cell.tensor_parallel} {point.workload} {load} L {point.max_tokens}")
