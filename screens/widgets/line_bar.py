"""One line of the screen that is drawn again only when it says something else."""

from typing import ClassVar

from textual.strip import Strip
from textual.widget import Widget

from screens.spans import EMPTY, Line
from screens.widgets.roles import ROLE_CLASSES, RoleStyles


class LineBar(Widget):
    """A line of its own; with `hide_empty` it takes no room while it has nothing to say."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*ROLE_CLASSES}
    DEFAULT_CSS = "LineBar { height: 1; }"

    def __init__(self, *, id: str | None = None, hide_empty: bool = False) -> None:  # noqa: A002  # Textual's name
        super().__init__(id=id)
        self.line: Line = EMPTY
        self._hide_empty = hide_empty
        self.styles_of = RoleStyles(self)
        if hide_empty:
            self.display = False

    def set_line(self, line: Line) -> None:
        """Say this."""
        if line == self.line:
            return
        self.line = line
        if self._hide_empty:
            self.display = bool(line)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """The line."""
        line = self.line if y == 0 else EMPTY
        return self.styles_of.strip(line, self.size.width).apply_style(self.styles_of.ground).simplify()

    def notify_style_update(self) -> None:
        """Styles changed: draw everything again."""
        super().notify_style_update()
        self.styles_of.forget()
        self.refresh()
