"""From lines with roles to strips: the one place where a role becomes a style."""

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from screens.spans import Line, Role

ROLE_CLASSES = frozenset(f"role--{role}" for role in Role)
"""Component classes of every widget that shows lines; styled in console.tcss."""


def role_style(widget: Widget, role: Role) -> Style:
    """The style of a role, without the background of the widget; Textual caches it until the styles change."""
    return widget.get_component_rich_style(f"role--{role}", partial=True)


def strip_of(widget: Widget, line: Line, width: int | None = None) -> Strip:
    """A strip of a line, cut or filled to `width` cells where it is given."""
    strip = Strip([Segment(text, role_style(widget, role)) for text, role in line if text])
    return strip if width is None else strip.adjust_cell_length(width)
