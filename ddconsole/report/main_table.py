"""The main table: methods down, workload points across, each with output rate, speed-up and acceptance length."""

from collections.abc import Iterator, Sequence

from ddconsole.report.cell_fields import cells_csv
from ddconsole.report.fragment import Fragment
from ddconsole.report.grid import LOAD_MODES, Grid, best_cells, grids, point_titles
from ddconsole.report.latex_text import latex_text, prose
from ddconsole.report.marks import Mark
from ddconsole.report.number_column import NumberColumn, decimals_for, estimate_column, number_column
from ddconsole.report.result_set import ResultSet
from ddconsole.report.standing import missing_words, sample_words
from ddconsole.report.statistics import Sureness
from ddconsole.report.table import (
    PAGE_LINES,
    RowGroup,
    beside_figure,
    fitted_text,
    has_long_names,
    mark_text,
    method_column,
    method_text,
    name_lines,
    raised,
    row_text,
    table_tex,
)

_POINTS = 3
"""Workload points that fit side by side on a page."""


def main_tables(result: ResultSet) -> Iterator[Fragment]:
    """One for each tensor-parallel size of single generations and of conversations, split where it would not fit."""
    for whole in grids(result, "single", "conversation"):
        for grid in whole.split_to_page(PAGE_LINES, _lines, _POINTS - has_long_names(whole.methods)):
            yield _main_table(result, grid)


def _main_table(result: ResultSet, grid: Grid) -> Fragment:
    columns = _columns(grid)
    specs = [method_column(grid.methods), *(column.spec for three in columns for column in three)]
    best = {name for point in grid.points for name in best_cells(grid.column(point))}
    rows = [row for method in grid.methods for row in _rows(grid, method, columns, best)]
    return Fragment(
        name=f"tab-main-{grid.kind}-{grid.suffix}",
        tex=table_tex(result, specs, _head(grid), [RowGroup("", rows)]),
        csv=cells_csv(result, grid.shown()),
        caption=_caption(result, grid),
        marks=grid.marks(),
    )


def _columns(grid: Grid) -> list[tuple[NumberColumn, NumberColumn, NumberColumn]]:
    """For the rate, the speed-up and the acceptance length of each point; decimals are those of the whole table."""
    everything = [cell.figures for cell in grid.shown() if cell.figures]
    of_rates = decimals_for((one.output_rate for one in everything), 1, most=3)
    of_speed_ups = decimals_for((one.speed_up for one in everything), 2, most=2)
    columns = []
    for point in grid.points:
        figures = [cell.figures for cell in grid.column(point) if cell.figures]
        columns.append(
            (
                estimate_column([one.output_rate for one in figures], of_rates),
                estimate_column([one.speed_up for one in figures], of_speed_ups),
                number_column([one.acceptance_length for one in figures], 2),
            )
        )
    return columns


def _head(grid: Grid) -> list[str]:
    titles = point_titles(grid.points)
    over = row_text(["", *(rf"\multicolumn{{3}}{{c}}{{{fitted_text(title, 24, '4.2cm')}}}" for title in titles)])
    rules = " ".join(rf"\cmidrule(lr){{{2 + 3 * place}-{4 + 3 * place}}}" for place in range(len(titles)))
    names = row_text(["Method", *(["{tok/s}", "{speed-up}", r"{$\tau$}"] * len(titles))])
    return [over, rules, names]


def _rows(
    grid: Grid,
    method: str,
    columns: Sequence[tuple[NumberColumn, NumberColumn, NumberColumn]],
    best: set[str],
) -> list[str]:
    """A line of figures and, where any noise is known, a line of it in small print."""
    values, noises = [method_text(method)], [""]
    for point, (rates, speed_ups, lengths) in zip(grid.points, columns, strict=True):
        cell = grid.at(method, point)
        if cell is None or cell.figures is None:
            mark = cell.missing_mark if cell else Mark.NOT_IN_PLAN
            values.append(rf"\multicolumn{{3}}{{c}}{{{mark_text(mark)}}}")
            noises.extend(["{}"] * 3)
            continue
        figures, bold = cell.figures, cell.cell in best
        rate, speed_up = figures.output_rate, figures.speed_up
        values.append(rates.cell(rate.value if rate else None, bold=bold))
        values.append(speed_ups.cell(speed_up.value if speed_up else None, bold=bold))
        values.append(lengths.cell(figures.acceptance_length))
        noises.append(_small(rates.noise(rate) + raised(beside_figure(cell))))
        noises.append(_small(speed_ups.noise(speed_up)))
        noises.append("{}")
    shown = [cell for point in grid.points if (cell := grid.at(method, point)) is not None]
    if not any(noise.strip("{}") for noise in noises):
        return [row_text(values, of=shown)]
    return [row_text(values, "-0.4ex", shown), row_text(noises, "0.3ex" if method != grid.methods[-1] else "")]


def _caption(result: ResultSet, grid: Grid) -> str:
    kinds = {one.figures.output_rate.sureness for one in grid.shown() if one.figures and one.figures.output_rate}
    noise = []
    if Sureness.INTERVAL in kinds:
        noise.append(r"95\,\% interval over launches in square brackets")
    if Sureness.SPREAD in kinds:
        noise.append(r"half the central 95\,\% of the requests in round brackets")
    mode = LOAD_MODES.get(grid.kind, grid.kind)
    return (
        f"Tensor-parallel size {grid.tensor_parallel}, {latex_text(mode)}. "
        f"Output rate per request (median; {', '.join(noise) or 'no noise known'}), "
        f"speed-up of that median over {latex_text(result.baseline, breakable=True)} at the same size and workload, "
        "and acceptance length $\\tau$ (bonus token included). "
        "Bold: the highest rate, and all that overlap with it. "
        f"{sample_words(grid.shown())} {prose(missing_words(grid.shown()))}"
    )


def _lines(method: str) -> int:
    return max(2, name_lines(method) + 1)


def _small(text: str) -> str:
    return rf"{{\scriptsize {text}}}" if text else "{}"
