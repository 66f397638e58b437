"""A page of lines that scrolls; only the lines that changed are drawn again."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from screens.spans import Line
from screens.widgets.roles import ROLE_CLASSES, RoleStyles


class LinesView(ScrollView):
    """Shows lines as they are given. Give them again as often as you like: what is equal costs nothing."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {*ROLE_CLASSES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("g", "scroll_home", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, *, can_focus: bool = True, id: str | None = None) -> None:  # noqa: A002  # Textual's own name
        super().__init__(id=id)
        self.can_focus = can_focus
        self.styles_of = RoleStyles(self)
        self.lines: Sequence[Line] = ()

    @property
    def inner_width(self) -> int:
        """Cells of a line: without the scrollbar."""
        return self.scrollable_content_region.width

    def set_lines(self, lines: Sequence[Line]) -> None:
        """Show these lines."""
        before, self.lines = self.lines, tuple(lines)
        width = max((sum(len(text) for text, _ in one) for one in self.lines), default=0)
        size = Size(min(width, 4000), len(self.lines))
        if size != self.virtual_size:
            self.virtual_size = size
        if len(before) != len(self.lines):
            self.refresh()
            return
        top = self.scroll_offset.y
        for number in range(top, min(len(self.lines), top + self.size.height)):
            if before[number] != self.lines[number]:
                self.refresh(Region(0, number - top, self.inner_width, 1))

    def render_line(self, y: int) -> Strip:
        """One line of the page."""
        left, top = self.scroll_offset
        width = self.inner_width
        number = top + y
        if number >= len(self.lines):
            return Strip.blank(width, self.styles_of.ground)
        strip = self.styles_of.strip(self.lines[number])
        ground = self.styles_of.ground
        return strip.crop_extend(left, left + width, ground).apply_style(ground).simplify()

    def notify_style_update(self) -> None:
        """Styles changed: draw everything again."""
        super().notify_style_update()
        self.styles_of.forget()
        self.refresh()
