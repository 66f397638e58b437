"""What a GPU gives against what one request waits for: server rate per GPU against the time per output token."""

from collections.abc import Iterator, Sequence

from ddconsole.report.charts.method_curves import marks_of, places, role_of
from ddconsole.report.latex_text import file_stem
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point, Role
from ddconsole.report.statistics import Estimate

_X = Axis("TPOT, median (ms)")
_Y = Axis("server tok/s per GPU")


def pareto_charts(result: ResultSet) -> Iterator[Chart]:
    """One for each workload under load and its length, one panel a tensor-parallel size, one curve a method."""
    found: dict[tuple[str, str, int], list[CellResult]] = {}
    for cell in result.cells:
        if cell.point.kind in {"closed-loop", "open-loop"}:
            found.setdefault((cell.point.kind, cell.point.workload, cell.point.max_tokens), []).append(cell)
    for (_, workload, length), cells in found.items():
        placed = [(cell, place) for cell in cells if (place := _place(cell)) is not None]
        if len(placed) < 2:
            continue
        frontier = _frontier([place for _, place in placed])
        panels = []
        for size in sorted({cell.tensor_parallel for cell, _ in placed}):
            own = [(cell, place) for cell, place in placed if cell.tensor_parallel == size]
            curves = _curves(result, own, frontier)
            best = Curve("best of all sizes", Role.FRONTIER, -1, tuple(Point(x, Estimate(y)) for x, y in frontier))
            panels.append(Panel(f"tensor-parallel size {size}", _X, _Y, (best, *curves)))
        yield Chart(
            name=f"fig-pareto-{file_stem(workload)}-{length}",
            caption=(
                "What a GPU gives against what a request waits for: all output tokens a second over the number of "
                f"GPUs, against the median time per output token; workload {workload}, {length} tokens. "
                "Up and left is better."
            ),
            panels=tuple(panels),
            cells=tuple(cells),
            notes=(
                "Grey: the best of all methods and sizes; numbers there: requests at once.",
                "Drawn where at least 11 requests carry the median.",
            ),
            columns=2,
            marks=marks_of(cells),
        )


def _place(cell: CellResult) -> tuple[float, float] | None:
    figures = cell.figures
    if figures is None or figures.server_rate is None or (tpot := figures.tpot.at(0.50)) is None:
        return None
    return tpot * 1000, figures.server_rate / cell.tensor_parallel


def _curves(
    result: ResultSet,
    placed: Sequence[tuple[CellResult, tuple[float, float]]],
    frontier: Sequence[tuple[float, float]],
) -> Iterator[Curve]:
    """One a method; points that nothing beats have their load beside them."""
    by_method: dict[str, list[tuple[CellResult, tuple[float, float]]]] = {}
    for cell, place in placed:
        by_method.setdefault(cell.method, []).append((cell, place))
    for method, some in by_method.items():
        ordered = sorted(some, key=lambda one: (one[0].point.rate or 0.0, one[0].point.concurrency))
        points = tuple(
            Point(x, Estimate(y), cell.cell, label=cell.point.load.removeprefix("c") if (x, y) in frontier else "")
            for cell, (x, y) in ordered
        )
        yield Curve(method, role_of(result, some[0][0]), places(result)[method], points)


def _frontier(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Those that no other one beats in both, from the fastest request to the busiest GPU."""
    best: list[tuple[float, float]] = []
    for x, y in sorted(points, key=lambda one: (one[0], -one[1])):
        if not best or y > best[-1][1]:
            best.append((x, y))
    return best
