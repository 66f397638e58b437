"""Asking for a deadline: a time of the host's day, or none."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input

from ddconsole.core.deadline import NO_DEADLINE, dropped_cells, until_problem
from ddconsole.core.run_state import RunState
from screens.dialog import Dialog
from screens.spans import Line, Role, joined, line, shown
from screens.widgets.lines_view import LinesView


class UntilScreen(Dialog[str | None]):
    """One field; None when it is left with escape. What is no time is told, and the dialog stays."""

    CSS_PATH: ClassVar[str] = "until.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, state: RunState) -> None:
        super().__init__()
        self._state = state

    def compose(self) -> ComposeResult:
        """What holds now, the field, and its keys."""
        with Vertical(id="until"):
            yield LinesView(can_focus=False, id="until-says")
            yield Input(placeholder=f"07:00, or {NO_DEADLINE}", id="until-time", compact=True)

    def on_mount(self) -> None:
        """Ready to type."""
        self._say("")
        self.query_one(Input).focus()

    def _say(self, problem: str) -> None:
        view = self.query_one(LinesView)
        lines = until_lines(self._state, problem)
        view.styles.height = len(lines)
        view.set_lines(lines)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip().lower()
        problem = until_problem(text)
        if problem:
            self._say(problem)
        else:
            self.dismiss(text)

    def action_leave(self) -> None:
        """Leave it as it is."""
        self.dismiss(None)


def until_lines(state: RunState, problem: str = "") -> list[Line]:
    """The deadline now, what it costs, and what is wrong with what was typed."""
    deadline = state.deadline
    now = f"now until {shown(deadline.text)}" if deadline is not None and deadline.at else "no deadline now"
    number = len(dropped_cells(state))
    left_out = "1 cell does not fit" if number == 1 else f"{number} cells do not fit"
    keys = [("enter", Role.KEY), ("set it", Role.DIM), ("esc", Role.KEY), ("leave it", Role.DIM)]
    return [
        line(("When must the sweep be over, by the host's clock?", Role.STRONG)),
        line((now + (f": {left_out}" if number else ""), Role.DIM)),
        *([line((shown(problem), Role.BAD))] if problem else []),
        joined(keys, " "),
    ]
