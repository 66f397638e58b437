"""Acceptance and its price: one line a method and tensor-parallel size, over all its workloads."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from ddconsole.report.cell_fields import Field, csv_text
from ddconsole.report.charts.method_curves import budget_of
from ddconsole.report.fragment import Fragment
from ddconsole.report.latex_text import latex_text, prose
from ddconsole.report.marks import Mark
from ddconsole.report.number_column import number_column
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.standing import load_words, sample_words
from ddconsole.report.table import PAGE_LINES, RowGroup, method_column, method_text, row_text, table_tex


@dataclass(frozen=True, slots=True)
class _Line:
    """One method at one size; only cells whose acceptance is known."""

    method: str
    size: int
    cells: tuple[CellResult, ...]

    @property
    def tokens(self) -> int:
        return sum(one.figures.acceptance.tokens for one in self.cells if one.figures and one.figures.acceptance)

    @property
    def steps(self) -> int:
        return sum(one.figures.acceptance.steps or 0 for one in self.cells if one.figures and one.figures.acceptance)

    @property
    def lengths(self) -> list[float]:
        return [x for one in self.cells if one.figures and (x := one.figures.acceptance_length) is not None]

    @property
    def step_time(self) -> float | None:
        """Milliseconds, the median of the cells with one request at a time."""
        known = [one.figures.step_time for one in self.cells if one.figures and one.point.concurrency == 1]
        times = [one * 1000 for one in known if one is not None]
        return statistics.median(times) if times else None

    @property
    def equal(self) -> tuple[int, int] | None:
        """Outputs that are the baseline's, of those compared."""
        told = [one.figures.outputs for one in self.cells if one.figures and one.figures.outputs]
        return (sum(one.equal for one in told), sum(one.compared for one in told)) if told else None

    @property
    def branches(self) -> str:
        """`yes`, `no`, or `unknown` where the build does not tell; `-` without a budget."""
        if budget_of(self.cells[0]) is None:
            return "-"
        told = {one.figures.branches for one in self.cells if one.figures}
        return "yes" if told == {True} else "no" if told == {False} else "unknown"


def acceptance_tables(result: ResultSet) -> Iterator[Fragment]:
    """None where no method speculates."""
    by_line: dict[tuple[int, str], list[CellResult]] = {}
    for cell in result.counted():
        if cell.figures and cell.figures.acceptance_length is not None:
            by_line.setdefault((cell.tensor_parallel, cell.method), []).append(cell)
    lines = [_Line(method, size, tuple(cells)) for (size, method), cells in by_line.items()]
    if all(line.cells[0].deployment.method == result.baseline for line in lines):
        return
    rest = iter(sorted(lines, key=lambda line: line.size))
    part = 0
    while chunk := list(islice(rest, PAGE_LINES - 6)):
        part += 1
        yield _table(result, chunk, part)


def _table(result: ResultSet, lines: Sequence[_Line], part: int) -> Fragment:
    times = number_column([line.step_time for line in lines], 1)
    lengths = number_column([x for line in lines for x in line.lengths], 2)
    steps = number_column([float(line.steps) for line in lines], 0)
    sizes = list(dict.fromkeys(line.size for line in lines))
    groups = [
        RowGroup(
            f"Tensor-parallel size {size}",
            [
                row_text(
                    [
                        method_text(line.method),
                        _depth(line.cells[0]),
                        line.branches,
                        lengths.cell(line.tokens / line.steps),
                        lengths.cell(min(line.lengths)),
                        lengths.cell(max(line.lengths)),
                        steps.cell(float(line.steps)),
                        times.cell(line.step_time),
                        f"{line.equal[0]}/{line.equal[1]}" if line.equal else "",
                    ],
                    of=line.cells,
                )
                for line in lines
                if line.size == size
            ],
        )
        for size in sizes
    ]
    head = [
        row_text(["", "", "", r"\multicolumn{3}{c}{$\tau$}", "", "{step}", ""]),
        r"\cmidrule(lr){4-6}",
        row_text(["Method", "drafts", "branches", "{all}", "{lowest}", "{highest}", "{steps}", "{(ms)}", "equal"]),
    ]
    specs = [
        method_column([line.method for line in lines]),
        "l",
        "l",
        *([lengths.spec] * 3),
        steps.spec,
        times.spec,
        "r",
    ]
    cells = [cell for line in lines for cell in line.cells]
    caption = (
        "Acceptance over all workloads: output tokens over verify steps (bonus token included), with the lowest and "
        "the highest cell; median step time of the cells with one request at a time (acceptance length over output "
        f"rate); and how many outputs are the ones of {result.baseline} under greedy decoding. Drafts: block size, and "
        "budget of a tree. Branches: what the build's own log shows. "
        f"{sample_words(cells)} {load_words(cells)} Left out: cells whose engine told no verify steps."
    )
    return Fragment(
        name="tab-acceptance" + (f"-{part}" if part > 1 else ""),
        tex=table_tex(result, specs, head, groups),
        csv=csv_text([_fields(result, line) for line in lines]),
        caption=prose(caption),
        marks=frozenset(mark for cell in cells for mark in cell.marks if mark is Mark.FROM_COUNTERS),
    )


def _depth(cell: CellResult) -> str:
    speculative = cell.deployment.speculative
    told = (speculative.block_size or speculative.draft_tokens) if speculative else None
    parts = [str(told)] if told else []
    if (budget := budget_of(cell)) is not None:
        parts.append(f"b{budget}")
    return latex_text(" ".join(parts) or "-")


def _fields(result: ResultSet, line: _Line) -> dict[str, Field]:
    return {
        "method": line.method,
        "tensor_parallel": line.size,
        "cells": " ".join(cell.cell for cell in line.cells),
        "branches": line.branches,
        "tokens": line.tokens,
        "steps": line.steps,
        "acceptance_length": line.tokens / line.steps,
        "lowest": min(line.lengths),
        "highest": max(line.lengths),
        "step_time_s": None if line.step_time is None else line.step_time / 1000,
        "equal_outputs": line.equal[0] if line.equal else None,
        "compared_outputs": line.equal[1] if line.equal else None,
        "simulated": result.simulated,
    }
