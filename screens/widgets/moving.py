"""Keys with which one moves through a list of lines, the same in every widget that has one."""

from textual.binding import Binding, BindingType

MOVES: tuple[BindingType, ...] = (
    Binding("up,k", "move(-1)", show=False),
    Binding("down,j", "move(1)", show=False),
    Binding("pageup", "page(-1)", show=False),
    Binding("pagedown", "page(1)", show=False),
    Binding("home,g", "first", show=False),
)
"""The widget has the actions `move`, `page` and `first`; what its end is, it says itself."""
