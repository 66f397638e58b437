"""The design of the experiment: what each workload asked, how often, and by which rules."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from ddconsole.core.sweep import WorkloadPoint
from ddconsole.report.cell_fields import Field, csv_text
from ddconsole.report.fragment import Fragment
from ddconsole.report.latex_text import latex_text, prose
from ddconsole.report.result_set import CellResult, PointKey, ResultSet, point_key
from ddconsole.report.table import RAGGED, RowGroup, row_text, table_tex

_LINES = 30
"""Rows on one page: each may take two lines."""


def design_tables(result: ResultSet) -> Iterator[Fragment]:
    """One line a workload point."""
    by_point: dict[PointKey, list[CellResult]] = {}
    for cell in result.cells:
        by_point.setdefault(point_key(cell.point), []).append(cell)
    rest = iter(by_point.values())
    part = 0
    while chunk := list(islice(rest, _LINES)):
        part += 1
        yield _table(result, chunk, part)


def _table(result: ResultSet, points: Sequence[Sequence[CellResult]], part: int) -> Fragment:
    rows = [
        row_text(
            [
                latex_text(cells[0].point.workload, breakable=True),
                latex_text(cells[0].point.kind),
                latex_text(cells[0].point.prompts, breakable=True),
                latex_text(cells[0].point.load),
                str(cells[0].point.max_tokens),
                f"{cells[0].point.requests}",
                f"{cells[0].point.repetitions}",
                _span([cell.figures.launches for cell in cells if cell.figures]),
                f"{sum(1 for cell in cells if cell.figures)}/{len(cells)}",
                latex_text(_sampling(cells[0].point), breakable=True),
            ],
            "0.2ex",
        )
        for cells in points
    ]
    head = [
        row_text(["", "", "", "", r"\multicolumn{2}{c}{of one repetition}", "repe-", "", "cells with", ""]),
        row_text(
            ["Workload", "Kind", "Prompts", "Load", "tokens", "requests", "titions", "launches", "figures", "Sampling"]
        ),
    ]
    narrow = rf"{RAGGED}p{{2.15cm}}"
    specs = [narrow, "l", narrow, "l", "r", "r", "r", "r", "r", rf"{RAGGED}p{{2.3cm}}"]
    return Fragment(
        name="tab-design" + (f"-{part}" if part > 1 else ""),
        tex=table_tex(result, specs, head, [RowGroup("", rows)]),
        csv=csv_text([_fields(result, cells) for cells in points]),
        caption=prose(" ".join(_rules(result.protocol))),
        marks=frozenset(),
    )


def _rules(protocol: Mapping[str, Any]) -> list[str]:
    """The protocol in sentences; what it does not say is not said."""
    rules = ["Design: what each workload asked for, how often, and how many of its cells have figures."]
    if "launches" in protocol:
        launches = protocol["launches"]
        rules.append(f"The plan asks for {launches} {'launch' if launches == 1 else 'launches'} of each server.")
    if "warmup" in protocol:
        warmup = protocol["warmup"]
        rules.append(
            "Warm-up: one request for each stream before the measured ones."
            if warmup == "auto"
            else f"Warm-up: {warmup} requests before the measured ones."
        )
    if "flush_cache" in protocol:
        was = "was" if protocol["flush_cache"] else "was not"
        rules.append(f"The prefix cache {was} flushed before each cell but conversations.")
    if protocol.get("order"):
        rules.append(f"Order of launches and cells: {protocol['order']}.")
    if isinstance(repeat := protocol.get("repeat"), Mapping):
        rules.append(
            f"Cells were measured again until half their interval was at most {repeat.get('until')} of their rate, "
            f"{repeat.get('most')} launches at most."
        )
    if isinstance(prune := protocol.get("prune"), Mapping):
        rules.append(f"A method whose first cell gave less than {prune.get('below')} of the best rate stopped there.")
    if "failure_limit" in protocol:
        rules.append(f"A cell counts if at most {float(protocol['failure_limit']):.0%} of its requests failed.")
    rules.append("Intervals: 95 %, from three launches on, Student's t over the logarithms of the launches' medians.")
    return rules


def _sampling(point: WorkloadPoint) -> str:
    sampling = point.sampling
    parts = ["greedy" if sampling.temperature == 0 else f"temperature {sampling.temperature:g}"]
    if sampling.temperature > 0 and sampling.seed is not None:
        parts.append(f"seed {sampling.seed}")
    parts.append("fixed length" if sampling.ignore_eos else "ends by itself")
    if sampling.thinking is not None:
        parts.append("thinking" if sampling.thinking else "no thinking")
    return ", ".join(parts)


def _span(numbers: Sequence[int]) -> str:
    if not numbers:
        return "0"
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low}-{high}"


def _fields(result: ResultSet, cells: Sequence[CellResult]) -> dict[str, Field]:
    point = cells[0].point
    return {
        "workload": point.workload,
        "kind": point.kind,
        "prompts": point.prompts,
        "concurrency": point.concurrency,
        "request_rate": point.rate,
        "max_tokens": point.max_tokens,
        "requests": point.requests,
        "repetitions": point.repetitions,
        "launches": _span([cell.figures.launches for cell in cells if cell.figures]),
        "cells": len(cells),
        "cells_with_figures": sum(1 for cell in cells if cell.figures),
        "sampling": _sampling(point),
        "simulated": result.simulated,
    }
