"""Two runs against each other, over the screen: read in the background, listed with the regressions first."""

import os
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from ddconsole.compare.comparison import Comparison
from ddconsole.compare.side import FIGURES
from ddconsole.link.client import AgentError
from screens.clipboard import copy_text
from screens.compare_text import comparison_page
from screens.page import PageScreen
from screens.session import ResultsDesk
from screens.spans import Line, Role, line, shown
from screens.widgets.line_bar import LineBar


class CompareScreen(PageScreen):
    """The run of this console, B, held against another one, A."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,v", "close", show=False),
        Binding("t", "figure", show=False),
        Binding("a", "all", show=False),
        Binding("w", "write", show=False),
    ]

    def __init__(self, desk: ResultsDesk, run: str) -> None:
        super().__init__(f"Compared with {shown(run)}", self._lines)
        self._desk = desk
        self._run = run
        self._comparison: Comparison | None = None
        self._said = "reading …"
        self._failed = False
        self._figure = 0
        self._everything = False

    def on_mount(self) -> None:
        """Read both runs. What a page does when it comes up, it does by itself."""
        self.run_worker(self._compare(), exit_on_error=False)

    def keys(self) -> Line:
        """What can be done here."""
        return line(
            (" ↑↓", Role.KEY), (" scroll  ", Role.DIM), ("t", Role.KEY), (" figure  ", Role.DIM),
            ("a", Role.KEY), (" unchanged too  ", Role.DIM), ("w", Role.KEY), (" LaTeX  ", Role.DIM),
            ("esc", Role.KEY), (" back  ", Role.DIM),
        )  # fmt: skip

    async def _compare(self) -> None:
        try:
            self._comparison = await self._desk.compare(self._run, self._say)
            self._said = ""
        except (AgentError, OSError) as problem:
            self._failed, self._said = True, str(problem)
        self.feed_changed(frozenset())
        self._show_title()

    def _say(self, text: str) -> None:
        self._said = text
        self.feed_changed(frozenset())
        self._show_title()

    def _lines(self, width: int) -> Sequence[Line]:
        if self._comparison is None:
            return [line((f"  {shown(self._said)}", Role.BAD if self._failed else Role.LIVE))]
        return comparison_page(self._comparison, FIGURES[self._figure].id, width, everything=self._everything)

    def _show_title(self) -> None:
        """Which run, and what an export says: below, a message in passing would cover it."""
        if self.query("#page-title"):
            said = (f"   {shown(self._said)}" if self._comparison else "", Role.BAD if self._failed else Role.GOOD)
            title = line((f" Compared with {shown(self._run)}", Role.TITLE), said)
            self.query_one("#page-title", LineBar).set_line(title)

    def action_figure(self) -> None:
        """Another figure."""
        self._figure = (self._figure + 1) % len(FIGURES)
        self.feed_changed(frozenset())

    def action_all(self) -> None:
        """Cells that did not change too, or not."""
        self._everything = not self._everything
        self.feed_changed(frozenset())

    def action_write(self) -> None:
        """For LaTeX."""
        if self._comparison is not None:
            self.run_worker(self._write(self._comparison), exit_on_error=False, exclusive=True)

    async def _write(self, comparison: Comparison) -> None:
        self._failed = False
        try:
            figure = FIGURES[self._figure].id
            path, *kept = (await self._desk.export_comparison(comparison, figure, self._say)).splitlines()
            self._said = "; ".join([f"written to {path}", *kept])
            route = await copy_text(path, os.environ, self.app.copy_to_clipboard)
            self.app.notify(shown(route), markup=False, timeout=6)
        except (AgentError, OSError) as problem:
            self._failed, self._said = True, f"not written: {problem}"
        self._show_title()
