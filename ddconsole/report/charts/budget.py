"""Against the node budget: what a larger draft tree buys, and what it costs in acceptance and in equal outputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ddconsole.report.charts.method_curves import (
    ACCEPTANCE_AXIS,
    RATE_AXIS,
    Figure,
    acceptance,
    budget_of,
    marks_of,
    output_rate,
    places,
    plain,
    point_of,
    role_of,
)
from ddconsole.report.grid import Grid, grids, point_titles
from ddconsole.report.result_set import CellFigures, CellResult, ResultSet
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point, Role
from ddconsole.report.statistics import Estimate

_ROWS = 3
_FEWEST_BUDGETS = 2


def _equal(figures: CellFigures) -> Estimate | None:
    return plain(figures.outputs.share if figures.outputs else None)


_QUANTITIES: Mapping[str, tuple[Axis, Figure]] = {
    "rate": (RATE_AXIS, output_rate),
    "acceptance": (ACCEPTANCE_AXIS, acceptance),
    "equal outputs": (Axis("equal outputs (share)"), _equal),
}


def budget_charts(result: ResultSet) -> Iterator[Chart]:
    """One for each tensor-parallel size and load mode in which at least two budgets were measured."""
    for whole in grids(result, "single", "conversation"):
        points = [point for point in whole.points if len(_budgets(whole.column(point))) >= _FEWEST_BUDGETS]
        if points:
            for grid in replace(whole, points=tuple(points)).split(_ROWS):
                yield _chart(result, grid)


def _chart(result: ResultSet, grid: Grid) -> Chart:
    shown = [cell for cell in grid.shown() if cell.figures or budget_of(cell) is not None]
    known = {name for name, (_, figure) in _QUANTITIES.items() if _is_known(shown, figure)}
    panels = []
    for point, title in zip(grid.points, point_titles(grid.points), strict=True):
        budgets = _budgets(grid.column(point))
        x = Axis("node budget", logarithmic=True, ticks=tuple(map(float, budgets)))
        for name, (y, figure) in _QUANTITIES.items():
            if name in known:
                panels.append(Panel(title, x, y, _curves(result, grid.column(point), figure)))
    notes = ["Methods without a budget are lines across: dashed where they speculate, dotted the baseline."]
    hollow = [cell for cell in shown if cell.figures and cell.figures.branches is False and budget_of(cell)]
    if hollow:
        notes.append("Hollow: budgets at which the build's own log shows a chain and no branching tree.")
    untold = [cell for cell in shown if cell.figures and cell.figures.branches is None and budget_of(cell)]
    if untold and not hollow:
        notes.append("Whether a budget branches is not told by this build.")
    if "equal outputs" in known:
        notes.append("Outputs may also differ because sums are rounded otherwise when requests are batched otherwise.")
    return Chart(
        name=f"fig-budget-{grid.kind}-{grid.suffix}",
        caption=(
            f"Against the node budget, tensor-parallel size {grid.tensor_parallel}: output rate per request, "
            "acceptance length, and the share of outputs that are the baseline's under greedy decoding."
        ),
        panels=tuple(panels),
        cells=tuple(shown),
        notes=tuple(notes),
        columns=max(len(known), 1),
        marks=marks_of(shown),
    )


def _is_known(cells: Sequence[CellResult], figure: Figure) -> bool:
    return any(figure(cell.figures) is not None for cell in cells if cell.figures and budget_of(cell) is not None)


def _budgets(cells: Sequence[CellResult]) -> list[int]:
    rated = (cell for cell in cells if cell.figures and cell.figures.output_rate)
    return sorted({budget for cell in rated if (budget := budget_of(cell)) is not None})


def _point(cell: CellResult, budget: int, figure: Figure) -> Point:
    """Hollow where the build's own log shows a chain."""
    hollow = cell.figures is not None and cell.figures.branches is False
    return replace(point_of(cell, budget, figure), hollow=hollow)


def _curves(result: ResultSet, cells: Sequence[CellResult], figure: Figure) -> tuple[Curve, ...]:
    """One curve for each kind of speculation with budgets, one level for each method without."""
    families: dict[str, list[tuple[int, CellResult]]] = {}
    levels = []
    numbers = places(result)
    for cell in cells:
        budget = budget_of(cell)
        if budget is not None:
            kind = cell.deployment.speculative.kind if cell.deployment.speculative else "budget"
            families.setdefault(kind, []).append((budget, cell))
        elif cell.figures is not None and (level := figure(cell.figures)) is not None:
            point = Point(0.0, level, cell.cell)
            levels.append(Curve(cell.method, role_of(result, cell), numbers[cell.method], (point,), is_level=True))
    curves = []
    for kind, some in families.items():
        points = tuple(_point(cell, budget, figure) for budget, cell in sorted(some, key=lambda pair: pair[0]))
        curves.append(Curve(kind, Role.TREE, min(numbers[cell.method] for _, cell in some), points))
    return (*curves, *levels)
