"""A comparison as LaTeX tables: what changed, the servers, the cells that changed, and those of one run only."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

import ddconsole
from ddconsole.compare.comparison import Compared, Comparison
from ddconsole.compare.differences import Difference, Verdict, is_too_wide
from ddconsole.compare.side import Side
from ddconsole.compare.text import cells_text, named_changes
from ddconsole.report.cell_fields import Field, csv_text
from ddconsole.report.fragment import SIMULATED_LINE, Fragment, fill, utc
from ddconsole.report.latex_text import comment_text, latex_text, number_text
from ddconsole.report.number_column import NumberColumn, number_column
from ddconsole.report.statistics import Estimate, Sureness
from ddconsole.report.table import RAGGED, RowGroup, row_text

_LINES = 24
"""Rows of words on one page: each may take several lines."""
_ROWS = 46
"""Rows of figures on one page."""

Row = TypeVar("Row")
CHANGED = (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.PERHAPS_WORSE, Verdict.PERHAPS_BETTER, Verdict.CANNOT_BE_TOLD)
"""Verdicts that have a table, in its order."""


def comparison_header(comparison: Comparison) -> str:
    """Where a file comes from, as comment lines: the times are the data's, so that a second export is the same."""
    lines = [f"ddconsole {ddconsole.__version__}, two runs compared"]
    lines += [f"{name}: {_provenance(side)}" for name, side in _sides(comparison)]
    if comparison.simulated:
        lines.append("SIMULATED: these figures were not measured on hardware")
    return "".join(f"% {comment_text(line)}\n" for line in lines)


def _provenance(side: Side) -> str:
    return (
        f"run {side.run} of plan {side.plan_name} on {side.host}, plan sha256 {side.plan_sha256}, {utc(side.data_time)}"
    )


def _sides(comparison: Comparison) -> tuple[tuple[str, Side], tuple[str, Side]]:
    return ("A", comparison.before), ("B", comparison.after)


def change_tables(comparison: Comparison) -> Iterator[Fragment]:
    """What changed in plan, environment and servers; none where nothing did."""
    specs = ["l", rf"{RAGGED}p{{3.2cm}}", rf"{RAGGED}p{{3.6cm}}", rf"{RAGGED}p{{3.6cm}}", rf"{RAGGED}p{{3.8cm}}"]
    head = [row_text(["", "What", "A", "B", "Where"])]
    for number, some in _pages(list(named_changes(comparison.changes.found)), _LINES):
        rows = [
            row_text(
                [
                    one.about,
                    latex_text(name, breakable=True),
                    latex_text(one.before, breakable=True) if one.before is not None else "--",
                    latex_text(one.after, breakable=True) if one.after is not None else "--",
                    latex_text("; ".join(part for part in (one.where, one.note) if part), breakable=True),
                ],
                "0.4ex",
            )
            for name, one in some
        ]
        twin: list[dict[str, Field]] = [
            {
                "about": one.about,
                "what": name,
                "before": one.before,
                "after": one.after,
                "where": one.where,
                "note": one.note,
            }
            for name, one in some
        ]
        caption = "What is different between the two runs beside their figures. " + _equal_words(comparison)
        yield Fragment(
            _name("tab-compare-changes", number),
            _table(comparison, specs, head, [RowGroup("", rows)]),
            csv_text(twin),
            caption,
            frozenset(),
        )


def _equal_words(comparison: Comparison) -> str:
    changes = comparison.changes
    words = {"plan": "of the plan", "environment": "of the environment", "server": "of the servers' arguments"}
    equal = ", ".join(f"{number} {words[about]}" for about, number in changes.equal.items())
    return f"Equal: {equal}." if equal else ""


