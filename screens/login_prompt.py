"""What a login asks of a person: typed into the console, shown as dots where it is secret, and gone with the dialog."""

import time
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Label

from ddconsole.link.prompting import Prompt
from screens import confirm
from screens.dialog import Dialog
from screens.spans import EMPTY, Line, Role, joined, labelled, line, shown
from screens.widgets.lines_view import LinesView

_WIDTH = 76


class LoginPromptScreen(Dialog[str | None]):
    """Asks one thing; the answer is None when the operator leaves it with escape, or nobody answers in time.

    Args:
        prompt: what is asked.
        limit: seconds after which whoever asked takes it back; it is counted down here.
    """

    CSS_PATH: ClassVar[str] = "login_prompt.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", show=False)]

    def __init__(self, prompt: Prompt, limit: float) -> None:
        super().__init__()
        self._prompt = prompt
        self._opened = time.monotonic()
        self._until = self._opened + limit

    def compose(self) -> ComposeResult:
        """What to know, and a field."""
        with Vertical(id="login"):
            yield LinesView(can_focus=False, id="login-says")
            yield Label(f" {shown(self._prompt.label)}:", id="login-label", markup=False)
            yield Input(password=self._prompt.secret, id="login-answer", compact=True)
            yield LinesView(can_focus=False, id="login-keys")

    def on_mount(self) -> None:
        """Ready to type."""
        self._opened = time.monotonic()
        self._show()
        self.query_one(Input).focus()
        self.set_interval(1.0, self._show)

    def on_resize(self) -> None:
        """What fits is another thing now."""
        self._show()

    def _show(self) -> None:
        width = min(_WIDTH, self.app.size.width - 6)
        says = said_lines(self._prompt, width)
        view = self.query_one("#login-says", LinesView)
        view.styles.height = min(len(says), max(3, self.app.size.height - 8))
        view.set_lines(says)
        left = max(0, round(self._until - time.monotonic()))
        keys = self.query_one("#login-keys", LinesView)
        keys.styles.height = 1
        answers = [("enter", Role.KEY), ("answer", Role.DIM), ("esc", Role.KEY), ("not now", Role.DIM)]
        keys.set_lines([joined([(" ", Role.PLAIN), *answers, (f"{left} s left", Role.DIM)], " ")])

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        # What was typed for something else when the dialog came up answers nothing.
        if time.monotonic() - self._opened < confirm.KEYS_IGNORED_FOR:
            self.query_one(Input).value = ""
            return
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """No answer."""
        self.dismiss(None)


def said_lines(prompt: Prompt, width: int) -> list[Line]:
    """The question, as lines."""
    lines: list[Line] = [line((f" {shown(prompt.title)}", Role.TITLE)), EMPTY]
    lines += labelled("from", prompt.host, Role.STRONG, width=width)
    for number, text in enumerate(prompt.lines):
        lines += labelled("" if number else "about", text, width=width, most=4)
    return [*lines, EMPTY]
