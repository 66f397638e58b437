"""How acceptance is spread, beside its mean: over verify steps where the engines told them, else over requests."""

import math
from collections.abc import Iterator, Mapping, Sequence

from ddconsole.core.figures import sum_by_position
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
        steps = {name: _steps(cells) for name, cells in by_method.items()}
        if steps and all(steps.values()):
            yield from _step_charts(result, size, by_method, steps)
            continue
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


def _steps(cells: Sequence[CellResult]) -> tuple[int, ...]:
    """Verify steps by how many tokens they gave, from one on; empty where an engine did not tell positions."""
    told = [cell.figures.acceptance.histogram for cell in cells if cell.figures and cell.figures.acceptance]
    return (sum_by_position(told) if len(told) == len(cells) else None) or ()


def _step_charts(
    result: ResultSet, size: int, by_method: Mapping[str, Sequence[CellResult]], steps: Mapping[str, Sequence[int]]
) -> Iterator[Chart]:
    """Where engines told how far each verify step came: the share of the steps by their tokens."""
    most = max(map(len, steps.values()))
    names = tuple(str(tokens) for tokens in range(1, most + 1))
    x = Axis("tokens of a verify step", ticks=tuple(float(place) for place in range(most)), names=names)
    panels = []
    for method, cells in by_method.items():
        counts = [*steps[method], *[0] * (most - len(steps[method]))]
        points = tuple(Point(place, Estimate(count / sum(counts))) for place, count in enumerate(counts))
        curve = Curve(method, role_of(result, cells[0]), places(result)[method], points)
        panels.append(Panel(_title(method, cells), x, Axis("share of verify steps"), (curve,), Shape.BARS))
    shown = tuple(cell for cells in by_method.values() for cell in cells)
    chart = Chart(
        name=f"fig-acceptance-tp{size}",
        caption=(
            f"Tokens of a verify step (accepted drafts and the bonus token), tensor-parallel size {size}, all "
            "workloads together: the share of the steps."
        ),
        panels=tuple(panels),
        cells=shown,
        left_out="Methods whose engine tells no verify steps per request.",
        marks=marks_of(shown),
    )
    yield from in_parts(chart, _PANELS)


def _title(method: str, cells: Sequence[CellResult]) -> str:
    steps = sum(c.figures.acceptance.steps or 0 for c in cells if c.figures and c.figures.acceptance)
    tokens = sum(c.figures.acceptance.tokens for c in cells if c.figures and c.figures.acceptance)
    return f"{method}, τ = {tokens / steps:.2f}" if steps else method


def _lengths(cells: Sequence[CellResult]) -> list[float]:
    return [length for cell in cells if cell.figures for length in cell.figures.request_acceptance]


def _panel(result: ResultSet, cells: Sequence[CellResult], lengths: Sequence[float], edges: Sequence[float]) -> Panel:
    method = cells[0].method
    counts = [0] * (len(edges) - 1)
    for one in lengths:
        counts[min(int((one - edges[0]) / (edges[1] - edges[0]) + 1e-9), len(counts) - 1)] += 1
    points = tuple(Point(place, Estimate(count / len(lengths))) for place, count in enumerate(counts))
    curve = Curve(method, role_of(result, cells[0]), places(result)[method], points)
    x = Axis(
        "acceptance length τ",
        ticks=tuple(float(place) for place in range(len(counts))),
        names=tuple(f"{edge:g}" for edge in edges[:-1]),
    )
    return Panel(_title(method, cells), x, Axis("share of requests"), (curve,), Shape.BARS)


def _edges(lengths: Sequence[float]) -> list[float]:
    """Of the narrowest bins of which at most `_BINS` hold all."""
    low, high = min(lengths), max(lengths)
    for width in _WIDTHS:
        first, last = math.floor(low / width), math.floor(high / width) + 1
        if last - first <= _BINS:
            return [round(place * width, 6) for place in range(first, last + 1)]
    width = (high - low) / _BINS
    return [low + width * place for place in range(_BINS + 1)]