def server_tables(comparison: Comparison, compared: Compared) -> Iterator[Fragment]:
    """One row for each method and tensor-parallel size."""
    column = number_column([_percentage(one.ratio.value) for one in compared.servers], 1)
    specs = ["l", _signed_spec(column), "l", rf"{RAGGED}p{{6cm}}"]
    head = [row_text(["Server", r"{change (\%)}", r"95\,\% interval", "Cells"])]
    for number, some in _pages(compared.servers, _ROWS):
        rows = [
            row_text(
                [
                    latex_text(one.label, breakable=True),
                    column.cell(
                        _percentage(one.ratio.value), bold=one.verdict in (Verdict.REGRESSED, Verdict.IMPROVED)
                    ),
                    _range(one.ratio),
                    latex_text(cells_text(one)),
                ]
            )
            for one in some
        ]
        twin: list[dict[str, Field]] = [
            {
                "method": one.method,
                "tensor_parallel": one.tensor_parallel,
                "cells": one.cells,
                **_ratio_fields(one.ratio),
                "verdict": one.verdict.value,
                "regressed": one.regressed,
                "improved": one.improved,
                "simulated": comparison.simulated,
            }
            for one in some
        ]
        caption = (
            f"{_figure_words(compared)}: change from A to B for each server, geometric mean over its cells, with its "
            r"95\,\% interval over launches where both runs have three. Bold: it regressed or improved."
        )
        tex = _table(comparison, specs, head, [RowGroup("", rows)])
        yield Fragment(_name("tab-compare-servers", number), tex, csv_text(twin), caption, frozenset())


def cell_tables(comparison: Comparison, compared: Compared) -> Iterator[Fragment]:
    """The cells that are not told as unchanged, regressions first; none where there are none."""
    changed = [one for verdict in CHANGED for one in compared.of(verdict)]
    scale, decimals = compared.figure.scale, compared.figure.decimals
    old = number_column([one.old.value * scale for one in changed], decimals)
    new = number_column([one.new.value * scale for one in changed], decimals)
    change = number_column([_percentage(one.ratio.value) for one in changed], 1)
    specs = [rf"{RAGGED}p{{6.4cm}}", old.spec, new.spec, _signed_spec(change), "l", "r"]
    head = [row_text(["Cell", "{A}", "{B}", r"{change (\%)}", "Range", "$n$"])]
    for number, some in _pages(changed, _ROWS):
        groups = [
            RowGroup(
                verdict.value,
                [
                    row_text(
                        [
                            latex_text(one.label, breakable=True) + _disturbed(one),
                            old.cell(one.old.value * scale),
                            new.cell(one.new.value * scale),
                            change.cell(_percentage(one.ratio.value)),
                            _range(one.ratio),
                            f"{one.launches[0]}/{one.launches[1]}",
                        ]
                    )
                    for one in some
                    if one.verdict is verdict
                ],
            )
            for verdict in CHANGED
            if any(one.verdict is verdict for one in some)
        ]
        caption = _cells_caption(comparison, compared)
        twin = csv_text([difference_fields(comparison, one) for one in some])
        tex = _table(comparison, specs, head, groups)
        yield Fragment(_name("tab-compare-cells", number), tex, twin, caption, frozenset())


def _cells_caption(comparison: Comparison, compared: Compared) -> str:
    unchanged, unsure = (len(compared.of(one)) for one in (Verdict.UNCHANGED, Verdict.CANNOT_BE_TOLD))
    return (
        f"{_figure_words(compared)} of the cells that are not told as unchanged; {unchanged} of "
        f"{len(compared.differences)} are: within {comparison.least * 100:g}\\,\\%, or their interval shows no "
        + (f"change. Of {unsure} it cannot be told: too few launches for an interval. " if unsure else "change. ")
        + "Square brackets: 95\\,\\% interval over launches, of the "
        "prompts that both runs have; round brackets: range of the prompts' ratios within fewer than three launches, "
        "no interval. Regressed and improved: found at a false discovery rate of 5\\,\\% over all cells. "
        "$n$: launches in A and B. d: disturbed in either."
    )


