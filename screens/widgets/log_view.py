"""A log that streams: follow or hold still, search, marked errors; the reader's position never slides."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widget import Widget

from screens.log_buffer import LogBuffer, Severity
from screens.spans import Role
from screens.widgets.moving import MOVES
from screens.widgets.roles import ROLE_CLASSES, RoleStyles

PAINT_EVERY = 0.1
"""Seconds between two paints while lines stream in."""
_SEVERITY_ROLES = {
    Severity.PLAIN: Role.PLAIN,
    Severity.WARNING: Role.WARN,
    Severity.ERROR: Role.BAD,
    Severity.GAP: Role.ACCENT,
}
_SEVERITY_MARKS = {Severity.PLAIN: " ", Severity.WARNING: "!", Severity.ERROR: "✗", Severity.GAP: "…"}
_MARGIN = 2


class LogView(Widget, can_focus=True):
    """Shows a `LogBuffer`. While it follows, the end is in sight; else the line at the top stays where it is."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *ROLE_CLASSES,
        "log-view--cursor",
        "log-view--selected",
        "log-view--pill",
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        *MOVES,
        Binding("end,G", "end", show=False),
        Binding("left", "aside(-20)", show=False),
        Binding("right", "aside(20)", show=False),
    ]

    class Moved(Message):
        """What is shown, or whether it follows, changed."""

    def __init__(self, buffer: LogBuffer | None = None, *, id: str | None = None) -> None:  # noqa: A002  # Textual's
        super().__init__(id=id)
        self.buffer = buffer or LogBuffer()
        self.styles_of = RoleStyles(self)
        self.following = True
        self.wrap = False
        self.search = ""
        self.cursor: int | None = None
        """Number of the line at the cursor, while it does not follow."""
        self.selected_from: int | None = None
        self.new_lines = 0
        """Lines that came since it holds still."""
        self._top = (1, 0)
        """First visible line and which of its wrapped pieces."""
        self._aside = 0
        self._rows: list[tuple[int, int]] | None = None
        self._paint: Timer | None = None

    # --- lines come in

    def add_lines(self, lines: Sequence[str], dropped: int = 0) -> None:
        """Take lines in; the screen is painted at most ten times a second."""
        came = self.buffer.add(lines, dropped)
        if not self.following:
            self.new_lines += came
        if self._paint is None and self.is_mounted:
            self._paint = self.set_timer(PAINT_EVERY, self._paint_now)

    def clear(self) -> None:
        """Forget the lines and follow."""
        self.buffer.clear()
        self.selected_from = None
        self.follow()

    def _paint_now(self) -> None:
        self._paint = None
        self._changed()

    def _changed(self) -> None:
        self._rows = None
        self.refresh()
        self.post_message(self.Moved())

    # --- where the reader is

    def follow(self) -> None:
        """Show the end, now and as it grows."""
        self.following = True
        self.new_lines = 0
        self.cursor = None
        self.selected_from = None
        self._changed()

    def hold(self) -> None:
        """Stand still on what is shown."""
        if self.following:
            rows = self._visible_rows()
            self.following = False
            self.cursor = rows[-1][0] if rows else None
            self._top = rows[0] if rows else (self.buffer.first, 0)
            self._changed()

    def go_to(self, number: int) -> None:
        """Hold still with this line at the cursor and in sight."""
        self.hold()
        self.cursor = max(self.buffer.first, min(self.buffer.last, number))
        visible = [row[0] for row in self._visible_rows()]
        if self.cursor not in visible or (visible and visible[-1] == self.cursor and self.wrap):
            above = visible[0] if visible else 1
            near = self.cursor < above and above - self.cursor <= 2
            self._top = (self.cursor, 0) if near else self._top_for(self.cursor, far=not self._is_near(visible))
        self._changed()

    def _is_near(self, visible: Sequence[int]) -> bool:
        return bool(visible) and self.cursor is not None and 0 < self.cursor - visible[-1] <= 2

    def _top_for(self, number: int, *, far: bool) -> tuple[int, int]:
        """The top that shows a line: in the upper third when it is far off, else at the bottom."""
        rows_above = self.size.height // 3 if far else self.size.height - 1
        rows = [(number, 0)]
        line = number
        while len(rows) <= rows_above and line > self.buffer.first:
            line -= 1
            rows = [(line, piece) for piece in range(len(self._pieces(line)))] + rows
        pieces = len(self._pieces(number))
        start = max(0, len(rows) - 1 - rows_above + (0 if far else pieces - 1))
        return rows[min(start, len(rows) - 1)]

    def find(self, step: int) -> bool:
        """Go to the next (1) or previous (-1) match of the search; False when there is none."""
        start = self.cursor
        if start is None:
            start = self.buffer.last + 1 if step < 0 else self.buffer.first - 1
        number = self.buffer.find(self.search, start, step)
        if number is None:
            return False
        self.go_to(number)
        return True

    def find_error(self, *, first: bool) -> bool:
        """Go to the first error, or to the one after the cursor; False when there is none."""
        start = self.buffer.first - 1 if first or self.cursor is None else self.cursor
        number = self.buffer.find_error(start)
        if number is None:
            return False
        self.go_to(number)
        return True

    def set_wrap(self, wrap: bool) -> None:
        """Break long lines, or cut them at the edge."""
        self.wrap = wrap
        self._aside = 0
        self._top = (self._top[0], 0)
        self._changed()

    def set_search(self, text: str) -> None:
        """Mark this text where it stands."""
        self.search = text
        self._changed()

    def toggle_selection(self) -> None:
        """Begin to select at the cursor, or let the selection go."""
        self.hold()
        self.selected_from = None if self.selected_from is not None else self.cursor
        self._changed()

    def selection(self) -> list[str]:
        """The selected lines, else the one at the cursor."""
        if self.cursor is None:
            return []
        start = self.cursor if self.selected_from is None else self.selected_from
        low = max(self.buffer.first, min(start, self.cursor))
        high = min(self.buffer.last, max(start, self.cursor))
        return [self.buffer.text(number) for number in range(low, high + 1)]

    def action_move(self, by: int) -> None:
        """Lines down, or up where `by` is negative."""
        self.hold()
        if self.cursor is not None:
            if by > 0 and self.cursor >= self.buffer.last and self.selected_from is None:
                self.follow()
            else:
                self.go_to(self.cursor + by)

    def action_page(self, by: int) -> None:
        """Pages down, or up where `by` is negative."""
        lines = len({number for number, _ in self._visible_rows()})
        self.action_move(by * max(1, lines - 1))

    def action_first(self) -> None:
        """The oldest line that is kept."""
        self.go_to(self.buffer.first)

    def action_end(self) -> None:
        """The end, and follow it."""
        self.follow()

    def action_aside(self, by: int) -> None:
        """To the right along long lines, or back."""
        self._aside = 0 if self.wrap else max(0, self._aside + by)
        self.refresh()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three lines up."""
        event.stop()
        self.action_move(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three lines down."""
        event.stop()
        self.action_move(3)

    # --- drawing

    def notify_style_update(self) -> None:
        """Styles changed: draw everything again."""
        super().notify_style_update()
        self.styles_of.forget()
        self.refresh()

    def on_resize(self, _event: events.Resize) -> None:
        """Lines break elsewhere."""
        self._top = (self._top[0], 0)
        self._changed()

    def _pieces(self, number: int) -> list[str]:
        text = self.buffer.text(number)
        width = max(1, self.size.width - _MARGIN)
        if not self.wrap or not text:
            return [text]
        if text.isascii():
            return [text[start : start + width] for start in range(0, len(text), width)]
        return chop_cells(text, width)

    def _visible_rows(self) -> list[tuple[int, int]]:
        if self._rows is None:
            self._rows = self._rows_from_end() if self.following else self._rows_from_top()
        return self._rows

    def _rows_from_end(self) -> list[tuple[int, int]]:
        rows: list[tuple[int, int]] = []
        number = self.buffer.last
        while number >= self.buffer.first and len(rows) < self.size.height:
            rows = [(number, piece) for piece in range(len(self._pieces(number)))] + rows
            number -= 1
        return rows[-self.size.height :] if self.size.height else []

    def _rows_from_top(self) -> list[tuple[int, int]]:
        """From the top on; a reader whose lines are forgotten is moved to the oldest that is kept."""
        if self._top[0] < self.buffer.first:
            self._top = (self.buffer.first, 0)
        if self.cursor is not None and len(self.buffer):
            self.cursor = max(self.buffer.first, min(self.buffer.last, self.cursor))
        rows: list[tuple[int, int]] = []
        number, skip = self._top
        while number <= self.buffer.last and len(rows) < self.size.height:
            rows += [(number, piece) for piece in range(skip, len(self._pieces(number)))]
            number, skip = number + 1, 0
        return rows[: self.size.height]

    def render_line(self, y: int) -> Strip:
        """One row of the view; the last one may carry how many lines are new."""
        width = self.size.width
        rows = self._visible_rows()
        strip = self._row_strip(*rows[y]) if y < len(rows) else Strip.blank(width, self.styles_of.ground)
        if y == self.size.height - 1 and self.new_lines and not self.following:
            pill = f" ▼ {self.new_lines:,} new (f follows) "
            style = self.styles_of.component("log-view--pill")
            strip = Strip.join([strip.crop(0, max(0, width - len(pill))), Strip([Segment(pill, style)])])
        return strip.apply_style(self.styles_of.ground)

    def _row_strip(self, number: int, piece: int) -> Strip:
        severity = self.buffer.severity(number)
        base = self.styles_of.of(_SEVERITY_ROLES[severity])
        text = self._pieces(number)[piece]
        mark = _SEVERITY_MARKS[severity] if piece == 0 else " "
        bar = "▌" if number == self.cursor else " "
        body = self._marked_segments(text, base)
        room = max(0, self.size.width - _MARGIN)
        strip = Strip(body).crop(self._aside, self._aside + room)
        if not self.wrap and Strip(body).cell_length > self._aside + room and room:
            strip = Strip.join([strip.crop(0, room - 1), Strip([Segment("…", base)])])
        head = Strip([Segment(bar, self.styles_of.of(Role.ACCENT)), Segment(mark, base)])
        strip = Strip.join([head, strip]).adjust_cell_length(self.size.width)
        if self._is_selected(number):
            strip = strip.apply_style(self.styles_of.component("log-view--selected"))
        elif number == self.cursor:
            strip = strip.apply_style(self.styles_of.component("log-view--cursor"))
        return strip

    def _is_selected(self, number: int) -> bool:
        if self.selected_from is None or self.cursor is None:
            return False
        return min(self.selected_from, self.cursor) <= number <= max(self.selected_from, self.cursor)

    def _marked_segments(self, text: str, style: Style) -> list[Segment]:
        if not self.search:
            return [Segment(text, style)]
        haystack = text.lower() if self.search == self.search.lower() else text
        if len(haystack) != len(text):
            return [Segment(text, style)]
        found: list[Segment] = []
        start = 0
        while (place := haystack.find(self.search, start)) >= 0:
            end = place + len(self.search)
            found += [Segment(text[start:place], style), Segment(text[place:end], self.styles_of.of(Role.MATCH))]
            start = end
        return [*found, Segment(text[start:], style)]
