"""A chart as a `tikzpicture` of pgfplots. How it looks stands in `ddconsole-style.tex`, not here."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from ddconsole.report.fragment import Fragment, fill, header
from ddconsole.report.latex_text import folded, latex_text, number_text, prose
from ddconsole.report.result_set import ResultSet
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point, Role, Shape, chart_csv
from ddconsole.report.standing import error_bar_words, load_words, missing_words, sample_words
from ddconsole.report.table import fitted_text, mark_text

STYLES = 12
"""Curves and bars that the style file knows; then they begin again."""

_DECIMALS = 6
_ROOM = 1.25
"""Factor by which a logarithmic axis goes beyond its first and last tick."""
_LEGEND_WIDTHS = ((12, 5), (20, 4), (26, 3), (42, 2))
"""Longest name in characters, and how many names then stand side by side."""
_TITLE_CHARACTERS = {1: 90, 2: 44, 3: 28}
_TITLE_WIDTH = {1: "14cm", 2: "6.6cm", 3: "4.4cm"}


def chart_fragment(result: ResultSet, chart: Chart) -> Fragment:
    """The chart with its caption and its twin."""
    panels = chart.panels
    columns = max(1, min(chart.columns, len(panels), 3))
    rows = math.ceil(len(panels) / columns)
    legend = list(_legend(chart))
    # The legend stands under the first panel of the last row.
    last_row = (rows - 1) * columns
    tex = fill(
        "chart.tex.j2",
        header=header(result),
        columns=columns,
        rows=rows,
        horizontal="1.5" if columns == 3 else "1.7",
        panels=[
            _panel(
                panel,
                _Place(number, columns, bool(legend) and number == last_row, _below(panels[last_row])),
                chart,
                legend,
            )
            for number, panel in enumerate(panels)
        ],
        legend=[one for one in legend if one["kind"] != "bars"],
        simulated=result.simulated,
    )
    return Fragment(chart.name, tex, chart_csv(chart, simulated=result.simulated), _caption(chart), chart.marks)


def _caption(chart: Chart) -> str:
    estimates = [point.y for panel in chart.panels for curve in panel.curves for point in curve.points]
    sentences = [
        chart.caption,
        *chart.notes,
        error_bar_words(estimates),
        sample_words(chart.cells),
        load_words(chart.cells),
        missing_words(chart.cells),
        f"Left out: {chart.left_out[0].lower()}{chart.left_out[1:]}" if chart.left_out else "",
    ]
    return prose(" ".join(one for one in sentences if one))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a panel stands in its figure."""

    number: int
    columns: int
    has_legend: bool
    legend_below: str
    """How far the legend stands below the panel, in cm."""


def _below(panel: Panel) -> str:
    longest = max((len(folded(name)) for name in panel.x.names), default=0)
    return "0.75" if panel.shape is Shape.BARS and not panel.x.label and longest <= 24 else "1.15"


def _panel(panel: Panel, place: _Place, chart: Chart, legend: Sequence[dict[str, str]]) -> dict[str, object]:
    is_bars = panel.shape is Shape.BARS
    return {
        "options": list(_options(panel, place, chart, legend)),
        "bands": [
            {
                "low": _number(max(band.low, min(panel.x.ticks) / _ROOM)),
                "high": _number(min(band.high, max(panel.x.ticks) * _ROOM)),
                "text": latex_text(band.text),
            }
            for band in panel.bands
        ],
        "plots": list(_bars(panel) if is_bars else _lines(panel)),
        "labels": [
            {"x": _number(point.x), "y": _number(point.y.value), "text": latex_text(point.label)}
            for curve in panel.curves
            for point in curve.known
            if point.label and point.y
        ],
        "has_legend": place.has_legend,
    }


