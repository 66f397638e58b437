"""The charts of the report, for a terminal: bars by method; lines over budget, length, concurrency, size and turns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddconsole.core.row_text import plain_line
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import Deployment, WorkloadPoint
from screens.results_text import Source
from screens.shown_figures import ShownFigure
from screens.widgets.chart import ChartData

BY_TURN = "by turn"
Turns: TypeAlias = Mapping[str, Sequence[tuple[int, float]]]
"""By cell: the output rate at each turn of its conversation."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell with its value."""

    method: str
    deployment: Deployment
    point: WorkloadPoint
    value: float

    @property
    def size(self) -> int:
        return self.deployment.tensor_parallel


Place: TypeAlias = tuple[object, ...]


def charts_of(source: Source, figure: ShownFigure, turns: Turns | None = None) -> dict[str, list[ChartData]]:
    """Every chart for which there are values, by its kind.

    Args:
        source: the run.
        figure: what is drawn upwards.
        turns: rates by turn, where they have been read.
    """
    cells = list(_measured(source, figure))
    kinds: dict[str, list[ChartData]] = {
        "by method": list(_bars(cells, figure)),
        "over budget": list(_over_budget(cells, figure)),
        "over length": list(_lines(cells, figure, "output tokens", _length, _all_but_length)),
        "over concurrency": list(_lines(cells, figure, "concurrent requests", _concurrency, _all_but_concurrency)),
        "over TP": list(_lines(cells, figure, "tensor-parallel size", _size, _all_but_size)),
        BY_TURN: list(_by_turn(source.state, turns or {})),
    }
    return {kind: charts for kind, charts in kinds.items() if charts}


def conversations_done(state: RunState) -> int:
    """How many attempts there are to show by turn."""
    rows = (row for row in state.cells.values() if row.cell.point.kind == "conversation")
    return sum(len(row.done_attempts()) for row in rows)


def _measured(source: Source, figure: ShownFigure) -> Iterator[_Cell]:
    for row in source.state.cells.values():
        value = figure.value(source.measured.of(row), source.state, source.known) if row.attempts else None
        if value is not None:
            deployment = source.state.deployments[row.cell.deployment]
            yield _Cell(plain_line(deployment.method), deployment, row.cell.point, value)


def _bars(cells: Sequence[_Cell], figure: ShownFigure) -> Iterator[ChartData]:
    places: dict[Place, dict[str, float]] = {}
    for one in cells:
        places.setdefault((one.size, *_point(one.point)), {}).setdefault(one.method, one.value)
    for (size, *point), bars in places.items():
        title = f"{figure.with_unit} at TP{size}, {' '.join(map(str, point))}"
        yield ChartData(title, tuple(bars), tuple(bars.values()))


def _point(point: WorkloadPoint) -> Place:
    return plain_line(point.workload), point.load, point.max_tokens


def _over_budget(cells: Sequence[_Cell], figure: ShownFigure) -> Iterator[ChartData]:
    """Each kind of speculation with budgets as a line; methods without one go straight across."""
    places: dict[Place, list[_Cell]] = {}
    for one in cells:
        places.setdefault((one.size, *_point(one.point)), []).append(one)
    for (size, *point), some in places.items():
        families: dict[str, dict[float, float]] = {}
        for one in some:
            speculative = one.deployment.speculative
            if speculative is not None and speculative.budget is not None:
                families.setdefault(speculative.kind, {}).setdefault(float(speculative.budget), one.value)
        lines = {name: tuple(sorted(dots.items())) for name, dots in families.items() if len(dots) > 1}
        if not lines:
            continue
        budgets = [budget for dots in lines.values() for budget, _ in dots]
        ends = (min(budgets), max(budgets))
        for one in some:
            if one.deployment.speculative is None or one.deployment.speculative.budget is None:
                lines.setdefault(one.method, tuple((end, one.value) for end in ends))
        title = f"{figure.with_unit} at TP{size}, {' '.join(map(str, point))}, over the node budget"
        yield ChartData(title, lines=lines, logarithmic=True)


def _lines(
    cells: Sequence[_Cell],
    figure: ShownFigure,
    across: str,
    number: Callable[[_Cell], float | None],
    rest: Callable[[_Cell], Place],
) -> Iterator[ChartData]:
    """A line for each method, over one number, for each of the places in which everything else is equal."""
    places: dict[Place, dict[str, dict[float, float]]] = {}
    for one in cells:
        at = number(one)
        if at is not None:
            places.setdefault(rest(one), {}).setdefault(one.method, {}).setdefault(at, one.value)
    for place, methods in places.items():
        lines = {method: tuple(sorted(dots.items())) for method, dots in methods.items() if len(dots) > 1}
        if lines:
            title = f"{figure.with_unit} at {' '.join(map(str, place))}, over {across}"
            yield ChartData(title, lines=lines, logarithmic=True)


def _length(one: _Cell) -> float | None:
    return float(one.point.max_tokens)


def _all_but_length(one: _Cell) -> Place:
    return f"TP{one.size},", plain_line(one.point.workload), one.point.load


def _concurrency(one: _Cell) -> float | None:
    return float(one.point.concurrency) if one.point.kind == "closed-loop" else None


def _all_but_concurrency(one: _Cell) -> Place:
    return f"TP{one.size},", plain_line(one.point.workload), one.point.max_tokens


def _size(one: _Cell) -> float | None:
    return float(one.size)


def _all_but_size(one: _Cell) -> Place:
    return _point(one.point)


def _by_turn(state: RunState, turns: Turns) -> Iterator[ChartData]:
    places: dict[Place, dict[str, tuple[tuple[float, float], ...]]] = {}
    for name, dots in turns.items():
        row: CellRow | None = state.cells.get(name)
        if row is None or len(dots) < 2:
            continue
        deployment = state.deployments[row.cell.deployment]
        place = (deployment.tensor_parallel, plain_line(row.cell.point.workload), row.cell.point.load)
        line = tuple((float(turn), rate) for turn, rate in dots)
        places.setdefault(place, {}).setdefault(plain_line(deployment.method), line)
    for (size, workload, load), lines in places.items():
        yield ChartData(f"tok/s at TP{size}, {workload} {load}, turn by turn", lines=lines)
