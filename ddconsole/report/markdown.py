"""All cells as Markdown tables, one for each tensor-parallel size: to paste into an issue or a wiki."""

import re
from collections.abc import Iterable, Iterator, Sequence

from ddconsole.core.visible_text import visible_line
from ddconsole.report.fragment import utc
from ddconsole.report.marks import in_order
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.statistics import Estimate, Sureness

_HEAD = ("method", "workload", "load", "tokens", "tok/s", "speed-up", "acceptance", "TTFT p50", "n", "marks")
_LEFT = 3
"""Columns of words; numbers follow."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def markdown_text(result: ResultSet) -> str:
    """The document."""
    return "\n".join(_lines(result)) + "\n"


def _lines(result: ResultSet) -> Iterator[str]:
    yield f"# {_plain(result.plan_name)}"
    yield ""
    if result.simulated:
        yield "**SIMULATED: these figures were not measured on hardware.**"
        yield ""
    yield (
        f"Run {_plain(result.run)} on {_plain(result.host)} with {_plain(result.engine)}, {utc(result.data_time)}, "
        f"baseline {_plain(result.baseline)}. tok/s: median over requests, 95 % interval over launches in square "
        "brackets, half the central 95 % of the requests of fewer than three launches in round ones."
    )
    for size in sorted({cell.tensor_parallel for cell in result.cells}):
        yield ""
        yield f"## Tensor-parallel size {size}"
        yield ""
        yield from _table([cell for cell in result.cells if cell.tensor_parallel == size])
    marks = in_order(frozenset(mark for cell in result.cells for mark in cell.marks))
    if marks:
        yield ""
        yield from (f"- {_plain(mark.sign)}: {_plain(mark.legend)}" for mark in marks)
    reasons = [cell for cell in result.cells if cell.reasons]
    if reasons:
        yield ""
        yield "## What is left out or flagged"
        yield ""
        yield from (f"- {cell.cell} {_plain(cell.label)}: {_plain('; '.join(cell.reasons))}" for cell in reasons)


def _table(cells: Sequence[CellResult]) -> Iterator[str]:
    yield _row(_HEAD)
    yield _row(["---" if number < _LEFT else "---:" for number in range(len(_HEAD))])
    yield from (_row(_fields(cell)) for cell in cells)


def _fields(cell: CellResult) -> Iterable[str]:
    point, figures = cell.point, cell.figures
    which = (_plain(cell.method), _plain(point.workload), point.load, str(point.max_tokens))
    if figures is None:
        return (*which, _plain(cell.missing_mark.sign), "", "", "", "", "")
    length, first = figures.acceptance_length, figures.ttft.at(0.50)
    signs = [_plain(mark.sign) for mark in cell.marks if not mark.replaces_figure]
    count = str(figures.succeeded) + ("" if figures.succeeded == figures.requests else f"/{figures.requests}")
    return (
        *which,
        _estimate(figures.output_rate, 1),
        _estimate(figures.speed_up, 2),
        "" if length is None else f"{length:.2f}",
        "" if first is None else f"{first * 1000:.1f} ms",
        count,
        " ".join(signs),
    )


def _estimate(estimate: Estimate | None, decimals: int) -> str:
    if estimate is None:
        return ""
    text = f"{estimate.value:.{decimals}f}"
    if estimate.low is None or estimate.high is None or estimate.low == estimate.high:
        return text
    if estimate.sureness is Sureness.SPREAD:
        return f"{text} ({(estimate.high - estimate.low) / 2:.{decimals}f})"
    return f"{text} \\[{estimate.low:.{decimals}f}, {estimate.high:.{decimals}f}\\]"


def _row(fields: Iterable[str]) -> str:
    return f"| {' | '.join(fields)} |"


def _plain(text: str) -> str:
    """Anything from outside as one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", visible_line(text))