def _options(panel: Panel, place: _Place, chart: Chart, legend: Sequence[dict[str, str]]) -> Iterator[str]:
    if panel.title:
        title = fitted_text(panel.title, _TITLE_CHARACTERS[place.columns], _TITLE_WIDTH[place.columns])
        yield f"title={{{title}}}"
    if panel.x.label:
        yield f"xlabel={{{latex_text(panel.x.label)}}}"
    before = chart.panels[place.number - 1] if place.number % place.columns else None
    if before is None or before.y.label != panel.y.label:
        yield f"ylabel={{{latex_text(panel.y.label)}}}"
    yield from _x_options(panel)
    if panel.y.from_zero:
        yield "ymin=0"
        yield "enlarge y limits={value=0.14,upper}"
    else:
        yield "enlarge y limits=0.12"
        yield "y tick label style={/pgf/number format/precision=4}"
    if panel.shape is Shape.BARS:
        yield "ybar=0pt"
        yield "ddc bars axis"
        yield f"bar width={_number(_bar_width(panel, place.columns))}cm"
    if place.has_legend:
        columns = min(max(len(legend), 1), _legend_columns([one["plain"] for one in legend]))
        yield (
            f"legend style={{at={{(rel axis cs:0,0)}},anchor=north west,xshift=-0.9cm,yshift=-{place.legend_below}cm,"
            f"legend columns={columns}}}"
        )


def _x_options(panel: Panel) -> Iterator[str]:
    axis = panel.x
    if axis.logarithmic:
        yield "xmode=log"
        yield "log basis x=2"
        yield f"xmin={_number(axis.ticks[0] / _ROOM)}"
        yield f"xmax={_number(axis.ticks[-1] * _ROOM)}"
        yield "minor x tick num=0"
    elif panel.shape is Shape.BARS:
        yield "xmin=-0.5"
        yield f"xmax={_number(len(axis.ticks) - 0.5)}"
    elif axis.ticks:
        yield f"xmin={_number(axis.ticks[0] - 0.4)}"
        yield f"xmax={_number(axis.ticks[-1] + 0.4)}"
    elif axis.from_zero:
        yield "xmin=0"
        yield "enlarge x limits={value=0.08,upper}"
    named = _named_ticks(axis, panel.shape)
    if named:
        yield f"xtick={{{','.join(_number(x) for x, _ in named)}}}"
        yield f"xticklabels={{{','.join(f'{{{name}}}' for _, name in named)}}}"
    others = [x for x in axis.ticks if x not in {x for x, _ in named}]
    if others:
        yield f"extra x ticks={{{','.join(_number(x) for x in others)}}}"
        yield "extra x tick labels={}"
        yield "extra x tick style={grid=none,major tick length=2pt}"


