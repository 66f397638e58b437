"""The host: what the machine is and does, with the age of every value."""

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType
from textual.widget import Widget

from ddconsole.core.actions import Place
from screens.console_screen import ConsoleScreen, Doer
from screens.host_facts import HostFacts
from screens.host_sections import SECTIONS
from screens.host_text import host_lines
from screens.keys import bindings_at
from screens.session import Session
from screens.widgets.lines_view import LinesView


class HostScreen(ConsoleScreen):
    """NUMA domains, GPUs, and one section more."""

    CSS_PATH: ClassVar[str] = "host.tcss"
    PLACE = Place.HOST
    BINDINGS: ClassVar[list[BindingType]] = bindings_at(Place.HOST)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._section = 0

    def body(self) -> Sequence[Widget]:
        """One page of lines."""
        return (LinesView(id="machine"),)

    def doers(self) -> dict[str, Doer]:
        """The next section."""
        return {"host-detail": self._next_section}

    def _next_section(self) -> None:
        self._section = (self._section + 1) % len(SECTIONS)
        self.show(frozenset({"host"}))

    def show(self, changed: frozenset[str]) -> None:
        """The newest sample."""
        if not changed & {"host", "tick", "state", "link"}:
            return
        feed = self.session.feed
        view = self.query_one("#machine", LinesView)
        facts = HostFacts(feed.host, feed.host_state, feed.host_history, feed.state, feed.now())
        view.set_lines(host_lines(facts, (max(60, view.inner_width - 1), view.size.height), self._section))
