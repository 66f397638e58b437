"""Rate against budget: what a larger draft tree buys, with the methods that have no budget as lines across."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddconsole.core.sweep import WorkloadPoint
from ddconsole.report.bar_figure import error_bar_words
from ddconsole.report.cell_fields import cells_csv
from ddconsole.report.figure_styles import BASELINE, LINES, REFERENCES, legend_columns
from ddconsole.report.fragment import Fragment, fill, header
from ddconsole.report.grid import Grid, grids, point_titles
from ddconsole.report.latex_text import latex_text, number_text
from ddconsole.report.result_set import CellFigures, CellResult, ResultSet
from ddconsole.report.statistics import Estimate
from ddconsole.report.table import fitted_text

_PANELS = 3
_FEWEST_BUDGETS = 2
_DECIMALS = 4


@dataclass(frozen=True, slots=True)
class _Dot:
    """One method of a family at its budget."""

    budget: int
    rate: Estimate
    branches: bool | None


def budget_figures(result: ResultSet) -> Iterator[Fragment]:
    """One for each tensor-parallel size and load mode in which at least two budgets were measured."""
    for whole in grids(result, "single", "conversation"):
        for grid in whole.split(_PANELS):
            if any(len(dots) >= _FEWEST_BUDGETS for point in grid.points for dots in _families(grid, point).values()):
                yield _budget_figure(result, grid)


def _budget_figure(result: ResultSet, grid: Grid) -> Fragment:
    families = list(dict.fromkeys(name for point in grid.points for name in _families(grid, point)))
    flat = [cell for cell in grid.shown() if _budget(cell) is None and cell.figures and cell.figures.output_rate]
    references = list(dict.fromkeys(cell.method for cell in flat))
    budgets = sorted({budget for cell in grid.shown() if cell.figures and (budget := _budget(cell)) is not None})
    panels = []
    for point, title in zip(grid.points, point_titles(grid.points), strict=True):
        found = _families(grid, point)
        panels.append(
            {
                "title": fitted_text(title, 26, "4.2cm"),
                "curves": [_curve(number, name, found.get(name, [])) for number, name in enumerate(families)],
                "lines": [
                    line
                    for number, method in enumerate(references)
                    if (line := _line(result, grid, method, point, number, budgets))
                ],
            }
        )
    hollow = any(
        dot.branches is False for point in grid.points for dots in _families(grid, point).values() for dot in dots
    )
    tex = fill(
        "budget.tex.j2",
        header=header(result),
        panels=panels,
        legend_columns=legend_columns([*(f"{name}, no branches" for name in families), *references]),
        ticks=",".join(str(budget) for budget in budgets if budget & (budget - 1) == 0) or str(budgets[0]),
        minor_ticks=",".join(str(budget) for budget in budgets if budget & (budget - 1)),
        low=number_text(budgets[0] / 1.25, _DECIMALS),
        high=number_text(budgets[-1] * 1.25, _DECIMALS),
        simulated=result.simulated,
    )
    rates = [one.figures.output_rate for one in grid.shown() if one.figures and one.figures.output_rate]
    caption = f"Output rate per request against the node budget, tensor-parallel size {grid.tensor_parallel}. "
    caption += error_bar_words({rate.sureness.value for rate in rates})
    if hollow:
        caption += " Hollow: budgets at which the build's own log shows a chain and no branching tree."
    shown = [cell for cell in grid.shown() if cell.figures]
    marks = frozenset(mark for cell in shown for mark in cell.marks)
    name = f"fig-budget-{grid.kind}-{grid.suffix}"
    return Fragment(name, tex, cells_csv(result, shown), caption, marks)


def _budget(cell: CellResult) -> int | None:
    """The node budget of a cell's method: typed, or a variable of that name."""
    speculative = cell.deployment.speculative
    if speculative is not None and speculative.budget is not None:
        return speculative.budget
    told = cell.deployment.variables.get("budget")
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else None


def _families(grid: Grid, point: WorkloadPoint) -> dict[str, list[_Dot]]:
    """The measured budgets of each kind of speculation, ascending."""
    found: dict[str, list[_Dot]] = {}
    for cell in grid.column(point):
        budget = _budget(cell)
        if budget is None or cell.figures is None or cell.figures.output_rate is None:
            continue
        kind = cell.deployment.speculative.kind if cell.deployment.speculative else "budget"
        found.setdefault(kind, []).append(_Dot(budget, cell.figures.output_rate, cell.figures.branches))
    return {name: sorted(dots, key=lambda dot: dot.budget) for name, dots in found.items()}


def _curve(number: int, name: str, dots: Sequence[_Dot]) -> dict[str, object]:
    return {
        "name": latex_text(name),
        "mark": LINES[number % len(LINES)],
        "line": [_dot(dot) for dot in dots],
        "solid": [_dot(dot) for dot in dots if dot.branches is not False],
        "hollow": [_dot(dot) for dot in dots if dot.branches is False],
    }


def _dot(dot: _Dot) -> str:
    rate = dot.rate
    above = (rate.high if rate.high is not None else rate.value) - rate.value
    below = rate.value - (rate.low if rate.low is not None else rate.value)
    up, down = number_text(max(above, 0.0), _DECIMALS), number_text(max(below, 0.0), _DECIMALS)
    return f"({dot.budget},{number_text(rate.value, _DECIMALS)}) += (0,{up}) -= (0,{down})"


def _line(
    result: ResultSet, grid: Grid, method: str, point: WorkloadPoint, number: int, budgets: Sequence[int]
) -> dict[str, str] | None:
    cell = grid.at(method, point)
    figures: CellFigures | None = cell.figures if cell else None
    if cell is None or figures is None or figures.output_rate is None:
        return None
    height = number_text(figures.output_rate.value, _DECIMALS)
    ends = (number_text(budgets[0] / 1.25, _DECIMALS), number_text(budgets[-1] * 1.25, _DECIMALS))
    is_baseline = cell.deployment.method == result.baseline
    return {
        "name": fitted_text(method, 60, "10cm"),
        "style": BASELINE if is_baseline else REFERENCES[max(number - 1, 0) % len(REFERENCES)],
        "coordinates": f"({ends[0]},{height}) ({ends[1]},{height})",
    }