def _named_ticks(axis: Axis, shape: Shape) -> list[tuple[float, str]]:
    """Those that have a name: of a logarithmic axis the powers of two, where it has any; of many bins every other."""
    if axis.names:
        step = 1 if len(axis.names) <= 6 or shape is not Shape.BARS or axis.label == "" else 2
        width = min(24, 72 // max(len(axis.names), 1))
        return [
            (x, fitted_text(name, width, f"{min(3.9, 12.6 / len(axis.names)):.1f}cm"))
            for x, name in list(zip(axis.ticks, axis.names, strict=True))[::step]
        ]
    powers = [x for x in axis.ticks if axis.logarithmic and x > 0 and math.log2(x).is_integer()]
    return [(x, f"{x:g}") for x in (powers or axis.ticks)]


def _bar_width(panel: Panel, columns: int) -> float:
    """All bars of a group together fill four fifths of the distance to the next group; cm."""
    inner = {1: 13.4, 2: 6.2, 3: 3.9}[columns]
    return min(inner / len(panel.x.ticks) * 0.8 / max(len(panel.curves), 1), 0.9)


def _style(curve: Curve) -> str:
    if curve.role is Role.FRONTIER:
        return "ddc role frontier"
    level = ",ddc level" if curve.is_level else ""
    return f"ddc curve {curve.place % STYLES + 1},ddc role {curve.role.value}{level}"


def _bars(panel: Panel) -> Iterator[dict[str, object]]:
    for curve in panel.curves:
        yield {
            "style": f"ddc bar {curve.place % STYLES + 1}",
            "coordinates": [_bar(point) for point in curve.points],
            "name": fitted_text(curve.name, 60, "10cm"),
            "bars": True,
        }


def _bar(point: Point) -> str:
    """`(x, y) +- (0, up) -= (0, down) [word]`; a missing figure is a bar of no height under its mark."""
    if point.y is None:
        return f"({point.x:g},0) += (0,0) -= (0,0) [{mark_text(point.mark) if point.mark else ''}]"
    return f"{_coordinate(point)} []"


def _lines(panel: Panel) -> Iterator[dict[str, object]]:
    for curve in panel.curves:
        if curve.is_level:
            yield {"style": _style(curve), "coordinates": _level(panel.x, curve.points[0]), "bars": False}
            continue
        for is_known, some in groupby(curve.points, lambda point: point.y is not None):
            segment = list(some)
            if is_known and panel.shape is Shape.LINE and len(segment) > 1:
                yield {
                    "style": f"{_style(curve)},no marks",
                    "coordinates": [f"({_number(one.x)},{_number(one.y.value)})" for one in segment if one.y],
                    "bars": False,
                }
        if curve.role is Role.FRONTIER:
            continue
        for hollow in (False, True):
            dots = [_coordinate(point) for point in curve.known if point.hollow is hollow]
            if dots:
                more = ",ddc hollow" if hollow else ""
                yield {"style": f"{_style(curve)}{more},only marks", "coordinates": dots, "bars": False}


def _level(axis: Axis, point: Point) -> list[str]:
    assert point.y is not None
    height = _number(point.y.value)
    return [f"({_number(x)},{height})" for x in (axis.ticks[0] / _ROOM, axis.ticks[-1] * _ROOM)]


def _coordinate(point: Point) -> str:
    y = point.y
    assert y is not None
    up = max((y.high if y.high is not None else y.value) - y.value, 0.0)
    down = max(y.value - (y.low if y.low is not None else y.value), 0.0)
    return f"({_number(point.x)},{_number(y.value)}) += (0,{_number(up)}) -= (0,{_number(down)})"


def _number(value: float) -> str:
    """Without zeros at the end."""
    text = number_text(value, _DECIMALS)
    return text.rstrip("0").rstrip(".")


def _legend(chart: Chart) -> Iterator[dict[str, str]]:
    """Every curve of any panel once; none where each panel's title names its only curve."""
    alone = all(len(panel.curves) == 1 and panel.title.startswith(panel.curves[0].name) for panel in chart.panels)
    if alone:
        return
    found: dict[str, tuple[Curve, bool]] = {}
    hollow: set[str] = set()
    for panel in chart.panels:
        for curve in panel.curves:
            if curve.known or panel.shape is Shape.BARS:
                found.setdefault(curve.name, (curve, panel.shape is Shape.BARS))
            if any(point.hollow for point in curve.known):
                hollow.add(curve.name)
    for name in sorted(found, key=lambda one: found[one][0].place):
        curve, is_bars = found[name]
        kind = "bars" if is_bars else "line"
        yield {"kind": kind, "style": _style(curve), "name": fitted_text(name, 60, "10cm"), "plain": name}
        if name in hollow and not is_bars:
            text = f"{name}, no branches"
            style = f"{_style(curve)},ddc hollow,only marks"
            yield {"kind": "line", "style": style, "name": fitted_text(text, 60, "10cm"), "plain": text}


def _legend_columns(names: Sequence[str]) -> int:
    longest = max((len(folded(name)) for name in names), default=0)
    return next((columns for characters, columns in _LEGEND_WIDTHS if longest <= characters), 1)
