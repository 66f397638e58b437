"""Conversations turn by turn: methods down, turns across."""

from collections.abc import Callable, Iterator, Sequence

from ddconsole.report.cell_fields import Field, csv_text
from ddconsole.report.charts.turns import context_words, conversations
from ddconsole.report.fragment import Fragment
from ddconsole.report.latex_text import file_stem, prose
from ddconsole.report.marks import Mark
from ddconsole.report.number_column import number_column
from ddconsole.report.result_set import CellResult, ResultSet, TurnFigures
from ddconsole.report.standing import load_words, missing_words, sample_words
from ddconsole.report.table import RowGroup, mark_text, method_column, method_text, row_text, table_tex

_TURNS = 8
"""Turns that fit side by side; later ones stand in the twin alone."""

_TTFT = "Time to first token (ms)"
_QUANTITIES: Sequence[tuple[str, int, Callable[[TurnFigures], float | None]]] = (
    ("Output rate (tok/s)", 1, lambda one: one.output_rate.value if one.output_rate else None),
    (r"Acceptance length $\tau$", 2, lambda one: one.acceptance.length if one.acceptance else None),
    (_TTFT, 1, lambda one: one.ttft.value * 1000 if one.ttft else None),
)


def turn_tables(result: ResultSet) -> Iterator[Fragment]:
    """One for each tensor-parallel size and conversation that was measured."""
    for cells in conversations(result):
        turns = sorted({one.turn for cell in cells if cell.figures for one in cell.figures.turns})
        if turns:
            yield _turn_table(result, cells, turns)


def _turn_table(result: ResultSet, cells: Sequence[CellResult], turns: Sequence[int]) -> Fragment:
    point, size = cells[0].point, cells[0].tensor_parallel
    shown = turns[:_TURNS]
    groups = [
        RowGroup(title, [_row(cell, shown, decimals, figure, title) for cell in cells])
        for title, decimals, figure in _QUANTITIES
    ]
    everything = [figure(one) for _, _, figure in _QUANTITIES for cell in cells for one in _turns(cell)]
    column = number_column(everything, 2)
    head = [
        row_text(["", rf"\multicolumn{{{len(shown)}}}{{c}}{{turn}}", ""]),
        rf"\cmidrule(lr){{2-{len(shown) + 1}}}",
        row_text(["Method", *(f"{{{turn}}}" for turn in shown), "{last/first}"]),
    ]
    specs = [method_column([cell.method for cell in cells]), *([column.spec] * len(shown)), "S[table-format=2.2]"]
    left_out = f" Turns after the {shown[-1]}th stand in the CSV twin." if len(turns) > len(shown) else ""
    caption = (
        f"Conversation {point.prompts} (workload {point.workload}, up to {point.max_tokens} tokens a turn) turn by "
        f"turn, tensor-parallel size {size}. Medians of the requests of a turn; their noise stands in the CSV twin. "
        f"{context_words(cells)} {sample_words(cells)} {load_words(cells)} {missing_words(cells)}{left_out}"
    )
    marks = {mark for cell in cells for mark in cell.marks}
    if any(_too_few(cell, turn) for cell in cells for turn in shown):
        marks.add(Mark.NOT_CERTIFIED)
    return Fragment(
        name=f"tab-turns-{file_stem(point.workload, '' if point.load == 'c1' else point.load)}-tp{size}",
        tex=table_tex(result, specs, head, groups),
        csv=csv_text([row for cell in cells for row in _fields(result, cell)]),
        caption=prose(caption),
        marks=frozenset(marks),
    )


def _turns(cell: CellResult) -> Sequence[TurnFigures]:
    return cell.figures.turns if cell.figures else ()


def _too_few(cell: CellResult, turn: int) -> bool:
    """Whether a turn has requests, and too few for the median of a time."""
    return any(one.turn == turn and one.requests and one.ttft is None for one in _turns(cell))


def _row(
    cell: CellResult,
    turns: Sequence[int],
    decimals: int,
    figure: Callable[[TurnFigures], float | None],
    title: str,
) -> str:
    if cell.figures is None:
        gap = rf"\multicolumn{{{len(turns) + 1}}}{{c}}{{{mark_text(cell.missing_mark)}}}"
        return row_text([method_text(cell.method), gap], of=[cell])
    values = {one.turn: value for one in cell.figures.turns if (value := figure(one)) is not None}
    column = number_column(values.values(), decimals)
    first, last = values.get(turns[0]), values.get(turns[-1])
    growth = last / first if first and last is not None else None
    uncertified = f"{{{mark_text(Mark.NOT_CERTIFIED)}}}"
    texts = [
        uncertified if title == _TTFT and _too_few(cell, turn) else column.cell(values.get(turn)) for turn in turns
    ]
    return row_text([method_text(cell.method), *texts, number_column([growth], 2).cell(growth)], of=[cell])


def _fields(result: ResultSet, cell: CellResult) -> Iterator[dict[str, Field]]:
    for one in _turns(cell):
        yield {
            "cell": cell.cell,
            "method": cell.method,
            "tensor_parallel": cell.tensor_parallel,
            "workload": cell.point.workload,
            "turn": one.turn,
            "requests": one.requests,
            "context_tokens": one.context,
            "output_rate": one.output_rate.value if one.output_rate else None,
            "output_rate_low": one.output_rate.low if one.output_rate else None,
            "output_rate_high": one.output_rate.high if one.output_rate else None,
            "output_rate_range": one.output_rate.sureness.value if one.output_rate else "",
            "acceptance_length": one.acceptance.length if one.acceptance else None,
            "ttft_s": one.ttft.value if one.ttft else None,
            "simulated": result.simulated,
        }
