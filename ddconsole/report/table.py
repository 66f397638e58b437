"""A table's frame: what all tables share."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddconsole.report.fragment import SIMULATED_LINE, fill, header
from ddconsole.report.latex_text import comment_text, folded, latex_text
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult, ResultSet

RAGGED = r">{\raggedright\arraybackslash}"
"""Before a `p` column: no hyphenation games in narrow columns."""

PAGE_LINES = 50
"""Rows of a table in small print on one page, with its caption."""

LONG_NAME = 24
"""Characters of a method's name from which its column breaks lines."""

_FITS_ANY_COLUMN = 14
"""Characters that never need a break."""

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
        head=[line for line in head if line],
        groups=groups,
        foot=foot,
    )


def row_text(cells: Sequence[str], gap: str = "", of: Iterable[CellResult] | None = None) -> str:
    """One row with its end, a gap below it such as `0.4ex`, and in a comment the cells that its figures are of."""
    names = "" if of is None else comment_text(" ".join(cell.cell for cell in of)) or "none"
    return " & ".join(cells) + r" \\" + (f"[{gap}]" if gap else "") + (f" % {names}" if names else "")


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


def method_column(methods: Sequence[str]) -> str:
    """The spec of a column of method names: as wide as they are, or breaking lines where one is long."""
    return rf"{RAGGED}p{{3.4cm}}" if has_long_names(methods) else "l"


def has_long_names(names: Sequence[str]) -> bool:
    """Whether a name is so long that its column breaks lines."""
    return any(len(folded(name)) > LONG_NAME for name in names)


def method_text(method: str) -> str:
    """A method's name for such a column."""
    return latex_text(method, breakable=len(folded(method)) > _FITS_ANY_COLUMN)


def name_lines(method: str) -> int:
    """How many lines a method's name takes in such a column, at most."""
    length = len(folded(method))
    return 1 if length <= LONG_NAME else math.ceil(length / 11)


def fitted_text(text: str, characters: int, width: str) -> str:
    """`text`, in a box of `width` that breaks lines where it is longer than so many characters."""
    if len(folded(text)) <= characters:
        return latex_text(text)
    return rf"\parbox[b]{{{width}}}{{\raggedright {latex_text(text, breakable=True)}}}"
