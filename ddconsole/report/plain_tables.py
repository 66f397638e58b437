"""Tables of words: what is left out or flagged, where it was measured, and how compared servers differ."""

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TypeVar

from ddconsole.report.cell_fields import csv_text
from ddconsole.report.fragment import Fragment, utc
from ddconsole.report.latex_text import folded, latex_text
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.table import RAGGED, RowGroup, fitted_text, mark_text, row_text, table_tex

T = TypeVar("T")

_LINES = 50
"""Lines of words in small print on one page."""
_CHARACTERS = 6.0
"""Of small print that surely fit into a centimetre of a column, with its ragged ends."""
_WHICH, _REASON = 5.2, 6.2
_ARGUMENT, _VALUE, _DEPLOYMENTS = 4.2, 3.0, 7.5
"""Widths of columns in centimetres."""


def exclusion_tables(result: ResultSet) -> Iterator[Fragment]:
    """Every cell without figures and every one that is flagged, with the reason; the same reason stands once."""
    cells = [cell for cell in result.cells if cell.figures is None or cell.reasons]
    by_reason: dict[tuple[str, str], list[CellResult]] = {}
    for cell in cells:
        by_reason.setdefault((_state(cell), "; ".join(cell.reasons)), []).append(cell)
    rows = [(state, some, reason) for (state, reason), some in by_reason.items()]
    heights = [_height((_named(some), _WHICH), (reason, _REASON)) for _, some, reason in rows]
    for part, chunk in enumerate(_pages(rows, heights), start=1):
        yield _exclusions(result, chunk, part)


def _exclusions(result: ResultSet, rows: Sequence[tuple[str, list[CellResult], str]], part: int) -> Fragment:
    texts = [
        row_text(
            [
                state,
                str(len(cells)),
                latex_text(_named(cells), breakable=True),
                str(sum(cell.tries for cell in cells)),
                latex_text(reason, breakable=True),
            ],
            "0.4ex",
        )
        for state, cells, reason in rows
    ]
    head = [row_text(["State", "Cells", "Which", "Attempts", "Reason"])]
    specs = ["l", "r", rf"{RAGGED}p{{{_WHICH}cm}}", "r", rf"{RAGGED}p{{{_REASON}cm}}"]
    shown = [cell for _, cells, _ in rows for cell in cells]
    csv = csv_text(
        [
            {
                "cell": cell.cell,
                "label": cell.label,
                "state": cell.phase.value,
                "attempts": cell.tries,
                "has_figures": cell.figures is not None,
                "reasons": "; ".join(cell.reasons),
                "simulated": result.simulated,
            }
            for cell in shown
        ]
    )
    return Fragment(
        name="tab-exclusions" + (f"-{part}" if part > 1 else ""),
        tex=table_tex(result, specs, head, [RowGroup("", texts)]),
        csv=csv,
        caption=(
            "What is left out of the tables and figures, and what stands in them but is flagged. "
            "Attempts: of any outcome."
        ),
        marks=frozenset(mark for cell in shown if cell.figures is None for mark in cell.marks),
    )


def _state(cell: CellResult) -> str:
    """`skip`, `fail`, ... for what has no figures; else whether its figures are flagged or incomplete."""
    if cell.figures is None:
        return mark_text(cell.missing_mark)
    return "flagged" if cell.phase.value == "done" else cell.phase.value


def _named(cells: Sequence[CellResult]) -> str:
    """Which cells: the label of one; ids as ranges, methods and tensor-parallel sizes of many."""
    if len(cells) == 1:
        return f"{cells[0].cell}: {cells[0].label}"
    methods = ", ".join(dict.fromkeys(cell.method for cell in cells))
    sizes = ", ".join(dict.fromkeys(f"TP{cell.tensor_parallel}" for cell in cells))
    return f"{_ranges([cell.cell for cell in cells])}: {methods}; {sizes}"


def _ranges(ids: Sequence[str]) -> str:
    """`c001-c003, c007`."""
    numbers = [(int(one[1:]) if one[1:].isdigit() else None, one) for one in ids]
    texts = []
    for _, run in groupby(enumerate(numbers), lambda pair: None if pair[1][0] is None else pair[1][0] - pair[0]):
        names = [name for _, (_, name) in run]
        texts.append(names[0] if len(names) == 1 else f"{names[0]}-{names[-1]}")
    return ", ".join(texts)


def environment_table(result: ResultSet) -> Fragment:
    """Where and how it was measured: all that the counted attempts share."""
    lines = [
        ("plan", result.plan_name),
        ("plan sha256", result.plan_sha256),
        ("run", result.run),
        ("host", result.host),
        ("engine", result.engine),
        *result.environment,
        ("baseline", result.baseline),
        *((f"protocol {name}", str(value)) for name, value in sorted(result.protocol.items())),
        ("intervals", "95 %, t over the logarithms of the launches' medians"),
        ("run with", f"ddconsole {result.version}"),
        ("data from", f"{utc(result.began)} to {utc(result.data_time)}"),
        ("result set sha256", result.sha256),
    ]
    rows = [row_text([fitted_text(name, 28, "4.2cm"), latex_text(value, breakable=True)]) for name, value in lines]
    return Fragment(
        name="tab-environment",
        tex=table_tex(result, ["l", rf"{RAGGED}p{{10.5cm}}"], [row_text(["What", "Value"])], [RowGroup("", rows)]),
        csv=csv_text([{"what": name, "value": value, "simulated": result.simulated} for name, value in lines]),
        caption="Where and how it was measured.",
        marks=frozenset(),
    )


def difference_tables(result: ResultSet) -> Iterator[Fragment]:
    """Server arguments that compared deployments do not share; none where they share all."""
    lines = [(one.argument, value, ", ".join(who)) for one in result.differences for value, who in one.values]
    widths = (_ARGUMENT, _VALUE, _DEPLOYMENTS)
    heights = [_height(*zip(line, widths, strict=True)) for line in lines]
    for part, chunk in enumerate(_pages(lines, heights), start=1):
        yield _differences(result, chunk, part)


def _height(*columns: tuple[str, float]) -> float:
    """Lines that a row takes at most, with the gap below it."""
    return 0.3 + max(math.ceil(len(folded(text)) / (_CHARACTERS * width)) for text, width in columns)


def _pages(rows: Sequence[T], heights: Sequence[float]) -> Iterator[list[T]]:
    """The rows in parts that fit on a page."""
    page: list[T] = []
    filled = 0.0
    for row, height in zip(rows, heights, strict=True):
        if page and filled + height > _LINES:
            yield page
            page, filled = [], 0.0
        page.append(row)
        filled += height
    if page:
        yield page


def _differences(result: ResultSet, lines: Sequence[tuple[str, str, str]], part: int) -> Fragment:
    rows = [row_text([latex_text(text, breakable=True) for text in line], "0.4ex") for line in lines]
    specs = [rf"{RAGGED}p{{{width}cm}}" for width in (_ARGUMENT, _VALUE, _DEPLOYMENTS)]
    names = ("argument", "value", "deployments")
    return Fragment(
        name="tab-differences" + (f"-{part}" if part > 1 else ""),
        tex=table_tex(result, specs, [row_text(["Argument", "Value", "Deployments"])], [RowGroup("", rows)]),
        csv=csv_text([{**dict(zip(names, line, strict=True)), "simulated": result.simulated} for line in lines]),
        caption="Effective server arguments in which compared deployments differ, as the servers told them.",
        marks=frozenset(),
    )
