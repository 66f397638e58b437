"""Who controls the run, as the screens say it, and the one question that takes control from another console."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from textual.app import App

from ddconsole.core.actions import Action
from ddconsole.core.control_text import has_control_since, is_there, since
from ddconsole.core.run_state import Controller, RunState
from ddconsole.core.steering import may_take_unasked
from ddconsole.link.client import AgentError, LinkPhase
from ddconsole.link.feed import RunFeed
from screens.confirm import ConfirmScreen, Question
from screens.session import Session
from screens.spans import Role, cut, shown

FRESH = 60.0
"""Seconds for which the loss of control is said before anything but the link."""
_LONGEST_NAME = 28
_SHORTEST_REASON = 12


@dataclass(frozen=True, slots=True)
class Alert:
    """A line above the screen: what is so, what helps, and how it looks."""

    text: str
    keys: str
    role: Role
    reason: str = ""
    """Why; where it is long, it is cut before anything behind it is."""
    after: str = ""

    def said(self, room: int) -> str:
        """All of it in so many characters."""
        if not self.reason:
            return cut(shown(self.text + self.after), room)
        head = f"{shown(self.text)}: " if self.text else ""
        after = shown(self.after)
        reason = cut(shown(self.reason), max(_SHORTEST_REASON, room - len(head) - len(after)))
        return cut(f"{head}{reason}{after}", room)


def other_controller(feed: RunFeed) -> Controller | None:
    """The other console that has control; None where nobody has it, this one, or one of this operator that is gone."""
    if feed.link.phase is LinkPhase.OFFLINE or feed.has_control():
        return None
    controller = feed.state.controller
    return None if may_take_unasked(controller, feed.identity.by, feed.watchers) else controller


def own_console_gone(feed: RunFeed) -> Controller | None:
    """A console of this operator that had control and is not there any more: the next command takes it over."""
    if feed.link.phase is LinkPhase.OFFLINE or feed.has_control() or other_controller(feed) is not None:
        return None
    return feed.state.controller


def lost_control(feed: RunFeed, before: RunState, after: RunState) -> bool:
    """Whether this console has lost control between two states."""
    mine = feed.identity.console
    had = before.controller is not None and before.controller.console == mine
    return had and after.controller is not None and after.controller.console != mine


def control_alert(session: Session) -> Alert | None:
    """What a console that only watches is told."""
    feed = session.feed
    gone = own_console_gone(feed)
    if gone is not None:
        seen = is_there(feed.state, feed.watchers, time.time() - feed.watchers_at)
        where = f" at {gone.where}" if gone.where else ""
        takes = "" if feed.readonly else ": your next command takes control"
        return Alert(f"Your console{where}, which has control, is gone, {seen}{takes}", "", Role.ACCENT)
    controller = other_controller(feed)
    if controller is None:
        return None
    if session.control_lost is not None:
        text = f"You lost control to {controller.who()} at {since(controller, feed.now())} and only watch"
        return Alert(text, "" if feed.readonly else "T take it back", Role.BAD)
    there = is_there(feed.state, feed.watchers, time.time() - feed.watchers_at)
    text = f"You watch. Control: {controller.who()} since {since(controller, feed.now())}" + (
        f", {there}" if there else ""
    )
    return Alert(text, "" if feed.readonly else "T take control", Role.ACCENT)


def is_fresh(session: Session) -> bool:
    """Whether control was lost just now."""
    return session.control_lost is not None and time.monotonic() - session.control_lost < FRESH


def control_in_header(feed: RunFeed) -> str:
    """`control: ann@laptop (pts/3) since 14:02` where another console has it; else how many others watch."""
    controller = other_controller(feed)
    if controller is not None:
        return f"control: {cut(shown(controller.who()), _LONGEST_NAME)} since {since(controller, feed.now())}"
    return ""


def others_in_header(feed: RunFeed) -> str:
    """How many others watch, or who controlled a run that is read from disk."""
    if feed.link.phase is LinkPhase.OFFLINE:
        last = feed.state.controller
        return f"controlled by {shown(last.by)}" if last is not None else ""
    others = feed.watchers.consoles - 1 if feed.watchers is not None else 0
    return f"+{others} watching" if others > 0 and feed.has_control() else ""


class ControlDesk:
    """Asks before control is taken from another console."""

    def __init__(self, app: App[int], session: Session, tell: Callable[[str, bool], None]) -> None:
        self._app = app
        self._session = session
        self._tell = tell

    def must_ask(self) -> bool:
        """Whether a command would be refused because another console has control."""
        return other_controller(self._session.feed) is not None

    def take(self) -> None:
        """Take control: at once where it is nobody's, else after asking."""
        feed = self._session.feed
        if feed.readonly or feed.link.phase is LinkPhase.OFFLINE:
            self._app.run_worker(self._take(None, None), exit_on_error=False)
        elif feed.link.phase is not LinkPhase.UP:
            self._tell(f"the link to {feed.host} is {feed.link.phase}: no control now (ctrl+r tries)", True)
        elif feed.has_control():
            self._tell("this console has control already", False)
        elif self.must_ask() and feed.state.controller is not None:
            self.ask(feed.state.controller, None)
        else:
            self._app.run_worker(self._take(None, None), exit_on_error=False)

    def ask(self, controller: Controller, wanted: Action | None) -> None:
        """Ask whether to take control from a console.

        Args:
            controller: who has it, as far as is known; who has taken it since is asked about instead.
            wanted: what the operator pressed a key for. It is not done, whatever the answer.
        """
        asked = [controller]

        def question() -> Question:
            known = self._session.feed.state.controller
            if known is not None and known.epoch > asked[0].epoch:
                asked[0] = known
            return self._question(asked[0], wanted)

        def answered(answer: bool | None) -> None:
            if answer:
                self._app.run_worker(self._take(asked[0].epoch, wanted), exit_on_error=False)

        self._app.push_screen(ConfirmScreen(question), answered)

    def _question(self, controller: Controller, wanted: Action | None) -> Question:
        feed = self._session.feed
        there = is_there(feed.state, feed.watchers, time.time() - feed.watchers_at)
        told = "that console is told at once, and only watches from then on"
        costs = [told]
        if wanted is not None:
            costs.append(f"{wanted.label} is not done yet: press {wanted.key} again once you have control")
        return Question(
            title=f"Take control from {shown(controller.by)}?",
            where=f"{shown(feed.host)}, run {shown(feed.run)}",
            targets=[shown(has_control_since(controller, feed.now())), *([f"its console: {there}"] if there else [])],
            costs=costs,
            yes="take control",
            no="no, only watch",
        )

    async def _take(self, epoch: int | None, wanted: Action | None) -> None:
        try:
            answer = await self._session.feed.take_control(epoch)
        except AgentError as problem:
            self._tell(f"take control: {problem}", True)
            return
        if answer.controller is not None:
            self.ask(answer.controller, wanted)
            return
        again = f": press {wanted.key} again for {wanted.label}" if wanted is not None and answer.taken else ""
        self._tell(answer.text + again, not answer.taken)
