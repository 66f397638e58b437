"""Preflight: what the checks found, what stands in the way first; details one key away; one key runs them again."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ddconsole.core.actions import Place
from ddconsole.core.wire import StageStatus
from ddconsole.link.client import AgentError
from ddconsole.link.prompting import Prompt
from screens.confirm import ConfirmScreen, Question
from screens.console_screen import ConsoleScreen, Doer
from screens.keys import bindings_at
from screens.login_prompt import LoginPromptScreen
from screens.page import PageScreen
from screens.preflight_text import finding_line, finding_lines, ordered, outcome_of, staging_line, summary_line
from screens.session import Finding, PreflightDesk, Session
from screens.spans import EMPTY, Line, Role, line, shown
from screens.widgets.line_bar import LineBar
from screens.widgets.lines_view import LinesView

_ANSWER_TIME = 600.0
_LOOK = 1.0
"""Seconds between two looks at a staging."""


class PreflightScreen(ConsoleScreen):
    """Findings with a cursor, and the one under it in words."""

    CSS_PATH: ClassVar[str] = "preflight.tcss"
    PLACE = Place.PREFLIGHT
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_at(Place.PREFLIGHT),
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
    ]

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._place = 0
        self._checking = False
        self._trouble = ""
        self._staging: StageStatus | None = None

    def body(self) -> Sequence[Widget]:
        """Summary, findings, the chosen one."""
        return (
            LineBar(id="summary"),
            LinesView(can_focus=False, id="findings"),
            LinesView(can_focus=False, id="finding"),
        )

    def on_mount(self) -> None:
        """The first look runs the checks."""
        super().on_mount()
        if self.session.findings is None and self.session.preflight is not None:
            self._run()

    def doers(self) -> dict[str, Doer]:
        """Run again, details."""
        return {
            "check-again": self._run,
            "finding": self._details,
            "accept-finding": self._accept,
            "stage": self._ask_to_stage,
        }

    def _run(self) -> None:
        if self.session.preflight is None:
            self.tell("this console was opened without a plan: there is nothing to check", bad=True)
        elif not self._checking:
            self._checking = True
            self._staging = None
            self._trouble = ""
            self.run_worker(self._check(), exit_on_error=False)
            self.show(frozenset())

    async def _check(self) -> None:
        assert self.session.preflight is not None
        try:
            self.session.findings = await self.session.preflight()
            self._place = 0
        except (AgentError, OSError) as problem:
            self._trouble = str(problem)
        finally:
            self._checking = False
        self.show(frozenset())

    def show(self, changed: frozenset[str]) -> None:
        """Findings as they are."""
        if changed and not changed & {"tick"}:
            return
        findings = ordered(self.session.findings or ())
        self.query_one("#summary", LineBar).set_line(self._summary())
        view = self.query_one("#findings", LinesView)
        width = max(40, view.inner_width - 1)
        self._place = max(0, min(len(findings) - 1, self._place))
        place = self._place
        view.set_lines([finding_line(one, width, chosen=at == place) for at, one in enumerate(findings)])
        if not view.scroll_offset.y <= place < view.scroll_offset.y + max(1, view.size.height):
            view.scroll_to(y=max(0, place - view.size.height // 2), animate=False, force=True)
        self.query_one("#finding", LinesView).set_lines(self._details_lines(width))

    def _desk(self) -> PreflightDesk | None:
        """Who takes orders, or a word to the operator that nobody does."""
        desk = self.session.preflight
        if isinstance(desk, PreflightDesk):
            return desk
        self.tell("this console was opened without a plan: nothing can be accepted or staged here", bad=True)
        return None

    def _accept(self) -> None:
        chosen, desk = self._chosen_finding(), self._desk()
        if chosen is None or desk is None:
            return
        if outcome_of(chosen) in {"pass", "skip"}:
            self.tell("this finding is green: there is nothing to accept")
            return
        check = str(chosen.get("id", ""))
        prompt = Prompt(
            host=self.session.feed.host,
            title=f"Accept {check}?",
            lines=(
                str(chosen.get("observed", "")),
                "it holds nothing back then, and the reason stands in every record",
            ),
            label="because",
            secret=False,
        )

        def answered(because: str | None) -> None:
            if because and because.strip():
                self.run_worker(self._accepted(desk, check, because.strip()), exit_on_error=False)

        self.app.push_screen(LoginPromptScreen(prompt, _ANSWER_TIME), answered)

    async def _accepted(self, desk: PreflightDesk, check: str, because: str) -> None:
        try:
            self.session.findings = await desk.accept(check, because)
        except (AgentError, OSError) as problem:
            self.tell(str(problem), bad=True)
        self.show(frozenset())

    def _ask_to_stage(self) -> None:
        desk = self._desk()
        if desk is None:
            return
        question = Question(
            title="Bring model and draft to the host?",
            where=self.session.feed.host,
            targets=("as the plan's `model: source:` says",),
            costs=("memory or disk of the host; it goes on when this console is closed",),
            yes="stage",
        )

        def answered(yes: bool | None) -> None:
            if yes:
                self.run_worker(self._stage(desk), exit_on_error=False)

        self.app.push_screen(ConfirmScreen(lambda: question), answered)

    async def _stage(self, desk: PreflightDesk) -> None:
        try:
            self._staging = await desk.stage()
            while self._staging.phase in ("looking", "copying", "checking"):
                self.show(frozenset())
                await asyncio.sleep(_LOOK)
                self._staging = await desk.staged()
        except (AgentError, OSError) as problem:
            self.tell(str(problem), bad=True)
        self.show(frozenset())

    def _summary(self) -> Line:
        if self._staging is not None and not self._checking:
            return staging_line(self._staging)
        if self._checking:
            return line((" checking …", Role.LIVE))
        if self._trouble:
            return line((f" the checks did not run: {shown(self._trouble)}", Role.BAD), ("  r", Role.KEY), " again")
        if self.session.findings is None:
            return line((" not checked yet: ", Role.DIM), ("r", Role.KEY), (" runs the checks", Role.DIM))
        return summary_line(self.session.findings)

    def _details_lines(self, width: int) -> list[Line]:
        chosen = self._chosen_finding()
        return finding_lines(chosen, width, most=2) if chosen is not None else [EMPTY]

    def _chosen_finding(self) -> Finding | None:
        findings = ordered(self.session.findings or ())
        return findings[self._place] if self._place < len(findings) else None

    def _details(self) -> None:
        chosen = self._chosen_finding()
        if chosen is not None:
            self.app.push_screen(PageScreen("Finding", lambda width: finding_lines(chosen, width, most=200)))

    def action_move(self, by: int) -> None:
        """Choose another finding."""
        self._place += by
        self.show(frozenset())
