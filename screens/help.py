"""All actions, and cells, in a list that is searched while typing; enter runs what is chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from ddconsole.core.actions import ACTIONS, Danger, Place
from screens.dialog import Dialog
from screens.spans import Line, Role, cut, line, shown
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView


@dataclass(frozen=True, slots=True)
class Findable:
    """One thing to find: an action, or a cell by its id."""

    name: str
    text: str
    note: str = ""
    action: str | None = None
    keys: str = ""
    danger: Danger = Danger.LOOK


def action_items(here: Place) -> list[Findable]:
    """All actions: those of this screen first, then those of everywhere, then the others."""
    order = [here, Place.EVERYWHERE, *(place for place in Place if place not in {here, Place.EVERYWHERE})]
    return [
        Findable(action.label, action.help, place.value, action.id, " ".join(action.keys), action.danger)
        for place in order
        for action in ACTIONS
        if action.place is place
    ]


def matching(items: Sequence[Findable], wanted: str) -> list[Findable]:
    """Items that have all words somewhere, those whose name begins with the first word in front."""
    words = wanted.lower().split()
    found = [item for item in items if all(word in f"{item.name} {item.text} {item.note}".lower() for word in words)]
    if words:
        found.sort(key=lambda item: _distance(item.name.lower().removeprefix("cell "), " ".join(words)))
    return found


def _distance(name: str, wanted: str) -> int:
    """0 for the name itself, 1 and 2 for names that begin so, 3 for others; equal ones keep their order."""
    if name == wanted:
        return 0
    if name.startswith(wanted):
        return 1
    return 2 if name.startswith(wanted.split(" ", 1)[0]) else 3


class FindScreen(Dialog[Findable | None]):
    """Type to search, up and down to choose, enter to take it.

    Args:
        title: what is chosen.
        items: what there is.
        does: what enter does, as a word of its own: `opens`.
    """

    CSS_PATH: ClassVar[str] = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
    ]

    def __init__(self, title: str, items: Sequence[Findable], does: str) -> None:
        super().__init__()
        self._does = does
        self._title = title
        self._items = items
        self._found: list[Findable] = list(items)
        self._place = 0

    def compose(self) -> ComposeResult:
        """Title, what is searched, what is found."""
        with Vertical(id="find"):
            yield LineBar(id="find-title")
            yield Input(placeholder="type to search", id="wanted", compact=True)
            yield LinesView(can_focus=False, id="found")
            yield LineBar(id="find-about")
            yield LineBar(id="find-keys")

    def on_mount(self) -> None:
        """Show everything, ready to type."""
        self.query_one("#find-title", LineBar).set_line(line((f" {self._title}", Role.TITLE)))
        self.query_one("#find-keys", LineBar).set_line(
            line((" ↑↓", Role.KEY), (" choose  ", Role.DIM), ("enter", Role.KEY), (f" {self._does}  ", Role.DIM))
            + line(("esc", Role.KEY), (" back   ", Role.DIM), ("select text: hold shift and drag", Role.DIM))
        )
        self.query_one("#wanted").focus()
        self.call_after_refresh(self._show)

    def on_resize(self) -> None:
        """More or less room."""
        self.call_after_refresh(self._show)

    @on(Input.Changed, "#wanted")
    def _wanted_changed(self, event: Input.Changed) -> None:
        self._found = matching(self._items, event.value)
        self._place = 0
        self._show()

    @on(Input.Submitted, "#wanted")
    def _run(self) -> None:
        self.dismiss(self._found[self._place] if self._found else None)

    def action_move(self, by: int) -> None:
        """Choose another one."""
        self._place = max(0, min(len(self._found) - 1, self._place + by))
        self._show()

    def action_close(self) -> None:
        """Back, without running anything."""
        self.dismiss(None)

    def _show(self) -> None:
        view = self.query_one("#found", LinesView)
        width = max(30, view.inner_width - 1)
        lines = [found_line(item, width, chosen=number == self._place) for number, item in enumerate(self._found)]
        chosen = self._found[self._place] if self._found else None
        about = f" {chosen.keys or chosen.name}  {shown(chosen.text)}" if chosen is not None else ""
        self.query_one("#find-about", LineBar).set_line(line((about, Role.PLAIN)))
        view.set_lines(lines or [line((" nothing is called that", Role.DIM))])
        height = max(1, view.size.height)
        top = view.scroll_offset.y
        if not top <= self._place < top + height:
            view.scroll_to(y=max(0, self._place - height // 2), animate=False, force=True)


def found_line(item: Findable, width: int, *, chosen: bool) -> Line:
    """Key, name and what it does; where it works, if there is room."""
    role = Role.WARN if item.danger is Danger.DESTROY else Role.KEY
    if item.action is None:
        return line(
            ("▌" if chosen else " ", Role.ACCENT),
            (f"{item.name:<12} ", Role.KEY),
            (f"{item.note:<12} ", Role.DIM),
            (cut(shown(item.text), width - 28), Role.STRONG if chosen else Role.PLAIN),
        )
    keys = " ".join(item.keys.split(" ")[:2])
    place = f"  {item.note}" if width >= 90 else ""
    room = max(0, width - 31 - len(place))
    return line(
        ("▌" if chosen else " ", Role.ACCENT),
        (f"{keys:>9} ", role),
        (f"{item.name:<17} ", Role.STRONG if chosen else Role.PLAIN),
        (cut(shown(item.text), room).ljust(room), Role.PLAIN if chosen else Role.DIM),
        (place, Role.DIM),
    )
