"""A page over the screen: lines to read, closed by escape or q."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical

from screens.dialog import Dialog
from screens.spans import Line, Role, line
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView


class PageScreen(Dialog[None]):
    """Shows lines that are made anew as the run goes on."""

    CSS_PATH: ClassVar[str] = "page.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,i,f,enter", "close", show=False)]

    def __init__(self, title: str, make: Callable[[int], Sequence[Line]]) -> None:
        super().__init__()
        self._title = title
        self._make = make

    def compose(self) -> ComposeResult:
        """Title, lines, how to leave."""
        with Vertical(id="page"):
            yield LineBar(id="page-title")
            yield LinesView(id="page-lines")
            yield LineBar(id="page-keys")

    def on_mount(self) -> None:
        """Show it once it has a size."""
        self.query_one("#page-title", LineBar).set_line(line((f" {self._title}", Role.TITLE)))
        self.query_one("#page-keys", LineBar).set_line(self.keys())
        self.query_one("#page-lines").focus()
        self.call_after_refresh(self.feed_changed, frozenset())

    def keys(self) -> Line:
        """What can be done here."""
        return line((" ↑↓", Role.KEY), (" scroll  ", Role.DIM), ("esc", Role.KEY), (" back", Role.DIM))

    def on_resize(self) -> None:
        """Lines break elsewhere."""
        self.call_after_refresh(self.feed_changed, frozenset())

    def feed_changed(self, _changed: frozenset[str]) -> None:
        """Make the lines anew. The app may call while the screen comes up or goes."""
        if not self.query("#page-lines"):
            return
        view = self.query_one("#page-lines", LinesView)
        view.set_lines(self._make(max(20, view.inner_width - 2)))

    def action_close(self) -> None:
        """Back."""
        self.dismiss(None)
