"""Results: tables by tensor-parallel size, a chart, and the export."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ddconsole.core.actions import Place
from ddconsole.core.row_text import cell_figures
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.link.client import AgentError
from screens.console_screen import ConsoleScreen, Doer
from screens.keys import bindings_at
from screens.results_text import FIGURES, Grid, grids, table_lines
from screens.session import Session
from screens.spans import Line, Role, line, shown
from screens.widgets.chart import Chart, ChartData
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView


class ResultsScreen(ConsoleScreen):
    """One table, one chart."""

    CSS_PATH: ClassVar[str] = "results.tcss"
    PLACE = Place.RESULTS
    BINDINGS: ClassVar[list[BindingType]] = bindings_at(Place.RESULTS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._figure = 0
        self._chart = 0
        self._export = ""
        self._exporting = False
        self._failed = False

    def body(self) -> Sequence[Widget]:
        """What the export says, the table, the chart."""
        return (LineBar(id="export-line"), LinesView(id="results"), Chart(id="chart"))

    def doers(self) -> dict[str, Doer]:
        """Export, another chart, another figure."""
        return {"export": self._start_export, "next-chart": self._next_chart, "next-table": self._next_table}

    def show(self, changed: frozenset[str]) -> None:
        """Tables and chart of what is measured by now."""
        self.query_one("#export-line", LineBar).set_line(self._export_line())
        if changed and not changed & {"state"}:
            return
        state, known = self.session.feed.state, self.session.book.baselines
        view = self.query_one("#results", LinesView)
        view.set_lines(table_lines(state, known, self._figure, max(40, view.inner_width - 1)))
        charts = chart_choices(state)
        self.query_one("#chart", Chart).set_data(charts[self._chart % len(charts)] if charts else None)

    def _next_chart(self) -> None:
        self._chart += 1
        self.show(frozenset())

    def _next_table(self) -> None:
        self._figure = (self._figure + 1) % len(FIGURES)
        self.show(frozenset())

    # --- export

    def _start_export(self) -> None:
        if self.session.export is None:
            self.tell("this console was opened without an export: use ddconsole export", bad=True)
        elif not self._exporting:
            self._exporting, self._failed = True, False
            self._export = "writing …"
            self.run_worker(self._run_export(), exit_on_error=False)
            self.show(frozenset({"tick"}))

    async def _run_export(self) -> None:
        assert self.session.export is not None
        try:
            folder = await self.session.export(self._progress)
            self._export = f"written to {folder}"
        except (AgentError, OSError) as problem:
            self._failed = True
            self._export = f"not written: {problem}"
        finally:
            self._exporting = False
        self.show(frozenset({"tick"}))

    def _progress(self, text: str) -> None:
        self._export = text
        self.show(frozenset({"tick"}))

    def _export_line(self) -> Line:
        if self._export:
            role = Role.BAD if self._failed else (Role.LIVE if self._exporting else Role.GOOD)
            return line((" export  ", Role.DIM), (shown(self._export), role))
        counts = (" medians over the requests that succeeded; ! disturbed, ~ estimated   ", Role.DIM)
        return line(counts, ("w", Role.KEY), (" export", Role.DIM))


def chart_choices(state: RunState) -> list[ChartData]:
    """For each tensor-parallel size: rate by method at its first point, and rate over concurrency where it varies."""
    charts: list[ChartData] = []
    for grid in grids(state):
        charts += [chart for chart in (_bars(grid), _over_concurrency(grid)) if chart is not None]
    return charts


def _bars(grid: Grid) -> ChartData | None:
    for point in grid.points:
        rates = {method: _rate(grid.cells.get((method, point))) for method in grid.methods}
        bars = {method: rate for method, rate in rates.items() if rate is not None}
        if bars:
            title = f"tok/s at TP{grid.tensor_parallel}, {point[0]} {point[1]}"
            return ChartData(title, tuple(bars), tuple(bars.values()))
    return None


def _over_concurrency(grid: Grid) -> ChartData | None:
    lines: dict[str, tuple[tuple[float, float], ...]] = {}
    for method in grid.methods:
        rows = [row for (name, _), row in grid.cells.items() if name == method]
        loops = [row for row in rows if row.cell.point.kind == "closed-loop"]
        found = sorted((float(row.cell.point.concurrency), rate) for row in loops if (rate := _server_rate(row)))
        if len(found) > 1:
            lines[method] = tuple(found)
    title = f"server tok/s at TP{grid.tensor_parallel} against concurrency"
    return ChartData(title, lines=lines, across="concurrent requests") if lines else None


def _rate(row: CellRow | None) -> float | None:
    figures = cell_figures(row) if row is not None else None
    return figures.output_rate if figures is not None else None


def _server_rate(row: CellRow) -> float | None:
    figures = cell_figures(row)
    return figures.server_rate if figures is not None else None
