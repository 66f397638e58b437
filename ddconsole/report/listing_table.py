"""Tables with one line a cell: under load with its concurrency, and latency with its percentiles."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ddconsole.report.cell_fields import cells_csv
from ddconsole.report.fragment import Fragment
from ddconsole.report.grid import LOAD_MODES, Grid, best_cells, grids, point_titles
from ddconsole.report.latex_text import latex_text, prose
from ddconsole.report.marks import Mark
from ddconsole.report.number_column import NumberColumn, decimals_for, estimate_column, number_column
from ddconsole.report.result_set import CellFigures, CellResult, Distribution, ResultSet
from ddconsole.report.standing import missing_words, sample_words
from ddconsole.report.statistics import Estimate
from ddconsole.report.table import (
    PAGE_LINES,
    RowGroup,
    beside_figure,
    fitted_text,
    mark_text,
    method_column,
    method_text,
    name_lines,
    row_text,
    table_tex,
)

_LEFT_OUT = "Percentiles that no sample here carries are left out."

_Part = Callable[[CellFigures], float | Estimate | None]


@dataclass(frozen=True, slots=True)
class _Column:
    """One figure of a cell. An estimate has its noise in a column of its own."""

    over: str
    """The spanner that it belongs to, with its neighbours of the same name."""
    title: str
    part: _Part
    decimals: int
    has_noise: bool = False
    most: int = 3
    """Decimals at most, where the noise decides."""
    is_best_bold: bool = False
    is_percentile: bool = False
    is_optional: bool = False
    """Left out where no cell has it."""


def _times(of: Callable[[CellFigures], Distribution], over: str, *fractions: float) -> list[_Column]:
    def part(fraction: float) -> _Part:
        def milliseconds(figures: CellFigures) -> float | None:
            seconds = of(figures).at(fraction)
            return None if seconds is None else seconds * 1000

        return milliseconds

    return [_Column(over, f"p{one * 100:.0f}", part(one), 1, is_percentile=True) for one in fractions]


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


_LOAD_COLUMNS = [
    _Column("per request", "tok/s", lambda one: one.output_rate, 1, has_noise=True, is_best_bold=True),
    _Column("per request", "speed-up", lambda one: one.speed_up, 2, has_noise=True, most=2, is_best_bold=True),
    _Column("server", "tok/s", lambda one: one.server_rate, 1),
    _Column("good", "requests/s", lambda one: one.goodput, 2, is_optional=True),
    _Column("", r"$\tau$", lambda one: one.acceptance_length, 2),
    *_times(lambda one: one.ttft, "TTFT (ms)", 0.50, 0.90),
]

_LATENCY_COLUMNS = [
    *_times(lambda one: one.ttft, "TTFT (ms)", 0.50, 0.90, 0.95, 0.99),
    *_times(lambda one: one.tpot, "TPOT (ms)", 0.50, 0.90, 0.99),
    _Column("chunk", "gap (ms)", lambda one: _milliseconds(one.chunk_gap), 1, is_optional=True),
    _Column("step", "time (ms)", lambda one: _milliseconds(one.step_time), 1),
]


def concurrency_tables(result: ResultSet) -> Iterator[Fragment]:
    """Cells under a fixed concurrency, for each tensor-parallel size."""
    for whole in grids(result, "closed-loop"):
        for grid in whole.split_to_page(PAGE_LINES, name_lines):
            caption = (
                f"Tensor-parallel size {grid.tensor_parallel}, {latex_text(LOAD_MODES['closed-loop'])}. "
                "Tokens a second of one request (median, with its noise), speed-up of that median over "
                f"{latex_text(result.baseline, breakable=True)} at the same concurrency, tokens a second of the server "
                "(all output tokens over the wall time), requests a second within the plan's limits where it has any, "
                "acceptance length $\\tau$, time to first token, and requests ($n$). "
                "Bold: the highest rate per request at a concurrency, and all that overlap with it. "
                f"{sample_words(grid.shown())} {prose(missing_words(grid.shown()))} {_LEFT_OUT}"
            )
            yield _listing(result, grid, f"tab-concurrency-{grid.suffix}", _LOAD_COLUMNS, caption)


def latency_tables(result: ResultSet) -> Iterator[Fragment]:
    """Percentiles of every load mode, for each tensor-parallel size."""
    for whole in grids(result):
        for grid in whole.split_to_page(PAGE_LINES, name_lines):
            mode = LOAD_MODES.get(grid.kind, grid.kind)
            caption = (
                f"Tensor-parallel size {grid.tensor_parallel}, {latex_text(mode)}. TTFT: request sent to first chunk "
                "with text. TPOT: (last $-$ first) / ($n - 1$) of a request. Chunk gap: median time between chunks "
                "with text, blank where most were read together; a chunk may hold several tokens. "
                "Step time: acceptance length over output rate. "
                f"{sample_words(grid.shown())} {prose(missing_words(grid.shown()))} {_LEFT_OUT}"
            )
            yield _listing(result, grid, f"tab-latency-{grid.kind}-{grid.suffix}", _LATENCY_COLUMNS, caption)


def _listing(result: ResultSet, grid: Grid, name: str, wanted: Sequence[_Column], caption: str) -> Fragment:
    shown = [cell.figures for cell in grid.shown() if cell.figures]
    columns = [
        one
        for one in wanted
        if not (one.is_percentile or one.is_optional) or any(one.part(figures) is not None for figures in shown)
    ]
    numbers = [_numbers(grid, column) for column in columns]
    specs = [method_column(grid.methods)]
    for column, number in zip(columns, numbers, strict=True):
        specs.extend([number.spec, r"@{\,}l"] if column.has_noise else [number.spec])
    specs.extend(["r", "l"])
    groups = [
        RowGroup(fitted_text(title, 60, "9cm"), _rows(grid.column(point), columns, numbers))
        for point, title in zip(grid.points, point_titles(grid.points), strict=True)
        if grid.column(point)
    ]
    marks = set(grid.marks()) - {Mark.NOT_IN_PLAN}
    if any(_uncertified(figures, columns) for figures in shown):
        marks.add(Mark.NOT_CERTIFIED)
    tex = table_tex(result, specs, _head(columns), groups)
    return Fragment(name, tex, cells_csv(result, grid.shown()), caption, frozenset(marks))


def _numbers(grid: Grid, column: _Column) -> NumberColumn:
    values = [column.part(cell.figures) for cell in grid.shown() if cell.figures]
    if column.has_noise:
        estimates = [one for one in values if isinstance(one, Estimate)]
        return estimate_column(estimates, decimals_for(estimates, column.decimals, most=column.most))
    return number_column([one for one in values if isinstance(one, float)], column.decimals)


def _head(columns: Sequence[_Column]) -> list[str]:
    over, rules, titles = [""], [], ["Method"]
    place = 2
    for number, column in enumerate(columns):
        width = 2 if column.has_noise else 1
        titles.append(rf"\multicolumn{{2}}{{c}}{{{column.title}}}" if width > 1 else f"{{{column.title}}}")
        if number and column.over and columns[number - 1].over == column.over:
            place += width
            continue
        span = sum(2 if one.has_noise else 1 for one in _same_spanner(columns, number))
        over.append(rf"\multicolumn{{{span}}}{{c}}{{{column.over}}}")
        if column.over and span > 1:
            rules.append(rf"\cmidrule(lr){{{place}-{place + span - 1}}}")
        place += width
    return [row_text([*over, "", ""]), " ".join(rules), row_text([*titles, "$n$", ""])]


def _same_spanner(columns: Sequence[_Column], first: int) -> list[_Column]:
    found = [columns[first]]
    for column in columns[first + 1 :]:
        if not column.over or column.over != found[0].over:
            break
        found.append(column)
    return found


def _rows(cells: Sequence[CellResult], columns: Sequence[_Column], numbers: Sequence[NumberColumn]) -> list[str]:
    best = best_cells(cells)
    width = sum(2 if column.has_noise else 1 for column in columns)
    rows = []
    for cell in cells:
        if cell.figures is None:
            gap = rf"\multicolumn{{{width}}}{{c}}{{{mark_text(cell.missing_mark)}}}"
            rows.append(row_text([method_text(cell.method), gap, "", ""], of=[cell]))
            continue
        texts = [method_text(cell.method)]
        for column, number in zip(columns, numbers, strict=True):
            texts.extend(_cells(cell.figures, column, number, bold=cell.cell in best))
        count = f"{cell.figures.succeeded}"
        if cell.figures.succeeded < cell.figures.requests:
            count += f"/{cell.figures.requests}"
        marks = ",".join(mark.sign for mark in beside_figure(cell))
        rows.append(row_text([*texts, count, rf"{{\scriptsize {marks}}}" if marks else ""], of=[cell]))
    return rows


def _cells(figures: CellFigures, column: _Column, number: NumberColumn, *, bold: bool) -> list[str]:
    value = column.part(figures)
    if column.has_noise:
        estimate = value if isinstance(value, Estimate) else None
        noise = number.noise(estimate)
        shown = number.cell(estimate.value if estimate else None, bold=bold and column.is_best_bold)
        return [shown, rf"{{\scriptsize {noise}}}" if noise else ""]
    if value is None and column.is_percentile:
        return [rf"{{{mark_text(Mark.NOT_CERTIFIED)}}}"]
    return [number.cell(value if isinstance(value, float) else None)]


def _uncertified(figures: CellFigures, columns: Sequence[_Column]) -> bool:
    return any(column.is_percentile and column.part(figures) is None for column in columns)
