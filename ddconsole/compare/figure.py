"""A comparison as a LaTeX figure: the change of each server with its interval, and of each of its cells."""

from collections.abc import Iterator, Sequence
from itertools import islice

from ddconsole.compare.comparison import Compared, Comparison
from ddconsole.compare.differences import Difference, ServerDifference, Verdict
from ddconsole.compare.tables import comparison_header, difference_fields
from ddconsole.report.cell_fields import csv_text
from ddconsole.report.fragment import Fragment, fill
from ddconsole.report.latex_text import latex_text, number_text
from ddconsole.report.statistics import Estimate
from ddconsole.report.table import fitted_text

_ROWS = 28
"""Servers in one figure."""
_DECIMALS = 4
_STYLES = (
    ("changed cell", "draw=black,fill=ddcC", frozenset(Verdict) - {Verdict.CANNOT_BE_TOLD, Verdict.UNCHANGED}),
    ("cannot be told", "draw=black!45,fill=black!30", frozenset({Verdict.CANNOT_BE_TOLD})),
    ("unchanged cell", "draw=black!45,fill=white", frozenset({Verdict.UNCHANGED})),
)
"""Name, look and verdicts of the cells' dots, apart in grey too."""


def comparison_figures(comparison: Comparison, compared: Compared) -> Iterator[Fragment]:
    """One, or several where there are many servers; none where no cell is in both runs."""
    servers, number = iter(compared.servers), 0
    while some := list(islice(servers, _ROWS)):
        number += 1
        yield _figure(comparison, compared, some, number)


def _figure(comparison: Comparison, compared: Compared, servers: Sequence[ServerDifference], number: int) -> Fragment:
    place = {(one.method, one.tensor_parallel): row for row, one in enumerate(servers)}
    shown = [one for one in compared.differences if one.before.place[:2] in place]
    estimates = [*(one.ratio for one in servers), *(Estimate(one.ratio.value) for one in shown)]
    changes = [_percentage(end) for one in estimates for end in (one.value, one.low, one.high) if end is not None]
    height = 2.4 + 0.62 * len(servers)
    tex = fill(
        "compare-figure.tex.j2",
        header=comparison_header(comparison),
        height=number_text(height, 2),
        low=number_text(min(min(changes) * 1.1, -1.0), _DECIMALS),
        high=number_text(max(max(changes) * 1.1, 1.0), _DECIMALS),
        last=number_text(len(servers) - 0.4, 1),
        across=f"{latex_text(compared.figure.title)}: change from A to B (\\%)",
        legend_drop=number_text(1.5 / height, 3),
        rows=[{"name": fitted_text(one.label, 26, "4.2cm")} for one in servers],
        cells=[
            {"name": name, "style": style, "dots": dots}
            for name, style, verdicts in _STYLES
            if (dots := [_dot(one, place) for one in shown if one.verdict in verdicts])
        ],
        servers=[_server_dot(one, row) for row, one in enumerate(servers)],
        simulated=comparison.simulated,
    )
    runs = [latex_text(side.run, breakable=True) for side in (comparison.before, comparison.after)]
    caption = (
        f"Change of {latex_text(compared.figure.title)} from A (run {runs[0]}) "
        f"to B (run {runs[1]}). Diamond: geometric mean of a server's cells, "
        r"with its 95\,\% interval over launches where both runs have three. "
        f"{len(shown)} cells; those that are in one run only are left out."
    )
    csv = csv_text([difference_fields(comparison, one) for one in shown])
    return Fragment("fig-compare" + (f"-{number}" if number > 1 else ""), tex, csv, caption, frozenset())


def _dot(one: Difference, place: dict[tuple[str, int], int]) -> str:
    """Below its server's diamond."""
    row = place[one.before.place[:2]] + 0.24
    return f"({number_text(_percentage(one.ratio.value), _DECIMALS)},{number_text(row, 2)})"


def _server_dot(one: ServerDifference, row: int) -> str:
    ratio = one.ratio
    above = _percentage(ratio.high) - _percentage(ratio.value) if ratio.high is not None else 0.0
    below = _percentage(ratio.value) - _percentage(ratio.low) if ratio.low is not None else 0.0
    up, down = number_text(max(above, 0.0), _DECIMALS), number_text(max(below, 0.0), _DECIMALS)
    return f"({number_text(_percentage(ratio.value), _DECIMALS)},{row}) += ({up},0) -= ({down},0)"


def _percentage(ratio: float) -> float:
    return (ratio - 1) * 100
