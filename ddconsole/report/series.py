"""Figures as data: what is drawn, before it is LaTeX or a chart in the terminal. Nothing here knows either.

A chart is a grid of panels that share their curves' names; a panel has one axis of x and one of y.
`ddconsole.report.charts` makes all charts of a result set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from ddconsole.report.cell_fields import Field, csv_text
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult
from ddconsole.report.statistics import Estimate


class Role(StrEnum):
    """What a curve stands for: a renderer draws each kind its own way."""

    BASELINE = "baseline"
    """Dotted."""
    CHAIN = "chain"
    """Speculation without a budget, such as DFlash: dashed."""
    TREE = "tree"
    """Speculation with a node budget."""
    OTHER = "other"
    FRONTIER = "frontier"
    """No method: the best of all, behind the curves."""


class Shape(StrEnum):
    """How a panel's points are drawn."""

    LINE = "line"
    """Joined: between two points something could be measured."""
    BARS = "bars"
    """Side by side in groups: x counts the groups from 0."""
    DOTS = "dots"
    """Not joined."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis."""

    label: str
    """With its unit in brackets."""
    logarithmic: bool = False
    """To the base of two."""
    ticks: tuple[float, ...] = ()
    """Where numbers stand; left to the renderer where empty."""
    names: tuple[str, ...] = ()
    """In place of numbers, one for each tick."""
    from_zero: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """One figure. `y` is None where a mark stands in its place."""

    x: float
    y: Estimate | None
    cell: str = ""
    mark: Mark | None = None
    hollow: bool = False
    """Of another kind than the rest of its curve: the chart's notes say which."""
    label: str = ""
    """A short word beside it."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one method, in the order in which they are joined."""

    name: str
    role: Role
    place: int
    """Which of the run's methods it is, from 0: the same in every chart of the run, so that its look is."""
    points: tuple[Point, ...]
    is_level: bool = False
    """One figure for all x: a line across."""

    @property
    def known(self) -> tuple[Point, ...]:
        """The points with a figure."""
        return tuple(one for one in self.points if one.y is not None)


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of the x axis with a meaning."""

    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True)
class Panel:
    """One coordinate system."""

    title: str
    x: Axis
    y: Axis
    curves: tuple[Curve, ...]
    shape: Shape = Shape.LINE
    bands: tuple[Band, ...] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """One figure with all that is to be said of it. Texts are plain."""

    name: str
    """File name without its end."""
    caption: str
    """What it shows; what it stands on comes after it."""
    panels: tuple[Panel, ...]
    cells: tuple[CellResult, ...]
    """Those that it is made from, with the ones that are missing."""
    notes: tuple[str, ...] = ()
    """How to read it."""
    left_out: str = ""
    """What is not in it, and where that stands."""
    columns: int = 3
    """Panels side by side."""
    marks: frozenset[Mark] = field(default_factory=frozenset)

    def curve_names(self) -> tuple[str, ...]:
        """Of all panels, each once, in the order of the run's methods."""
        found = {curve.name: curve.place for panel in self.panels for curve in panel.curves if curve.known}
        return tuple(sorted(found, key=lambda name: found[name]))


def chart_csv(chart: Chart, *, simulated: bool) -> str:
    """Every point in full precision, with the cell that it comes from."""
    return csv_text(list(_rows(chart, simulated)))


def _rows(chart: Chart, simulated: bool) -> Iterator[dict[str, Field]]:
    for panel in chart.panels:
        for curve in panel.curves:
            for point in curve.points:
                yield {
                    "panel": panel.title,
                    "curve": curve.name,
                    "x_is": panel.x.label,
                    "y_is": panel.y.label,
                    "x": point.x,
                    "x_name": _name(panel.x, point.x),
                    "y": point.y.value if point.y else None,
                    "low": point.y.low if point.y else None,
                    "high": point.y.high if point.y else None,
                    "range": point.y.sureness.value if point.y else "",
                    "mark": point.mark.name.lower().replace("_", "-") if point.mark else "",
                    "hollow": point.hollow,
                    "cell": point.cell,
                    "simulated": simulated,
                }


def _name(axis: Axis, x: float) -> str:
    return axis.names[int(x)] if axis.names and x in range(len(axis.names)) else ""


def in_parts(chart: Chart, panels: int) -> Iterator[Chart]:
    """The chart in parts of at most so many panels, each a figure of its own; the file names count from the second."""
    groups: list[Sequence[Panel]] = [chart.panels[at : at + panels] for at in range(0, len(chart.panels), panels)]
    for number, some in enumerate(groups, start=1):
        shown = {point.cell for panel in some for curve in panel.curves for point in curve.points}
        yield replace(
            chart,
            name=chart.name + (f"-{number}" if number > 1 else ""),
            panels=tuple(some),
            cells=chart.cells if shown == {""} else tuple(cell for cell in chart.cells if cell.cell in shown),
        )
