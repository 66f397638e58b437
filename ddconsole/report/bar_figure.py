"""Grouped bars: output rate of each method, one group a workload point, with error bars."""

from collections.abc import Iterator

from ddconsole.report.cell_fields import cells_csv
from ddconsole.report.figure_styles import bar_style, legend_columns
from ddconsole.report.fragment import Fragment, fill, header
from ddconsole.report.grid import Grid, grids, point_titles
from ddconsole.report.latex_text import number_text
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult, ResultSet
from ddconsole.report.table import fitted_text, mark_text

_GROUPS = 3
_BARS = 12
_DECIMALS = 4


def bar_figures(result: ResultSet) -> Iterator[Fragment]:
    """One for each tensor-parallel size of single generations and of conversations."""
    for whole in grids(result, "single", "conversation"):
        for grid in whole.split(_GROUPS, _BARS):
            yield _bar_figure(result, grid)


def _bar_figure(result: ResultSet, grid: Grid) -> Fragment:
    bars = [
        {
            "style": bar_style(number),
            "name": fitted_text(method, 60, "10cm"),
            "coordinates": [
                coordinate
                for place, point in enumerate(grid.points)
                if (coordinate := _coordinate(grid.at(method, point), place))
            ],
        }
        for number, method in enumerate(grid.methods)
    ]
    # All bars of a group together fill four fifths of the distance to the next group.
    width = 12.4 / len(grid.points) * 0.8 / len(grid.methods)
    tex = fill(
        "bars.tex.j2",
        header=header(result),
        bars=bars,
        bar_width=number_text(min(width, 0.9), 3),
        titles=[fitted_text(title, 24, "3.9cm") for title in point_titles(grid.points)],
        last=number_text(len(grid.points) - 0.5, 1),
        legend_columns=min(len(bars), legend_columns(grid.methods)),
        simulated=result.simulated,
    )
    caption = (
        f"Output rate per request, median, tensor-parallel size {grid.tensor_parallel}. "
        + _error_bars(grid)
        + " A word in place of a bar says why there is none."
    )
    return Fragment(f"fig-bars-{grid.kind}-{grid.suffix}", tex, cells_csv(result, grid.shown()), caption, grid.marks())


def _coordinate(cell: CellResult | None, place: int) -> str:
    """`(x, y) +- (0, up) -= (0, down) [word]`; a missing figure is a bar of no height under its mark."""
    rate = cell.figures.output_rate if cell and cell.figures else None
    if rate is None:
        mark = cell.missing_mark if cell else Mark.NOT_IN_PLAN
        return f"({place},0) += (0,0) -= (0,0) [{mark_text(mark)}]"
    above = (rate.high if rate.high is not None else rate.value) - rate.value
    below = rate.value - (rate.low if rate.low is not None else rate.value)
    up, down = number_text(max(above, 0.0), _DECIMALS), number_text(max(below, 0.0), _DECIMALS)
    return f"({place},{number_text(rate.value, _DECIMALS)}) += (0,{up}) -= (0,{down}) []"


def _error_bars(grid: Grid) -> str:
    kinds = {cell.figures.output_rate.sureness for cell in grid.shown() if cell.figures and cell.figures.output_rate}
    return error_bar_words({kind.value for kind in kinds})


def error_bar_words(kinds: set[str]) -> str:
    """What the error bars of a figure are."""
    words = {
        "interval": r"Error bars: 95\,\% interval over launches.",
        "spread": r"Error bars: central 95\,\% of the requests where there are fewer than three launches, no interval.",
    }
    return " ".join(text for kind, text in words.items() if kind in kinds) or "No noise is known."
