"""The footer: at most eight keys that mean something here and now."""

from collections.abc import Sequence

from ddconsole.core.actions import Action, Danger
from screens.spans import Line, Role, Span
from screens.widgets.line_bar import LineBar


class FooterHints(LineBar):
    """The last line of every screen."""

    def show(self, actions: Sequence[Action]) -> None:
        """Hint at these actions."""
        self.set_line(footer_line(actions, self.size.width or 80))


def footer_line(actions: Sequence[Action], width: int) -> Line:
    """Keys and labels in `width` cells; what does not fit goes, but the last one (all keys) stays."""
    chosen = list(actions)
    while len(chosen) > 1 and _width(chosen) > width:
        chosen.pop(-2)
    spans: list[Span] = [(" ", Role.PLAIN)]
    for action in chosen:
        role = Role.WARN if action.danger is Danger.DESTROY else Role.KEY
        spans += [(action.key, role), (f" {action.label}  ", Role.DIM)]
    return tuple(spans)


def _width(actions: Sequence[Action]) -> int:
    return 1 + sum(len(action.key) + len(action.label) + 3 for action in actions) - 2
