"""The sweep: all cells, what became of each, and the commands for them."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import ClassVar

from textual import on
from textual.app import App
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widget import Widget
from textual.widgets import Input

from ddconsole.core import states as st
from ddconsole.core.actions import ACTIONS, BY_ID, Place
from ddconsole.core.preconditions import seen
from ddconsole.core.row_text import PROBLEMS, RowText
from ddconsole.core.run_state import CellRow
from ddconsole.core.wire import Seen
from ddconsole.link.client import LinkPhase
from screens.cell_facts import CellFacts
from screens.cell_text import definition_lines, long_lines, short_lines
from screens.commanding import Commander
from screens.console_screen import ConsoleScreen, Doer
from screens.edit_cell import EditCellScreen
from screens.keys import bindings_at
from screens.page import PageScreen
from screens.session import Session
from screens.spans import Line, Role, line
from screens.taking_control import other_controller
from screens.until import UntilScreen
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView
from screens.widgets.sweep_table import SweepTable

_PHASES = frozenset(phase.value for phase in st.CellPhase)
_TALL_ENOUGH_FOR_ALL = 20
"""Lines of the details pane from which it says everything."""


class SweepScreen(ConsoleScreen):
    """Table and details."""

    CSS_PATH: ClassVar[str] = "sweep.tcss"
    PLACE = Place.SWEEP
    BINDINGS: ClassVar[list[BindingType]] = bindings_at(Place.SWEEP)

    def __init__(self, session: Session, app: App[int]) -> None:
        super().__init__(session)
        self._commander = Commander(app, session, lambda text, bad: self.tell(text, bad=bad))
        self._filter = ""
        self._problems_first = False
        self._range_from: str | None = None
        self._shown: tuple[int, str, bool] | None = None
        self._seen = 0

    def body(self) -> Sequence[Widget]:
        """The table, the filter above its details, the details."""
        field = Input(placeholder="words: failed tp4 c8 !ar", id="filter", compact=True)
        field.display = False
        table = Vertical(SweepTable(id="table"), field, LineBar(id="selection", hide_empty=True), id="cells")
        return (table, LinesView(id="details"))

    def on_mount(self) -> None:
        """Begin at the cell that is being measured, else at the first that failed."""
        super().on_mount()
        self.query_one("#details", LinesView).can_focus = False
        self.table.focus()
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        rows = self.session.feed.state.cells.values()
        first = next((row.cell.id for row in rows if isinstance(row.state, st.Running)), None)
        first = first or next((row.cell.id for row in rows if row.state.phase in PROBLEMS), None)
        if first is not None:
            self.table.cursor = first

    @property
    def table(self) -> SweepTable:
        """The table."""
        return self.query_one("#table", SweepTable)

    def doers(self) -> dict[str, Doer]:
        """Commands, marks, filter, and ways to look."""
        commands: dict[str, Doer] = {
            action.id: partial(self._command, action.id) for action in ACTIONS if action.command is not None
        }
        return commands | {
            "edit": self._edit,
            "until": self._ask_until,
            "mark": self._mark,
            "mark-range": self._mark_range,
            "mark-shown": self._mark_shown,
            "unmark": self._clear,
            "filter": self._open_filter,
            "next-problem": partial(self._go_problem, 1),
            "previous-problem": partial(self._go_problem, -1),
            "go-running": self._go_running,
            "order": self._order,
            "details": self._details,
            "definitions": lambda: self._page("Figures", definition_lines),
            "cell-log": self._cell_log,
        }

    # --- showing

    def show(self, changed: frozenset[str]) -> None:
        """Rows, and the details of the cell under the cursor."""
        if changed & {"state", "progress", "decode", "link", "tick"}:
            self._show_rows()
        self._show_details()

    def _show_rows(self) -> None:
        book = self.session.book
        key = (book.arrangement, self._filter, self._problems_first)
        plain = not self._filter and not self._problems_first
        seen, self._seen = self._seen, book.version
        if plain and key == self._shown:
            self.table.update_rows(book.changed_since(seen))
            return
        if key == self._shown and seen == book.version:
            return
        self._shown = key
        rows = [row for row in book.rows.values() if matches(row, self._filter)]
        if self._problems_first:
            rows.sort(key=lambda row: row.phase not in PROBLEMS)
        self.table.empty_text = "no cell matches the filter: esc clears it" if self._filter else "no cell yet"
        self.table.set_rows(rows)
        self._show_selection()

    def _show_selection(self) -> None:
        """Marks, range, order and filter: what a command will go to, said where it can't be missed."""
        self._set_marked(self.session.marked)
        parts = []
        if self.session.marked:
            hidden = len(self.session.marked - {row.id for row in self.table.rows})
            out = f" ({hidden} out of sight)" if hidden else ""
            parts.append(f"● {len(self.session.marked)} marked{out}: commands go to them")
        if self._range_from is not None:
            parts.append(f"range from {self._range_from}: v again marks up to the cursor")
        if self._filter:
            parts.append(f"/{self._filter}: {len(self.table.rows)} of {len(self.session.book.rows)}")
        if self._problems_first:
            parts.append("problems first (o: as planned)")
        keys = (("   esc", Role.KEY), (" clears", Role.DIM))
        text = line((" " + "   ".join(parts), Role.ACCENT), *keys) if parts else ()
        self.query_one("#selection", LineBar).set_line(text)

    def _show_details(self) -> None:
        view = self.query_one("#details", LinesView)
        facts = self._facts()
        if facts is None:
            view.set_lines([line((" no cell under the cursor", Role.DIM))])
            return
        width, height = max(20, view.inner_width - 1), view.size.height
        if height >= _TALL_ENOUGH_FOR_ALL or width < 70:
            view.set_lines(long_lines(facts, width))
        else:
            view.set_lines(short_lines(facts, width, height))

    def _facts(self) -> CellFacts | None:
        feed = self.session.feed
        row = feed.state.cells.get(self.table.cursor or "")
        if row is None:
            return None
        age = None
        if feed.link.phase is not LinkPhase.UP and feed.link.heard is not None:
            age = max(0.0, time.time() - feed.link.heard)
        return CellFacts(
            row=row,
            state=feed.state,
            baselines=self.session.book.baselines,
            now=feed.now(),
            live=self.session.book.live(),
            host=feed.host_state,
            age=age,
            left=self.session.book.cell_seconds(row),
            basis=self.session.book.estimates.basis,
            steers=not feed.readonly and other_controller(feed) is None,
            may_take=not feed.readonly and other_controller(feed) is not None,
        )

    def rows_for_hints(self) -> Sequence[CellRow]:
        """The marked cells, else the one under the cursor."""
        return self.session.rows(self._targets())

    @on(SweepTable.CursorMoved)
    def _cursor_moved(self) -> None:
        self._show_details()
        self.show_hints()

    # --- commands

    def _targets(self) -> list[str]:
        if self.session.marked:
            return [name for name in self.session.feed.state.cells if name in self.session.marked]
        return [self.table.cursor] if self.table.cursor is not None else []

    def _command(self, name: str) -> None:
        shown = {row.id for row in self.table.rows}
        targets = self._targets()
        self._commander.command(BY_ID[name], targets, hidden=frozenset(targets) - shown)

    def _edit(self) -> None:
        rows = self.session.rows(self._targets())
        why = self._commander.why_not(BY_ID["edit"], rows)
        if why:
            self.tell(why, bad=True)
            return
        if self._commander.asked_for_control(BY_ID["edit"]):
            return
        editable = [row for row in rows if row.state.phase in st.CELL_COMMANDS[st.CellCommand.EDIT]]
        self.app.push_screen(
            EditCellScreen(self.session, [row.cell.id for row in editable]),
            partial(self._edited, {row.cell.id: seen(row) for row in editable}),
        )

    def _edited(self, cells: Mapping[str, Seen], changes: dict[str, str | None] | None) -> None:
        if changes:
            self._commander.send(BY_ID["edit"], cells, changes)

    def _ask_until(self) -> None:
        """The deadline is typed; what then fits is the host's to say."""

        def told(text: str | None) -> None:
            if text:
                self._commander.send(BY_ID["until"], {}, {"until": text})

        why = self._commander.why_not(BY_ID["until"], ())
        if why:
            self.tell(why, bad=True)
            return
        if self._commander.asked_for_control(BY_ID["until"]):
            return
        self.app.push_screen(UntilScreen(self.session.feed.state), told)

    # --- marks and filter

    def _set_marked(self, cells: frozenset[str]) -> None:
        """Marks of cells that have vanished are dropped."""
        self.session.marked = cells.intersection(self.session.feed.state.cells)
        self.table.set_marked(self.session.marked)

    def _mark(self) -> None:
        name = self.table.cursor
        if name is not None:
            self._set_marked(self.session.marked ^ {name})
            self._show_selection()
            self.table.action_move(1)
            self.show_hints()

    def _mark_range(self) -> None:
        cursor = self.table.cursor
        order = [row.id for row in self.table.rows]
        if self._range_from is None or self._range_from not in order or cursor is None:
            self._range_from = cursor
        else:
            low, high = sorted((order.index(self._range_from), order.index(cursor)))
            self._set_marked(self.session.marked | frozenset(order[low : high + 1]))
            self._range_from = None
        self._show_selection()
        self.show_hints()

    def _mark_shown(self) -> None:
        self._set_marked(self.session.marked | {row.id for row in self.table.rows})
        self._show_selection()
        self.show_hints()

    def _clear(self) -> None:
        self._range_from = None
        self._set_marked(frozenset())
        self._set_filter("")
        self._show_selection()
        self.show_hints()

    def _open_filter(self) -> None:
        field = self.query_one("#filter", Input)
        field.display = True
        field.value = self._filter
        field.focus()

    def _set_filter(self, text: str) -> None:
        field = self.query_one("#filter", Input)
        field.display = False
        if field.has_focus:
            self.table.focus()
        self._filter = text
        self._show_rows()
        self._show_details()

    @on(Input.Changed, "#filter")
    def _filter_changed(self, event: Input.Changed) -> None:
        if self.query_one("#filter", Input).display:
            self._filter = event.value
            self._show_rows()
            self._show_details()

    @on(Input.Submitted, "#filter")
    def _filter_submitted(self, event: Input.Submitted) -> None:
        self.table.focus()
        self._set_filter(event.value)

    # --- looking

    def _go_problem(self, step: int) -> None:
        rows = self.table.rows
        places = [number for number, row in enumerate(rows) if row.phase in PROBLEMS]
        here = self.table.place
        beyond = [place for place in places if (place > here if step > 0 else place < here)]
        chosen = beyond or places
        if not chosen:
            self.tell("no cell has failed")
            return
        self.table.cursor = rows[chosen[0] if step > 0 else chosen[-1]].id

    def _go_running(self) -> None:
        running = self.session.feed.state.running_cell()
        if running is None:
            self.tell("no cell is being measured now")
        elif all(row.id != running.cell.id for row in self.table.rows):
            self.tell(f"{running.cell.id} is being measured; the filter hides it (esc clears)")
        else:
            self.table.cursor = running.cell.id

    def go_to(self, cell: str) -> None:
        """Put the cursor on a cell, without the filter where it hides it."""
        if all(row.id != cell for row in self.table.rows):
            self._clear()
        self.table.cursor = cell

    def _order(self) -> None:
        self._problems_first = not self._problems_first
        self._show_rows()
        self._show_selection()

    def _details(self) -> None:
        self._page("Details", self._detail_page)

    def _detail_page(self, width: int) -> Sequence[Line]:
        facts = self._facts()
        return long_lines(facts, width) if facts is not None else []

    def _page(self, title: str, make: Callable[[int], Sequence[Line]]) -> None:
        self.app.push_screen(PageScreen(title, make))

    def _cell_log(self) -> None:
        facts = self._facts()
        if facts is None or facts.launch is None:
            self.tell("this cell has not been on any launch yet")
            return
        self.session.wanted_launch = facts.launch.number
        self.perform("show-logs")


def matches(row: RowText, wanted: str) -> bool:
    """Whether a row has all words of a filter, and none of those behind a `!`."""
    if not wanted:
        return True
    text = (
        f"{row.id} {row.word} {row.method} tp{row.tensor_parallel} {row.workload} c{row.concurrency} "
        f"{row.length} {row.cause}"
    ).lower()
    words = text.split()
    return all(_has(one, words, text) for one in wanted.lower().split())


def _has(word: str, words: Sequence[str], text: str) -> bool:
    """Sizes and ids match whole words, so that `c1` is not `c16`; other words match anywhere."""
    if word.startswith("!"):
        return len(word) == 1 or not _has(word[1:], words, text)
    if word in _PHASES:
        return words[1] == word
    if word[-1:].isdigit() and word.rstrip("0123456789") in {"tp", "c", ""}:
        return word in words
    return word in text
