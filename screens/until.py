"""Asking for a deadline: a time of the host's day, or none."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from ddconsole.core.deadline import dropped_cells
from ddconsole.core.run_state import RunState
from screens.dialog import Dialog
from screens.spans import Line, Role, joined, line, shown
from screens.widgets.lines_view import LinesView


class UntilScreen(Dialog[str | None]):
    """One field; None when it is left with escape."""

    CSS_PATH: ClassVar[str] = "until.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        """What holds now, the field, and its keys."""
        with Vertical(id="until"):
            yield LinesView(can_focus=False, id="until-says")
            yield Input(placeholder="07:00, or none", id="until-time", compact=True)

    def on_mount(self) -> None:
        """Ready to type."""
        view = self.query_one(LinesView)
        view.styles.height = 3
        view.set_lines(until_lines(self._state))
        self.query_one(Input).focus()

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value.strip())

    def action_leave(self) -> None:
        """Leave it as it is."""
        self.dismiss(None)


def until_lines(state: RunState) -> list[Line]:
    """The deadline now, and what it costs."""
    deadline = state.deadline
    now = f"now until {shown(deadline.text)}" if deadline is not None and deadline.at else "no deadline now"
    left_out = len(dropped_cells(state))
    keys = [("enter", Role.KEY), ("set it", Role.DIM), ("esc", Role.KEY), ("leave it", Role.DIM)]
    return [
        line(("When must the sweep be over, by the host's clock?", Role.STRONG)),
        line((now + (f": {left_out} cells do not fit" if left_out else ""), Role.DIM)),
        joined(keys, " "),
    ]
