"""The columns of the sweep table, and which of them a width has room for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ddconsole.core.row_text import RowText

MARGIN = 2
"""Cells before the first column: the cursor's bar and the mark."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column. Those with a lower `rank` stay longer when it gets narrow; rank 0 stays always."""

    field: str
    title: str
    rank: int
    least: int
    """Narrowest width, in cells."""
    most: int
    right: bool = False
    figure: bool = False
    """A cause in words is written across these."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A column with the width it got."""

    column: Column
    width: int


COLUMNS: tuple[Column, ...] = (
    Column("word", "  state", 0, 9, 13),
    Column("method", "method", 0, 6, 18),
    Column("tensor_parallel", "TP", 0, 2, 2, right=True),
    Column("workload", "workload", 0, 8, 16),
    Column("concurrency", "conc", 0, 4, 4, right=True),
    Column("length", "out", 0, 4, 5, right=True),
    Column("rate", "tok/s", 0, 7, 8, right=True, figure=True),
    Column("spread", "(spread)", 4, 8, 8, figure=True),
    Column("speed_up", "speed-up", 1, 8, 8, right=True, figure=True),
    Column("acceptance", "accept", 3, 6, 6, right=True, figure=True),
    Column("ttft", "TTFT", 5, 7, 7, right=True, figure=True),
    Column("count", "n", 6, 5, 7, right=True, figure=True),
    Column("time", "time", 2, 6, 8, right=True, figure=True),
)


def needed_width(column: Column, rows: Iterable[RowText]) -> int:
    """What the column's texts need, within its limits."""
    extra = 2 if column.field == "word" else 0
    widest = max((cell_len(getattr(row, column.field)) + extra for row in rows), default=0)
    return min(column.most, max(column.least, len(column.title), widest))


def fit(widths: Sequence[int], available: int, shift: int = 0) -> list[Placed]:
    """The columns that fit into `available` cells, in order.

    Args:
        widths: what each of `COLUMNS` needs.
        available: cells of the table.
        shift: how many figure columns the operator has moved out to the left. Without it the ranks decide.
    """
    chosen = [Placed(column, width) for column, width in zip(COLUMNS, widths, strict=True)]
    if shift:
        figures = [one for one in chosen if one.column.figure]
        chosen = [one for one in chosen if not one.column.figure] + figures[shift:]
        while chosen and _total(chosen) > available and chosen[-1].column.figure:
            chosen.pop()
    while _total(chosen) > available:
        droppable = [one for one in chosen if one.column.rank > 0]
        if not droppable:
            break
        chosen.remove(max(droppable, key=lambda one: one.column.rank))
    return _shrink(chosen, _total(chosen) - available)


def _total(placed: Sequence[Placed]) -> int:
    return MARGIN + sum(one.width + 1 for one in placed) - 1 if placed else 0


def _shrink(placed: list[Placed], excess: int) -> list[Placed]:
    """Take what is still too much from method and workload."""
    result = []
    for one in placed:
        spare = one.width - one.column.least if one.column.field in {"method", "workload"} else 0
        taken = max(0, min(spare, excess))
        excess -= taken
        result.append(Placed(one.column, one.width - taken))
    return result
