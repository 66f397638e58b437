"""Conversations turn by turn: how a context that grows changes the figures."""

from collections.abc import Callable, Iterator, Sequence

from ddconsole.report.charts.method_curves import ACCEPTANCE_AXIS, RATE_AXIS, marks_of, places, plain, role_of
from ddconsole.report.latex_text import file_stem
from ddconsole.report.result_set import CellResult, PointKey, ResultSet, TurnFigures, point_key
from ddconsole.report.series import Axis, Chart, Curve, Panel, Point
from ddconsole.report.statistics import Estimate


def turn_charts(result: ResultSet) -> Iterator[Chart]:
    """One for each tensor-parallel size and conversation."""
    for cells in conversations(result):
        turns = sorted({one.turn for cell in cells if cell.figures for one in cell.figures.turns})
        if len(turns) < 2:
            continue
        x = Axis("turn", ticks=tuple(map(float, turns)))
        panels = tuple(
            Panel(title, x, y, tuple(_curve(result, cell, figure) for cell in cells))
            for title, y, figure in (
                ("output rate", RATE_AXIS, _rate),
                ("acceptance", ACCEPTANCE_AXIS, _acceptance),
                ("time to first token", Axis("TTFT, median (ms)"), _ttft),
            )
        )
        point, size = cells[0].point, cells[0].tensor_parallel
        yield Chart(
            name=f"fig-turns-{file_stem(point.workload, '' if point.load == 'c1' else point.load)}-tp{size}",
            caption=(
                f"Turn by turn, conversation {point.prompts} (workload {point.workload}, up to {point.max_tokens} "
                f"tokens a turn), tensor-parallel size {size}."
            ),
            panels=tuple(panel for panel in panels if any(curve.known for curve in panel.curves)),
            cells=tuple(cells),
            notes=(context_words(cells),),
            marks=marks_of(cells),
        )


def conversations(result: ResultSet) -> Iterator[list[CellResult]]:
    """The cells of one conversation at one tensor-parallel size, with those that have no figures."""
    found: dict[tuple[int, PointKey], list[CellResult]] = {}
    for cell in result.cells:
        if cell.point.kind == "conversation":
            found.setdefault((cell.tensor_parallel, point_key(cell.point)), []).append(cell)
    yield from (cells for _, cells in sorted(found.items(), key=lambda one: one[0][0]))


def context_words(cells: Sequence[CellResult]) -> str:
    """How long the context is at each turn, as a sentence."""
    contexts: dict[int, list[float]] = {}
    for cell in cells:
        for one in cell.figures.turns if cell.figures else ():
            if one.context is not None:
                contexts.setdefault(one.turn, []).append(one.context)
    if not contexts:
        return "The engine did not tell the length of the context."
    texts = []
    for turn in sorted(contexts):
        low, high = min(contexts[turn]), max(contexts[turn])
        texts.append(f"{low:,.0f}" if low == high else f"{low:,.0f} to {high:,.0f}")
    return f"Context at the turns, in prompt tokens: {'; '.join(texts)}."


def _curve(result: ResultSet, cell: CellResult, figure: Callable[[TurnFigures], Estimate | None]) -> Curve:
    turns = cell.figures.turns if cell.figures else ()
    points = tuple(Point(float(one.turn), y, cell.cell) for one in turns if (y := figure(one)) is not None)
    return Curve(cell.method, role_of(result, cell), places(result)[cell.method], points)


def _rate(turn: TurnFigures) -> Estimate | None:
    return turn.output_rate


def _acceptance(turn: TurnFigures) -> Estimate | None:
    return plain(turn.acceptance.length if turn.acceptance else None)


def _ttft(turn: TurnFigures) -> Estimate | None:
    return turn.ttft.times(1000) if turn.ttft else None