def one_sided_tables(comparison: Comparison) -> Iterator[Fragment]:
    """Cells that have figures in one run only."""
    specs = [rf"{RAGGED}p{{6.4cm}}", "l", rf"{RAGGED}p{{8cm}}"]
    head = [row_text(["Cell", "Measured in", "In the other"])]
    for number, some in _pages(comparison.one_sided, _LINES):
        rows = [
            row_text(
                [
                    latex_text(one.cell.label, breakable=True),
                    "A" if one.in_first else "B",
                    latex_text(one.because, breakable=True),
                ]
            )
            for one in some
        ]
        twin: list[dict[str, Field]] = [
            {
                "cell": one.cell.label,
                "measured_in": "A" if one.in_first else "B",
                "because": one.because,
                "lost": one.lost,
            }
            for one in some
        ]
        yield Fragment(
            _name("tab-compare-one-sided", number),
            _table(comparison, specs, head, [RowGroup("", rows)]),
            csv_text(twin),
            "Cells that have figures in one of the runs only.",
            frozenset(),
        )


def difference_fields(comparison: Comparison, one: Difference) -> dict[str, Field]:
    """A cell as a flat row in full precision."""
    point = one.before.point
    return {
        "cell_a": one.before.cell,
        "cell_b": one.after.cell,
        "method": one.before.deployment.method,
        "tensor_parallel": one.before.deployment.tensor_parallel,
        "workload": point.workload,
        "load_mode": point.kind,
        "concurrency": point.concurrency,
        "request_rate": point.rate,
        "max_tokens": point.max_tokens,
        "verdict": one.verdict.value,
        "a": one.old.value,
        "b": one.new.value,
        **_ratio_fields(one.ratio),
        "p": one.p,
        "prompts": one.prompts,
        "launches_a": one.launches[0],
        "launches_b": one.launches[1],
        "simulated": comparison.simulated,
    }


def _ratio_fields(ratio: Estimate) -> dict[str, Field]:
    return {"ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high, "ratio_range": ratio.sureness.value}


def _figure_words(compared: Compared) -> str:
    return latex_text(compared.figure.title[0].upper() + compared.figure.title[1:])


def _table(comparison: Comparison, specs: Sequence[str], head: Sequence[str], groups: Sequence[RowGroup]) -> str:
    return fill(
        "table.tex.j2",
        header=comparison_header(comparison),
        spec=" ".join(specs),
        width=len(specs),
        head=head,
        groups=groups,
        foot=SIMULATED_LINE if comparison.simulated else "",
    )


def _percentage(ratio: float) -> float:
    return (ratio - 1) * 100


def _signed_spec(column: NumberColumn) -> str:
    """Of a column in which a number may have a minus before it."""
    return f"S[table-format=-{column.integer_digits}.{column.decimals}]"


def _range(ratio: Estimate) -> str:
    if ratio.low is None or ratio.high is None:
        return ""
    if is_too_wide(ratio.low, ratio.high):
        return "(cannot be told)"
    ends = f"{_signed(ratio.low)}, {_signed(ratio.high)}"
    return f"{{[}}{ends}{{]}}" if ratio.sureness is Sureness.INTERVAL else f"({ends})"


def _signed(ratio: float) -> str:
    text = number_text(_percentage(ratio), 1)
    return f"$-${text[1:]}" if text.startswith("-") else text


def _disturbed(one: Difference) -> str:
    return r"\textsuperscript{d}" if one.before.flagged or one.after.flagged else ""


def _name(stem: str, number: int) -> str:
    return stem + (f"-{number}" if number > 1 else "")


def _pages(rows: Sequence[Row], most: int) -> Iterator[tuple[int, list[Row]]]:
    """Parts of at most so many rows, numbered from 1."""
    left, number = iter(rows), 0
    while some := list(islice(left, most)):
        number += 1
        yield number, some
