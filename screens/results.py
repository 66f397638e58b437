"""Results: a pivot of what was measured, its charts, comparing with another run, and the exports."""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddconsole.core.actions import Place
from ddconsole.core.run_state import CellRow
from ddconsole.link.client import AgentError
from screens.clipboard import copy_text
from screens.console_screen import ConsoleScreen, Doer
from screens.help import Findable, FindScreen
from screens.keys import bindings_at
from screens.page import PageScreen
from screens.pivot import Choice, Pivot, axes_of, pivot
from screens.result_charts import BY_TURN, Turns, charts_of, conversations_done
from screens.results_text import Look, Source, definition_lines, legend, most_columns, table_lines
from screens.session import ResultsDesk, Session
from screens.shown_figures import SHOWN_FIGURES, MeasuredCells
from screens.spans import Line, Role, Span, fitted, line, shown
from screens.widgets.chart import Chart
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView

Progress = Callable[[str], None]


class ResultsScreen(ConsoleScreen):
    """Tables by two axes, one chart."""

    CSS_PATH: ClassVar[str] = "results.tcss"
    PLACE = Place.RESULTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_at(Place.RESULTS),
        Binding("left", "shift(-1)", show=False),
        Binding("right", "shift(1)", show=False),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._choice = Choice()
        self._measured = MeasuredCells()
        self._made: tuple[Pivot | None, Mapping[str, CellRow], Choice] = (None, {}, self._choice)
        self._figure = 0
        self._shift = 0
        self._kind = 0
        self._chart_place = 0
        self._turns: Turns | None = None
        self._turns_of = 0
        """How many conversations were done when they were read."""
        self._reading_turns = False
        self._said = ""
        self._busy = False
        self._failed = False

    def body(self) -> Sequence[Widget]:
        """What an export says, the tables, the marks in them, the chart."""
        return (LineBar(id="export-line"), LinesView(id="results"), LineBar(id="legend"), Chart(id="chart"))

    def doers(self) -> dict[str, Doer]:
        """Exports, axes, figures, charts."""
        return {
            "export": self._export,
            "save-as": self._save_as,
            "compare": self._compare,
            "rows": self._next_rows,
            "columns": self._next_columns,
            "swap": self._swap,
            "next-table": self._next_figure,
            "next-chart": self._next_kind,
            "next-place": lambda: self._move_chart(1),
            "previous-place": lambda: self._move_chart(-1),
            "enlarge": self._enlarge,
            "meaning": self._meaning,
        }

    def show(self, changed: frozenset[str]) -> None:
        """Tables and chart of what is measured by now."""
        self.query_one("#export-line", LineBar).set_line(self._export_line())
        if changed and not changed & {"state"}:
            return
        found, view = self._pivot(), self.query_one("#results", LinesView)
        self._shift = max(0, min(self._shift, most_columns(found) - 1))
        look = Look(self._figure, self._shift, max(40, view.inner_width - 1))
        view.set_lines(table_lines(found, self._source(), look))
        marks = fitted(self._legend(found), max(20, self.size.width - 2))
        self.query_one("#legend", LineBar).set_line(line(" ") + marks)
        self._show_chart()

    def _pivot(self) -> Pivot:
        """Made again when a cell or the choice is another."""
        state = self.session.feed.state
        made, cells, choice = self._made
        if made is None or cells is not state.cells or choice != self._choice:
            made = pivot(state, self._choice)
            self._made = (made, state.cells, self._choice)
        return made

    def _source(self) -> Source:
        return Source(self.session.feed.state, self.session.book.baselines, self._measured)

    def _legend(self, found: Pivot) -> list[Span]:
        return legend(found, self._measured, simulated=self.session.feed.simulated)

    def _show_chart(self) -> None:
        figure = SHOWN_FIGURES[self._figure % len(SHOWN_FIGURES)]
        kinds = charts_of(self._source(), figure, self._turns)
        chart = self.query_one("#chart", Chart)
        if not kinds:
            chart.set_data(None)
            return
        kind = list(kinds)[self._kind % len(kinds)]
        charts = kinds[kind]
        chart.set_data(charts[self._chart_place % len(charts)])
        self._read_turns(kind)

    # --- looking

    def _again(self) -> None:
        self.show(frozenset({"state"}))

    def _next_rows(self) -> None:
        self._choice = self._choice.next_down(axes_of(self.session.feed.state))
        self._shift = 0
        self._again()

    def _next_columns(self) -> None:
        self._choice = self._choice.next_across(axes_of(self.session.feed.state))
        self._shift = 0
        self._again()

    def _swap(self) -> None:
        self._choice = self._choice.swapped()
        self._shift = 0
        self._again()

    def _next_figure(self) -> None:
        self._figure = (self._figure + 1) % len(SHOWN_FIGURES)
        self._again()

    def _next_kind(self) -> None:
        self._kind += 1
        self._chart_place = 0
        self._again()

    def _move_chart(self, by: int) -> None:
        self._chart_place += by
        self._again()

    def _enlarge(self) -> None:
        self.toggle_class("-chart-only")

    def action_shift(self, by: int) -> None:
        """Columns out of sight to the left, or back."""
        self._shift += by
        self._again()

    def _meaning(self) -> None:
        figure, marks = self._figure, self._legend(self._pivot())
        self.app.push_screen(PageScreen("Figures and marks", lambda width: definition_lines(figure, marks, width)))

    def _read_turns(self, kind: str) -> None:
        """Rates by turn stand in the attempts' files: they are read once, and again for a chart of them."""
        desk, done = self._desk(), conversations_done(self.session.feed.state)
        if desk is None or not done or self._reading_turns or done == self._turns_of:
            return
        if self._turns is None or kind == BY_TURN:
            self._reading_turns = True
            self.run_worker(self._with_turns(desk, done), exit_on_error=False)

    async def _with_turns(self, desk: ResultsDesk, done: int) -> None:
        """A reading that failed is told of, and not tried again and again."""
        self._turns = await desk.turns()
        self._turns_of, self._reading_turns = done, False
        self._again()

    # --- exports and comparing

    def _desk(self) -> ResultsDesk | None:
        desk = self.session.export
        return desk if isinstance(desk, ResultsDesk) else None

    def _export(self) -> None:
        if self.session.export is None:
            self.tell("this console was opened without an export: use ddconsole export", bad=True)
        else:
            self._begin(self.session.export)

    def _save_as(self) -> None:
        desk = self._desk()
        if desk is None:
            self.tell("this console was opened without other formats: use ddconsole export --format", bad=True)
            return
        items = [Findable(name, text) for name, text in desk.formats().items()]

        def chosen(item: Findable | None) -> None:
            if item is not None:
                self._begin(lambda say: desk.save(item.name, say))

        self.app.push_screen(FindScreen("Write all cells as", items, "writes"), chosen)

    def _compare(self) -> None:
        desk = self._desk()
        if desk is None:
            self.tell("this console was opened without other runs: use ddconsole compare A B", bad=True)
            return
        items = [Findable(run, text) for run, text in desk.others().items()]
        if not items:
            self.tell("there is no other run on this machine to compare with")
            return

        def chosen(item: Findable | None) -> None:
            if item is not None:
                self._open_comparison(desk, item.name)

        self.app.push_screen(FindScreen("Compare with which run? It is A, this one is B", items, "compares"), chosen)

    def _open_comparison(self, desk: ResultsDesk, run: str) -> None:
        from screens.compare import CompareScreen  # noqa: PLC0415  # numpy takes a tenth of a second: only where used

        self.app.push_screen(CompareScreen(desk, run))

    def _begin(self, write: Callable[[Progress], Awaitable[str]]) -> None:
        if self._busy:
            return
        self._busy, self._failed = True, False
        self._said = "writing …"
        self.run_worker(self._write(write), exit_on_error=False)
        self.show(frozenset({"tick"}))

    async def _write(self, write: Callable[[Progress], Awaitable[str]]) -> None:
        try:
            path, *kept = (await write(self._progress)).splitlines()
            self._said = "; ".join([f"written to {path}", *kept])
            self.show(frozenset({"tick"}))
            self.tell(await copy_text(path, os.environ, self.app.copy_to_clipboard))
        except (AgentError, OSError) as problem:
            self._failed = True
            self._said = f"not written: {problem}"
        finally:
            self._busy = False
        self.show(frozenset({"tick"}))

    def _progress(self, text: str) -> None:
        self._said = text
        self.show(frozenset({"tick"}))

    def _export_line(self) -> Line:
        if self._said:
            role = Role.BAD if self._failed else (Role.LIVE if self._busy else Role.GOOD)
            return line((" export  ", Role.DIM), (shown(self._said), role))
        parts: list[Span] = [
            (f"{self._choice.down} down, {self._choice.across} across", Role.DIM),
            ("medians over the requests that succeeded; green: best", Role.DIM),
        ]
        return line(" ") + fitted(parts, max(20, self.size.width - 2), "   ")
