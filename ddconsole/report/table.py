"""A table's frame: what all tables share."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddconsole.report.fragment import SIMULATED_LINE, fill, header
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult, ResultSet

_MARK_IN_TEXT = {Mark.NOT_CERTIFIED: r"\textdagger{}"}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows under one title (LaTeX, may be empty); rows are made by `row_text`."""

    title: str
    rows: Sequence[str]


def table_tex(result: ResultSet, specs: Sequence[str], head: Sequence[str], groups: Sequence[RowGroup]) -> str:
    """A complete tabular. Head and rows are made by `row_text`; a simulated run says so in the last line."""
    foot = SIMULATED_LINE if result.simulated else ""
    return fill(
        "table.tex.j2",
        header=header(result),
        spec=" ".join(specs),
        width=len(specs),
        head=head,
        groups=groups,
        foot=foot,
    )


def row_text(cells: Sequence[str], gap: str = "") -> str:
    """One row with its end, and a gap below it such as `0.4ex`."""
    return " & ".join(cells) + r" \\" + (f"[{gap}]" if gap else "")


def mark_text(mark: Mark) -> str:
    """A mark as LaTeX, in place of a figure."""
    return _MARK_IN_TEXT.get(mark, mark.sign)


def beside_figure(cell: CellResult) -> list[Mark]:
    """The marks that stand beside a cell's figures. That a run is simulated stands once under the table."""
    return [mark for mark in cell.marks if not mark.replaces_figure and mark is not Mark.SIMULATED]


def raised(marks: Sequence[Mark]) -> str:
    """Marks as a superscript; empty where there are none."""
    letters = ",".join(mark.sign for mark in marks)
    return rf"\textsuperscript{{{letters}}}" if letters else ""
