"""What was measured as tables: methods down, workload points across, one table a tensor-parallel size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddconsole.core import states as st
from ddconsole.core.row_text import (
    Baselines,
    acceptance_text,
    cell_figures,
    is_disturbed,
    seconds_short,
    speed_up_text,
)
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import WorkloadPoint
from screens.spans import EMPTY, PHASE_ROLES, Line, Role, Span, cut, line, shown

PointName: TypeAlias = tuple[str, str]
"""Workload, and what distinguishes the point: `c4 512`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that the table can show."""

    name: str
    text: Callable[[CellRow, RunState, Baselines], str]
    width: int = 8
    """Cells of its column where it stands beside others."""


@dataclass(frozen=True, slots=True)
class Grid:
    """Cells of one tensor-parallel size by method and point."""

    tensor_parallel: int
    methods: tuple[str, ...]
    points: tuple[PointName, ...]
    cells: dict[tuple[str, PointName], CellRow]


def rate_text(row: CellRow, state: RunState, known: Baselines) -> str:
    """Median tok/s, marked where it was disturbed or estimated."""
    figures = cell_figures(row)
    if figures is None or figures.output_rate is None:
        return ""
    mark = "!" if is_disturbed(row) else ("~" if figures.estimated else "")
    return f"{mark}{figures.output_rate:.1f}"


def accept_text(row: CellRow, state: RunState, known: Baselines) -> str:
    """Acceptance length."""
    figures = cell_figures(row)
    return "" if figures is None else acceptance_text(row, state, figures)


def ttft_text(row: CellRow, state: RunState, known: Baselines) -> str:
    """Median time to the first token."""
    figures = cell_figures(row)
    return "" if figures is None else seconds_short(figures.ttft)


FIGURES: tuple[Figure, ...] = (
    Figure("tok/s", rate_text),
    Figure("speed-up", speed_up_text, 6),
    Figure("acceptance", accept_text, 6),
    Figure("TTFT", ttft_text),
)
_TOGETHER = FIGURES[:3]
_NAME_WIDTH = 14
_CELL_WIDTH = 8


def point_name(point: WorkloadPoint) -> PointName:
    """How a point is called in a column."""
    return (shown(point.workload), f"{point.load} {point.max_tokens}")


def grids(state: RunState) -> list[Grid]:
    """One grid for each tensor-parallel size, in order of the plan."""
    found: dict[int, dict[tuple[str, PointName], CellRow]] = {}
    for row in state.cells.values():
        deployment = state.deployments[row.cell.deployment]
        key = (shown(deployment.method), point_name(row.cell.point))
        cells = found.setdefault(deployment.tensor_parallel, {})
        if key not in cells or cell_figures(cells[key]) is None:
            cells[key] = row
    return [
        Grid(size, tuple(dict.fromkeys(m for m, _ in cells)), tuple(dict.fromkeys(p for _, p in cells)), cells)
        for size, cells in found.items()
    ]


def table_lines(state: RunState, known: Baselines, figure: int, width: int) -> list[Line]:
    """All grids with one figure, or with three where there is room."""
    lines: list[Line] = []
    for grid in grids(state):
        together = _NAME_WIDTH + len(grid.points) * _width(_TOGETHER) <= width
        figures = _TOGETHER if together and figure == 0 else (FIGURES[figure % len(FIGURES)],)
        lines += _grid_lines(grid, state, known, figures, width)
        lines.append(EMPTY)
    return lines or [line((" no cell yet", Role.DIM))]


def _grid_lines(grid: Grid, state: RunState, known: Baselines, figures: Sequence[Figure], width: int) -> list[Line]:
    size = _width(figures)
    points = grid.points[: max(1, (width - _NAME_WIDTH) // size)]
    more = len(grid.points) - len(points)
    names = " · ".join(figure.name for figure in figures)
    title: list[Span] = [(f" TP{grid.tensor_parallel}  ", Role.TITLE), (names, Role.ACCENT)]
    if more:
        title.append((f"   {more} more at a greater width", Role.DIM))
    first = "".join(text.ljust(size * count) for text, count in _spans_of_workloads(points, size))
    second = "".join(cut(_what_varies(grid, point), size - 1).rjust(size) for point in points)
    lines: list[Line] = [
        tuple(title),
        line((" " * (_NAME_WIDTH + 2) + first.rstrip(), Role.DIM)),
        line((" method".ljust(_NAME_WIDTH) + second, Role.DIM)),
    ]
    return lines + [_method_line(grid, method, points, (state, known), figures) for method in grid.methods]


def _width(figures: Sequence[Figure]) -> int:
    return sum(figure.width for figure in figures) if len(figures) > 1 else _CELL_WIDTH


def _spans_of_workloads(points: Sequence[PointName], size: int) -> list[tuple[str, int]]:
    """Each workload's name once, with the number of its columns."""
    runs: list[list[str]] = []
    for workload, _ in points:
        if runs and runs[-1][0] == workload:
            runs[-1].append(workload)
        else:
            runs.append([workload])
    return [(cut(run[0], size * len(run) - 1), len(run)) for run in runs]


def _what_varies(grid: Grid, point: PointName) -> str:
    """`c4` where a workload's points differ in concurrency, `1024` where they differ in length, else both."""
    mine = [other.split(" ") for workload, other in grid.points if workload == point[0]]
    concurrency, length = point[1].split(" ")
    if len({one[0] for one in mine}) == 1:
        return length
    return concurrency if len({one[1] for one in mine}) == 1 else point[1]


def _method_line(
    grid: Grid,
    method: str,
    points: Sequence[PointName],
    run: tuple[RunState, Baselines],
    figures: Sequence[Figure],
) -> Line:
    state, known = run
    spans: list[Span] = [(" " + cut(method, _NAME_WIDTH - 2).ljust(_NAME_WIDTH - 1), Role.STRONG)]
    for point in points:
        row = grid.cells.get((method, point))
        size = _width(figures)
        if row is None:
            spans.append((" " * size, Role.PLAIN))
        elif not isinstance(row.state, st.Done) and cell_figures(row) is None:
            spans.append((row.state.phase.value.rjust(size)[-size + 1 :].rjust(size), PHASE_ROLES[row.state.phase]))
        else:
            texts = [figure.text(row, state, known) for figure in figures]
            if len(figures) == 1:
                spans.append((texts[0].rjust(size), Role.PLAIN))
            else:
                widths = [figure.width for figure in figures]
                padded = [text.rjust(room) for text, room in zip(texts, widths, strict=True)]
                spans += zip(padded, (Role.PLAIN, Role.GOOD, Role.DIM), strict=True)
    return tuple(spans)
