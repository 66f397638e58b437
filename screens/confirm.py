"""A question before something is lost: it names its target, what it costs, and is answered by keys of its own."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical

from ddconsole.core.actions import CANCEL_KEYS, CONFIRM_KEYS
from screens.dialog import Dialog
from screens.spans import EMPTY, Line, Role, joined, labelled, line
from screens.widgets.lines_view import LinesView

KEYS_IGNORED_FOR = 0.3
"""Seconds after it opened in which keys are ignored: what was typed for something else answers nothing."""
_MOST_TARGETS = 8
_WIDTH = 72
_FRAME = 4
"""Columns of border and padding; the stylesheet lets the box have nine tenths of the screen."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked."""

    title: str
    where: str
    """The host and the run."""
    targets: Sequence[str] = ()
    hidden: int = 0
    """Targets that the filter keeps out of sight."""
    costs: Sequence[str] = ()
    yes: str = "yes"
    no: str = "no, leave it"


class ConfirmScreen(Dialog[bool]):
    """Asks; the answer is False unless `y` is pressed. What it says is made anew as the run goes on."""

    CSS_PATH: ClassVar[str] = "confirm.tcss"
    BINDINGS: ClassVar[list[BindingType]] = []

    def __init__(self, ask: Callable[[], Question]) -> None:
        super().__init__()
        self._ask = ask
        self._opened = time.monotonic()

    def compose(self) -> ComposeResult:
        """A box with the question."""
        with Vertical(id="question"):
            yield LinesView(can_focus=False, id="asked")

    def on_mount(self) -> None:
        """Ask."""
        self._opened = time.monotonic()
        self.feed_changed(frozenset())

    def feed_changed(self, _changed: frozenset[str]) -> None:
        """Ask again, as things stand now. The app may call while the screen comes up or goes."""
        if not self.query("#asked"):
            return
        lines = question_lines(self._ask(), min(_WIDTH, self.app.size.width * 9 // 10 - _FRAME))
        view = self.query_one("#asked", LinesView)
        view.styles.height = min(len(lines), max(3, self.app.size.height - 4))
        view.set_lines(lines)

    def on_key(self, event: events.Key) -> None:
        """Only the answers mean anything here."""
        event.stop()
        event.prevent_default()
        if time.monotonic() - self._opened < KEYS_IGNORED_FOR:
            return
        if event.key in CONFIRM_KEYS:
            self.dismiss(True)
        elif event.key in CANCEL_KEYS:
            self.dismiss(False)


def question_lines(question: Question, width: int) -> list[Line]:
    """The question as lines."""
    lines: list[Line] = [line((f" {question.title}", Role.TITLE)), EMPTY]
    lines += labelled("on", question.where, width=width)
    for number, target in enumerate(question.targets[:_MOST_TARGETS]):
        lines += labelled("" if number else "what", target, Role.STRONG, width=width, most=1)
    rest = len(question.targets) - _MOST_TARGETS
    if rest > 0:
        lines += labelled("", f"and {rest} more", Role.STRONG, width=width)
    if question.hidden:
        lines += labelled("", f"{question.hidden} of them the filter keeps out of sight", Role.WARN, width=width)
    for number, cost in enumerate(question.costs):
        lines += labelled("" if number else "costs", cost, Role.WARN, width=width)
    answers = joined([(" y ", Role.BADGE), (question.yes, Role.PLAIN), ("   n", Role.KEY), (question.no, Role.DIM)])
    return [*lines, EMPTY, ((" ", Role.PLAIN), *answers)]
