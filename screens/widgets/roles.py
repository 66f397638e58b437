"""From lines with roles to strips: the one place where a role becomes a style."""

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from screens.spans import Line, Role

ROLE_CLASSES = frozenset(f"role--{role}" for role in Role)
"""Component classes of every widget that shows lines; styled in console.tcss."""


class RoleStyles:
    """The styles of one widget, looked up once: asking Textual costs more than drawing a segment."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._known: dict[str, Style] = {}

    def forget(self) -> None:
        """The widget's styles have changed."""
        self._known.clear()

    @property
    def ground(self) -> Style:
        """The widget's own style, with its background."""
        style = self._known.get("")
        if style is None:
            style = self._known[""] = self._widget.rich_style
        return style

    def component(self, name: str) -> Style:
        """The style of a component class, without the background of the widget."""
        style = self._known.get(name)
        if style is None:
            style = self._known[name] = self._widget.get_component_rich_style(name, partial=True)
        return style

    def of(self, role: Role) -> Style:
        """The style of a role."""
        return self.component(f"role--{role.value}")

    def strip(self, line: Line, width: int | None = None) -> Strip:
        """A strip of a line, cut or filled to `width` cells where it is given."""
        strip = Strip([Segment(text, self.of(role)) for text, role in line if text])
        return strip if width is None else strip.adjust_cell_length(width)
