"""Curves of methods: who is drawn how, and a cell as a point."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellFigures, CellResult, ResultSet
from ddconsole.report.series import Axis, Curve, Panel, Point, Role, Shape
from ddconsole.report.statistics import Estimate

Figure = Callable[[CellFigures], Estimate | None]
"""What of a cell is drawn."""

RATE_AXIS = Axis("rate per request (tok/s)")
SPEED_UP_AXIS = Axis("speed-up")
ACCEPTANCE_AXIS = Axis("acceptance length τ")


def output_rate(figures: CellFigures) -> Estimate | None:
    """Tokens a second of a request."""
    return figures.output_rate


def speed_up(figures: CellFigures) -> Estimate | None:
    """Over the baseline."""
    return figures.speed_up


def acceptance(figures: CellFigures) -> Estimate | None:
    """Tokens a verify step."""
    return plain(figures.acceptance_length)


def server_rate(figures: CellFigures) -> Estimate | None:
    """Tokens a second of the server."""
    return plain(figures.server_rate)


def median_ttft(figures: CellFigures) -> Estimate | None:
    """Milliseconds, where the sample carries a median."""
    seconds = figures.ttft.at(0.50)
    return None if seconds is None else Estimate(seconds * 1000)


def plain(value: float | None) -> Estimate | None:
    """A figure whose noise is not known."""
    return None if value is None else Estimate(value)


def places(result: ResultSet) -> dict[str, int]:
    """The methods of a run, as shown, numbered from 0."""
    return {name: place for place, name in enumerate(dict.fromkeys(cell.method for cell in result.cells))}


def budget_of(cell: CellResult) -> int | None:
    """The node budget of a cell's method: typed, or a variable of that name."""
    speculative = cell.deployment.speculative
    if speculative is not None and speculative.budget is not None:
        return speculative.budget
    told = cell.deployment.variables.get("budget")
    return told if isinstance(told, int) and not isinstance(told, bool) and told > 0 else None


def role_of(result: ResultSet, cell: CellResult) -> Role:
    """How its method is drawn."""
    if cell.deployment.method == result.baseline:
        return Role.BASELINE
    if budget_of(cell) is not None:
        return Role.TREE
    return Role.CHAIN if cell.deployment.speculative is not None else Role.OTHER


def point_of(cell: CellResult, x: float, figure: Figure, *, label: str = "") -> Point:
    """A cell at `x`; its mark where it has no such figure."""
    y = figure(cell.figures) if cell.figures is not None else None
    return Point(x, y, cell.cell, None if y else _mark(cell), label=label)


def _mark(cell: CellResult) -> Mark:
    return cell.missing_mark if cell.figures is None else Mark.NOT_IN_PLAN


def curves_over(
    result: ResultSet, cells: Iterable[CellResult], x_of: Callable[[CellResult], float], figure: Figure
) -> tuple[Curve, ...]:
    """One curve a method, points ascending in x."""
    by_method: dict[str, list[CellResult]] = {}
    for cell in cells:
        by_method.setdefault(cell.method, []).append(cell)
    numbers = places(result)
    return tuple(
        Curve(
            name=method,
            role=role_of(result, some[0]),
            place=numbers[method],
            points=tuple(point_of(cell, x_of(cell), figure) for cell in sorted(some, key=x_of)),
        )
        for method, some in by_method.items()
    )


def panels_over(
    result: ResultSet,
    cells: Sequence[CellResult],
    x: Axis,
    x_of: Callable[[CellResult], float],
    figures: Mapping[str, tuple[Axis, Figure]],
) -> tuple[Panel, ...]:
    """One panel a figure (by its title), left out where no cell has it."""
    made = (
        Panel(title, x, y, curves_over(result, cells, x_of, figure), Shape.LINE)
        for title, (y, figure) in figures.items()
    )
    return tuple(panel for panel in made if any(curve.known for curve in panel.curves))


def marks_of(cells: Iterable[CellResult]) -> frozenset[Mark]:
    """Of these cells."""
    return frozenset(mark for cell in cells for mark in cell.marks)
