"""What was measured as tables: methods down, workload points across, one table a tensor-parallel size."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddconsole.core import states as st
from ddconsole.core.fold import CellRow, RunState
from ddconsole.core.row_text import Baselines, acceptance_text, cell_figures, point_key, seconds_short
from ddconsole.core.sweep import WorkloadPoint
from screens.spans import EMPTY, PHASE_ROLES, Line, Role, Span, cut, line, shown

PointName: TypeAlias = tuple[str, str]
"""Workload, and what distinguishes the point: `c4 512`."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that the table can show."""

    name: str
    text: Callable[[CellRow, RunState, Baselines], str]


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
    disturbed = any(attempt.flags for attempt in row.done_attempts())
    mark = "!" if disturbed else ("~" if figures.estimated else "")
    return f"{mark}{figures.output_rate:.1f}"


def speed_up_text(row: CellRow, state: RunState, known: Baselines) -> str:
    """Median tok/s over the baseline's."""
    figures = cell_figures(row)
    baseline = known.get(point_key(row, state))
    if figures is None or figures.output_rate is None or not baseline:
        return ""
    return f"{figures.output_rate / baseline:.2f}"


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
    Figure("speed-up", speed_up_text),
    Figure("acceptance", accept_text),
    Figure("TTFT", ttft_text),
)
_TOGETHER = FIGURES[:3]
_NAME_WIDTH = 14
_CELL_WIDTH = 8


def point_name(point: WorkloadPoint) -> PointName:
    """How a point is called in a column."""
    return (shown(point.workload), f"c{point.concurrency} {point.max_tokens}")


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
        together = _NAME_WIDTH + len(grid.points) * _CELL_WIDTH * len(_TOGETHER) <= width
        figures = _TOGETHER if together and figure == 0 else (FIGURES[figure % len(FIGURES)],)
        lines += _grid_lines(grid, state, known, figures, width)
        lines.append(EMPTY)
    return lines or [line((" no cell yet", Role.DIM))]


def _grid_lines(
    grid: Grid, state: RunState, known: Baselines, figures: Sequence[Figure], width: int
) -> list[Line]:
    size = _CELL_WIDTH * len(figures)
    room = max(1, (width - _NAME_WIDTH) // size)
    points = grid.points[:room]
    more = len(grid.points) - len(points)
    names = " · ".join(figure.name for figure in figures)
    title: list[Span] = [(f" TP{grid.tensor_parallel}  ", Role.TITLE), (names, Role.ACCENT)]
    if more:
        title.append((f"   {more} more columns at a greater width", Role.DIM))
    heads = [(workload, rest) for workload, rest in points]
    first = "".join(cut(workload, size - 1).rjust(size) for workload, _ in heads)
    second = "".join(cut(rest, size - 1).rjust(size) for _, rest in heads)
    lines: list[Line] = [
        tuple(title),
        line((" " * _NAME_WIDTH + first, Role.DIM)),
        line((" method".ljust(_NAME_WIDTH) + second, Role.DIM)),
    ]
    return lines + [_method_line(grid, method, points, (state, known), figures) for method in grid.methods]


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
        size = _CELL_WIDTH * len(figures)
        if row is None:
            spans.append((" " * size, Role.PLAIN))
        elif not isinstance(row.state, st.Done) and cell_figures(row) is None:
            spans.append((row.state.phase.value.rjust(size)[-size + 1 :].rjust(size), PHASE_ROLES[row.state.phase]))
        else:
            roles = (Role.PLAIN, Role.GOOD, Role.DIM)
            for number, figure in enumerate(figures):
                text = figure.text(row, state, known)
                spans.append((text.rjust(_CELL_WIDTH), roles[number] if len(figures) > 1 else Role.PLAIN))
    return tuple(spans)
