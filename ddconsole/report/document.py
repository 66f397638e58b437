"""The document: all fragments with captions, and the text that the data themselves give."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from ddconsole.core.figures import DEFINITIONS
from ddconsole.report.fragment import Fragment, fill, header, utc
from ddconsole.report.grid import LOAD_MODES
from ddconsole.report.latex_text import latex_text, prose
from ddconsole.report.marks import in_order
from ddconsole.report.result_set import ResultSet
from ddconsole.report.statistics import Sureness
from ddconsole.report.table import mark_text

_SECTIONS = (
    ("Output rate, speed-up and acceptance", ("tab-main", "fig-bars")),
    ("Against the node budget", ("fig-budget",)),
    ("Against the output length", ("fig-length",)),
    ("Under load", ("tab-concurrency", "fig-concurrency", "fig-rate", "fig-pareto")),
    ("Conversations turn by turn", ("tab-turns", "fig-turns")),
    ("Against the tensor-parallel size", ("fig-scaling",)),
    ("Acceptance", ("tab-acceptance", "fig-acceptance")),
    ("Latency", ("tab-latency",)),
    ("Energy and drift", ("fig-energy", "fig-drift")),
    ("What is left out or flagged", ("tab-exclusions",)),
    ("Where and how it was measured", ("tab-design", "tab-environment", "tab-differences")),
)
_SHOWN_DEFINITIONS = ("output_rate", "server_rate", "speed_up", "acceptance", "ttft", "tpot", "chunk_gap")


def document_tex(result: ResultSet, fragments: Sequence[Fragment]) -> str:
    """`main.tex`."""
    sections = [
        {"title": title, "floats": [_float(one) for one in fragments if one.name.startswith(beginnings)]}
        for title, beginnings in _SECTIONS
    ]
    marks = in_order(frozenset(mark for one in fragments for mark in one.marks))
    return fill(
        "main.tex.j2",
        header=header(result),
        title=latex_text(result.plan_name, breakable=True),
        subtitle=latex_text(f"run {result.run} on {result.host}", breakable=True),
        date=utc(result.data_time)[:10],
        simulated=result.simulated,
        what_was_run=_what_was_run(result),
        noise=_noise(result),
        left_out=_left_out(result),
        definitions=[latex_text(DEFINITIONS[name]) for name in _SHOWN_DEFINITIONS],
        legend=[{"sign": mark_text(mark), "text": latex_text(mark.legend)} for mark in marks],
        sections=[section for section in sections if section["floats"]],
    )


def _float(fragment: Fragment) -> dict[str, str]:
    return {
        "kind": "figure" if fragment.is_figure else "table",
        "name": fragment.name,
        "caption": fragment.caption,
    }


def _what_was_run(result: ResultSet) -> list[str]:
    methods = list(dict.fromkeys(cell.method for cell in result.cells))
    sizes = sorted({cell.tensor_parallel for cell in result.cells})
    counted = result.counted()
    launches = sorted({one.figures.launches for one in counted if one.figures})
    requests = sum(one.figures.requests for one in counted if one.figures)
    tokens = sum(one.figures.output_tokens for one in counted if one.figures)
    modes = list(dict.fromkeys(cell.point.kind for cell in result.cells))
    sizes_are = "size" if len(sizes) == 1 else "sizes"
    sentences = [
        (
            f"Plan {result.plan_name} was run on {result.host} with {result.engine}: "
            f"{_number(len(methods), 'method')} ({', '.join(methods)}), tensor-parallel {sizes_are} "
            f"{_listed(map(str, sizes))}; the baseline is {result.baseline}."
        ),
        (
            f"Of {_number(len(result.cells), 'cell')}, {len(counted)} have figures, made from "
            f"{_number(requests, 'request')} with {tokens:,} output tokens, on {_span(launches)} a cell; "
            "every figure was made again from the request records."
        ),
        "Load: " + "; ".join(LOAD_MODES.get(mode, mode) for mode in modes) + ".",
    ]
    if result.outcome != "complete":
        sentences.append(f"The run was not complete when this was exported: {result.outcome}.")
    return [prose(sentence) for sentence in sentences]


def _noise(result: ResultSet) -> str:
    kinds = {one.figures.output_rate.sureness for one in result.counted() if one.figures and one.figures.output_rate}
    texts = []
    if Sureness.INTERVAL in kinds:
        texts.append(
            "Intervals are 95 % Student t intervals of the logarithms of the launches' medians, each launch one value; "
            "those of speed-ups are Welch t intervals over the prompts that both sides have."
        )
    if Sureness.SPREAD in kinds:
        texts.append(
            "Where a cell was measured on fewer than three launches there is no interval; in round brackets stands "
            "half the central 95 % of its requests, which says nothing of the noise between launches."
        )
    return prose(" ".join(texts))


def _left_out(result: ResultSet) -> str:
    missing = Counter(cell.missing_mark.legend for cell in result.cells if cell.figures is None)
    parts = [f"{_number(number, 'cell')} {re.split('[:;,]', legend)[0]}" for legend, number in missing.items()]
    others = sum(any("does not compare" in reason for reason in cell.reasons) for cell in result.cells)
    if others:
        parts.append(f"attempts of {_number(others, 'cell')} made with another driver, build or model than the rest")
    if not parts:
        return "No cell is left out."
    return prose(f"Left out: {'; '.join(parts)}. The reasons are listed in the section on what is left out.")


def _listed(words: Iterable[str]) -> str:
    some = list(words)
    return some[0] if len(some) == 1 else ", ".join(some[:-1]) + " and " + some[-1] if some else "none"


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _span(launches: Sequence[int]) -> str:
    if not launches:
        return "no launch"
    low, high = launches[0], launches[-1]
    return _number(low, "launch").replace("launchs", "launches") if low == high else f"{low} to {high} launches"
