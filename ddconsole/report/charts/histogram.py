"""How acceptance is spread over requests, beside its mean."""

import math
from collections.abc import Iterator, Sequence

from ddconsole.report.charts.method_curves import marks_of, places, role_of
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point, Shape, in_parts
from ddconsole.report.statistics import Estimate

_PANELS = 9
_BINS = 12
_WIDTHS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0)


def acceptance_charts(result: ResultSet) -> Iterator[Chart]:
    """One for each tensor-parallel size, one panel a method that speculates; all its workloads together."""
    for size in sorted({cell.tensor_parallel for cell in result.cells}):
        by_method: dict[str, list[CellResult]] = {}
        for cell in result.counted():
            if cell.tensor_parallel == size and cell.figures and cell.figures.request_acceptance:
                by_method.setdefault(cell.method, []).append(cell)
        lengths = {name: _lengths(cells) for name, cells in by_method.items()}
        if not lengths:
            continue
        edges = _edges([one for some in lengths.values() for one in some])
        shown = tuple(cell for cells in by_method.values() for cell in cells)
        panels = tuple(_panel(result, cells, lengths[name], edges) for name, cells in by_method.items())
        chart = Chart(
            name=f"fig-acceptance-tp{size}",
            caption=(
                f"Acceptance lengths of the requests, tensor-parallel size {size}, all workloads together: the share "
                "of the requests whose own mean lies in each bin."
            ),
            panels=panels,
            cells=shown,
            notes=(f"Bins are {edges[1] - edges[0]:g} wide; numbers below are where they begin.",),
            left_out="Methods whose engine tells no verify steps per request.",
            marks=marks_of(shown),
        )
        yield from in_parts(chart, _PANELS)


def _lengths(cells: Sequence[CellResult]) -> list[float]:
    return [length for cell in cells if cell.figures for length in cell.figures.request_acceptance]


def _panel(result: ResultSet, cells: Sequence[CellResult], lengths: Sequence[float], edges: Sequence[float]) -> Panel:
    method = cells[0].method
    counts = [0] * (len(edges) - 1)
    for one in lengths:
        counts[min(int((one - edges[0]) / (edges[1] - edges[0]) + 1e-9), len(counts) - 1)] += 1
    steps = sum(c.figures.acceptance.steps or 0 for c in cells if c.figures and c.figures.acceptance)
    tokens = sum(c.figures.acceptance.tokens for c in cells if c.figures and c.figures.acceptance)
    points = tuple(Point(place, Estimate(count / len(lengths))) for place, count in enumerate(counts))
    curve = Curve(method, role_of(result, cells[0]), places(result)[method], points)
    x = Axis(
        "acceptance length τ",
        ticks=tuple(float(place) for place in range(len(counts))),
        names=tuple(f"{edge:g}" for edge in edges[:-1]),
    )
    mean = f", τ = {tokens / steps:.2f}" if steps else ""
    return Panel(f"{method}{mean}", x, Axis("share of requests"), (curve,), Shape.BARS)


def _edges(lengths: Sequence[float]) -> list[float]:
    """Of the narrowest bins of which at most `_BINS` hold all."""
    low, high = min(lengths), max(lengths)
    for width in _WIDTHS:
        first, last = math.floor(low / width), math.floor(high / width) + 1
        if last - first <= _BINS:
            return [round(place * width, 6) for place in range(first, last + 1)]
    width = (high - low) / _BINS
    return [low + width * place for place in range(_BINS + 1)]
