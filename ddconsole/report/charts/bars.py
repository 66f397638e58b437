"""Grouped bars: one group a workload point, one bar a method."""

from collections.abc import Iterator

from ddconsole.report.charts.method_curves import RATE_AXIS, Figure, output_rate, places, plain, point_of, role_of
from ddconsole.report.grid import Grid, grids, point_titles
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellFigures, ResultSet
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point, Role, Shape
from ddconsole.report.statistics import Estimate

_GROUPS = 3
_BARS = 12
"""Groups and bars that fit side by side on a page."""

_ENERGY_AXIS = Axis("energy per output token (J)")


def rate_charts(result: ResultSet) -> Iterator[Chart]:
    """Output rate, for each tensor-parallel size of single generations and of conversations."""
    for whole in grids(result, "single", "conversation"):
        for grid in whole.split(_GROUPS, _BARS):
            yield Chart(
                name=f"fig-bars-{grid.kind}-{grid.suffix}",
                caption=f"Output rate per request, median, tensor-parallel size {grid.tensor_parallel}.",
                panels=(_panel(result, grid, RATE_AXIS, output_rate),),
                cells=tuple(grid.shown()),
                notes=("A word in place of a bar says why there is none.",),
                columns=1,
                marks=grid.marks(),
            )


def energy_charts(result: ResultSet) -> Iterator[Chart]:
    """Energy of all GPUs over the output tokens, where it was read while each cell was measured."""
    for whole in grids(result):
        if not any(_energy(cell.figures) for cell in whole.shown() if cell.figures):
            continue
        for grid in whole.split(_GROUPS + 1, _BARS):
            told = {cell.figures.energy_from for cell in grid.shown() if cell.figures} - {""}
            sources = " and ".join(_SOURCES.get(one, one) for one in sorted(told))
            yield Chart(
                name=f"fig-energy-{grid.kind}-{grid.suffix}",
                caption=(
                    "Energy of all GPUs of the server over all output tokens, tensor-parallel size "
                    f"{grid.tensor_parallel}."
                ),
                panels=(_panel(result, grid, _ENERGY_AXIS, _energy),),
                cells=tuple(grid.shown()),
                notes=(
                    f"From the cards' {sources}; the host's own power is not in it.",
                    "A word in place of a bar says why there is none.",
                ),
                columns=1,
                marks=grid.marks(),
            )


_SOURCES = {"counter": "energy counters", "mean power": "mean power and the duration"}


def _energy(figures: CellFigures) -> Estimate | None:
    return plain(figures.energy_per_token)


def _panel(result: ResultSet, grid: Grid, y: Axis, figure: Figure) -> Panel:
    titles = tuple(point_titles(grid.points))
    x = Axis("", ticks=tuple(float(place) for place in range(len(titles))), names=titles)
    return Panel("", x, y, tuple(_bar(result, grid, method, figure) for method in grid.methods), Shape.BARS)


def _bar(result: ResultSet, grid: Grid, method: str, figure: Figure) -> Curve:
    points = []
    role = Role.OTHER
    for place, asked in enumerate(grid.points):
        cell = grid.at(method, asked)
        if cell is None:
            points.append(Point(place, None, mark=Mark.NOT_IN_PLAN))
        else:
            points.append(point_of(cell, place, figure))
            role = role_of(result, cell)
    return Curve(method, role, places(result)[method], tuple(points))
