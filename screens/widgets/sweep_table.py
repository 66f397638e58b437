"""The sweep table: one line a cell, cursor and marks by cell id, one changed row costs one line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ddconsole.core import states as st
from ddconsole.core.row_text import RowText
from screens.spans import PHASE_ROLES, Role
from screens.widgets.columns import COLUMNS, MARGIN, Placed, fit, needed_width
from screens.widgets.moving import MOVES
from screens.widgets.roles import ROLE_CLASSES, RoleStyles

_QUIET = frozenset({st.CellPhase.SKIPPED, st.CellPhase.PRUNED, st.CellPhase.PENDING})
_HEADER = 1
"""Lines of the header, which does not scroll."""


class SweepTable(ScrollView, can_focus=True):
    """Rows by cell id. `set_rows` is told all rows that the filter lets through, in order, as often as one likes."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *ROLE_CLASSES,
        "sweep-table--header",
        "sweep-table--cursor",
        "sweep-table--marked",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVES,
        Binding("end,G", "last", show=False),
        Binding("left", "shift(-1)", show=False),
        Binding("right", "shift(1)", show=False),
    ]

    cursor: reactive[str | None] = reactive(None, repaint=False)
    """Id of the cell under the cursor."""

    @dataclass
    class CursorMoved(Message):
        """Another cell is under the cursor."""

        cell: str | None

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self.styles_of = RoleStyles(self)
        self.rows: Sequence[RowText] = ()
        self.marked: frozenset[str] = frozenset()
        self.empty_text = "no cell"
        self._places: dict[str, int] = {}
        self._needed: list[int] = [needed_width(column, ()) for column in COLUMNS]
        self._placed: list[Placed] = []
        self._strips: dict[str, Strip] = {}
        self._shift = 0
        self._scrolls_later = False

    # --- what is shown

    def set_rows(self, rows: Sequence[RowText]) -> None:
        """Show these rows; only lines that changed are drawn again."""
        before, self.rows = self.rows, rows
        same_cells = len(before) == len(rows) and all(a.id == b.id for a, b in zip(before, rows, strict=True))
        if not same_cells:
            self._rearrange()
            return
        changed = [number for number, (a, b) in enumerate(zip(before, rows, strict=True)) if a is not b and a != b]
        if self._widen(rows[number] for number in changed):
            return
        for number in changed:
            self._strips.pop(rows[number].id, None)
            self._refresh_row(number)

    def update_rows(self, changed: Sequence[RowText]) -> None:
        """As `set_rows`, where cells and order are the same and only these texts are new."""
        rows = list(self.rows)
        for row in changed:
            rows[self._places[row.id]] = row
        self.rows = rows
        if self._widen(changed):
            return
        for row in changed:
            self._strips.pop(row.id, None)
            self._refresh_row(self._places[row.id])

    def set_marked(self, marked: frozenset[str]) -> None:
        """Show these cells as marked."""
        changed, self.marked = self.marked ^ marked, marked
        for name in changed:
            self._strips.pop(name, None)
            if name in self._places:
                self._refresh_row(self._places[name])

    @property
    def inner_width(self) -> int:
        """Cells of a row: without the scrollbar."""
        return self.scrollable_content_region.width

    def row_under_cursor(self) -> RowText | None:
        """The row of the cell under the cursor."""
        place = self._places.get(self.cursor) if self.cursor is not None else None
        return None if place is None else self.rows[place]

    def _rearrange(self) -> None:
        """Rows came, went or changed places: the cursor stays on its cell, or goes to the neighbour."""
        old_place = self._places.get(self.cursor, 0) if self.cursor is not None else 0
        self._places = {row.id: number for number, row in enumerate(self.rows)}
        self._needed = [needed_width(column, self.rows) for column in COLUMNS]
        self.virtual_size = Size(0, len(self.rows) + _HEADER)
        self._lay_out()
        if self.cursor not in self._places:
            self.cursor = self.rows[min(old_place, len(self.rows) - 1)].id if self.rows else None
        else:
            self._scroll_to_cursor()

    def _widen(self, rows: Iterable[RowText]) -> bool:
        changed = list(rows)
        grown = [max(have, needed_width(column, changed)) for column, have in zip(COLUMNS, self._needed, strict=True)]
        if grown == self._needed:
            return False
        self._needed = grown
        self._lay_out()
        return True

    def _lay_out(self) -> None:
        self._placed = fit(self._needed, self.inner_width, self._shift)
        self._strips.clear()
        self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        """Choose the columns anew and keep the cursor in sight."""
        self._lay_out()
        self._scroll_to_cursor()

    def notify_style_update(self) -> None:
        """Styles changed: draw everything again."""
        super().notify_style_update()
        self.styles_of.forget()
        self._strips.clear()
        self.refresh()

    # --- drawing

    def _refresh_row(self, number: int) -> None:
        y = number - self.scroll_offset.y + _HEADER
        if _HEADER <= y < self.size.height:
            self.refresh(Region(0, y, self.inner_width, 1))

    def render_line(self, y: int) -> Strip:
        """The header, or one row."""
        width = self.inner_width
        if y < _HEADER:
            return self._header_strip().adjust_cell_length(width, self.styles_of.ground)
        number = self.scroll_offset.y + y - _HEADER
        if number >= len(self.rows):
            text = f"  {self.empty_text}" if number == 0 else ""
            strip = Strip([Segment(text, self.styles_of.of(Role.DIM))] if text else [])
            return strip.adjust_cell_length(width, self.styles_of.ground).apply_style(self.styles_of.ground)
        row = self.rows[number]
        found = self._strips.get(row.id)
        if found is None:
            found = self._strips[row.id] = self._row_strip(row).adjust_cell_length(width).simplify()
        return found.apply_style(self._base_style(row))

    def _base_style(self, row: RowText) -> Style:
        base = self.styles_of.ground
        if row.id in self.marked:
            base += self.styles_of.component("sweep-table--marked")
        if row.id == self.cursor:
            base += self.styles_of.component("sweep-table--cursor")
        return base

    def _header_strip(self) -> Strip:
        titles = [set_title(one) for one in self._placed]
        hidden = len(COLUMNS) - len(self._placed)
        left = "◂ " if self._shift else "  "
        style = self.styles_of.ground + self.styles_of.component("sweep-table--header")
        text = left + " ".join(titles)
        room = self.inner_width - len(text)
        if hidden > self._shift and room >= 1:
            text += " " * (room - 1) + "▸"
        return Strip([Segment(text.ljust(self.inner_width), style)])

    def _row_strip(self, row: RowText) -> Strip:
        role = PHASE_ROLES[row.phase]
        ground = Role.DIM if row.phase in _QUIET or row.stale else Role.PLAIN
        bar = "▌" if row.id == self.cursor else " "
        mark = "●" if row.id in self.marked else " "
        segments = [self._segment(bar, Role.ACCENT), self._segment(mark, Role.ACCENT)]
        room = self.inner_width - MARGIN
        for one in self._placed:
            if one.column.figure and row.cause:
                cause_role = Role.DIM if row.phase in _QUIET else role
                segments.append(self._segment(set_cell_size(cut_cells(row.cause, room), max(0, room)), cause_role))
                break
            text = getattr(row, one.column.field)
            text_role = ground
            if one.column.field == "word":
                text = f"{'?' if row.stale else row.glyph} {text}"
                text_role = Role.DIM if row.stale else role
            elif one.column.field == "spread":
                text_role = Role.LIVE if row.live else Role.DIM
            elif one.column.field in {"speed_up", "rate"} and not row.stale:
                text_role = Role.STRONG
            segments.append(self._segment(aligned(text, one) + " ", text_role))
            room -= one.width + 1
        return Strip(segments)

    def _segment(self, text: str, role: Role) -> Segment:
        return Segment(text, self.styles_of.of(role))

    # --- the cursor

    def watch_cursor(self, before: str | None, after: str | None) -> None:
        """Draw the row that the cursor left and the one it came to."""
        for name in (before, after):
            if name is not None and name in self._places:
                self._strips.pop(name, None)
                self._refresh_row(self._places[name])
        self._scroll_to_cursor()
        self.post_message(self.CursorMoved(after))

    def _scroll_to_cursor(self) -> None:
        place = self._places.get(self.cursor) if self.cursor is not None else None
        height = self.size.height - _HEADER
        if place is None or height <= 0:
            return
        top = self.scroll_offset.y
        wanted = place if place < top else (place - height + 1 if place >= top + height else top)
        if wanted != top:
            self.scroll_to(y=wanted, animate=False, force=True)
            if self.scroll_offset.y != wanted and not self._scrolls_later:
                self._scrolls_later = True
                self.call_after_refresh(self._scroll_later)

    def _scroll_later(self) -> None:
        """Rows that came in this very moment can be scrolled to once they are laid out."""
        self._scroll_to_cursor()
        self._scrolls_later = False

    def _go(self, place: int) -> None:
        if self.rows:
            self.cursor = self.rows[max(0, min(len(self.rows) - 1, place))].id

    @property
    def place(self) -> int:
        """The row number of the cursor, 0 when there is none."""
        return self._places.get(self.cursor, 0) if self.cursor is not None else 0

    def action_move(self, by: int) -> None:
        """Rows down, or up where `by` is negative."""
        self._go(self.place + by)

    def action_page(self, by: int) -> None:
        """Pages down, or up where `by` is negative."""
        self._go(self.place + by * max(1, self.size.height - _HEADER - 1))

    def action_first(self) -> None:
        """The first row."""
        self._go(0)

    def action_last(self) -> None:
        """The last row."""
        self._go(len(self.rows) - 1)

    def action_shift(self, by: int) -> None:
        """Figure columns out of sight to the left, or back."""
        figures = sum(column.figure for column in COLUMNS)
        self._shift = max(0, min(figures - 1, self._shift + by))
        self._lay_out()

    def on_click(self, event: events.Click) -> None:
        """The cursor goes to the row that was clicked."""
        if event.y >= _HEADER:
            number = self.scroll_offset.y + event.y - _HEADER
            if number < len(self.rows):
                self._go(number)


def set_title(placed: Placed) -> str:
    """A column's title in its width."""
    return aligned(placed.column.title, placed)


def aligned(text: str, placed: Placed) -> str:
    """A text in a column's width, cut with `…` where it is longer."""
    text = cut_cells(text, placed.width)
    if placed.column.right:
        missing = placed.width - Segment(text).cell_length
        return " " * missing + text
    return set_cell_size(text, placed.width)


def cut_cells(text: str, width: int) -> str:
    """`text` in at most `width` terminal cells, with `…` where it was cut."""
    if Segment(text).cell_length <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""
