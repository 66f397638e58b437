"""Against the output length."""

from collections.abc import Iterator

from ddconsole.report.charts.method_curves import (
    ACCEPTANCE_AXIS,
    RATE_AXIS,
    SPEED_UP_AXIS,
    acceptance,
    marks_of,
    output_rate,
    panels_over,
    speed_up,
)
from ddconsole.report.latex_text import file_stem
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.series import Axis, Chart

_FEWEST = 2


def length_charts(result: ResultSet) -> Iterator[Chart]:
    """One for each tensor-parallel size, workload and load with at least two lengths."""
    found: dict[tuple[int, str, str], list[CellResult]] = {}
    for cell in result.cells:
        found.setdefault((cell.tensor_parallel, cell.point.workload, cell.point.load), []).append(cell)
    for (size, workload, load), cells in found.items():
        lengths = sorted({cell.point.max_tokens for cell in cells if cell.figures})
        if len(lengths) < _FEWEST:
            continue
        at_once = f", {load}" if load != "c1" else ""
        panels = panels_over(
            result,
            cells,
            Axis("output length (tokens)", logarithmic=True, ticks=tuple(map(float, lengths))),
            lambda cell: float(cell.point.max_tokens),
            {
                "output rate": (RATE_AXIS, output_rate),
                "speed-up": (SPEED_UP_AXIS, speed_up),
                "acceptance": (ACCEPTANCE_AXIS, acceptance),
            },
        )
        yield Chart(
            name=f"fig-length-{file_stem(workload, '' if load == 'c1' else load)}-tp{size}",
            caption=(
                f"Against the output length, tensor-parallel size {size}, workload {workload}{at_once}: output rate "
                "per request, speed-up over the baseline at the same length, and acceptance length."
            ),
            panels=panels,
            cells=tuple(cells),
            marks=marks_of(cells),
        )
