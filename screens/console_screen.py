"""What all screens have in common: header, tabs, a line for what is wrong, footer, and keys from the register."""

import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Container
from textual.screen import Screen
from textual.widget import Widget
from textual.worker import Worker, WorkerState

from ddconsole.core import states as st
from ddconsole.core.actions import BY_ID, Place, actions_at, hints
from ddconsole.core.row_text import clock_time
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.link.client import LinkPhase
from screens.link_alert import LOST, link_alert
from screens.session import Session
from screens.spans import EMPTY, Line, Role, Span, cut, line, shown
from screens.taking_control import (
    Alert,
    control_alert,
    control_in_header,
    is_fresh,
    other_controller,
    others_in_header,
)
from screens.widgets.footer_hints import FooterHints
from screens.widgets.line_bar import LineBar
from screens.widgets.status_header import HeaderFacts, StatusHeader

Doer = Callable[[], None]


class ConsoleScreen(Screen[None]):
    """A screen over one run. Subclasses give `body`, `doers` and `show`."""

    PLACE: ClassVar[Place]

    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session = session

    def compose(self) -> ComposeResult:
        """Header, tabs, alert, body, footer."""
        yield StatusHeader(id="header")
        yield LineBar(id="tabs")
        yield LineBar(id="alert", hide_empty=True)
        with Container(id="body"):
            yield from self.body()
        yield FooterHints(id="footer")

    def body(self) -> Sequence[Widget]:
        """What the screen shows between tabs and footer."""
        raise NotImplementedError

    def doers(self) -> dict[str, Doer]:
        """What each of the screen's own actions does."""
        raise NotImplementedError

    def show(self, changed: frozenset[str]) -> None:
        """Show what the feed knows now; `changed` are the feed's names, and `tick` once a second."""
        raise NotImplementedError

    def rows_for_hints(self) -> Sequence[CellRow]:
        """The cells that a command would go to."""
        return ()

    def on_mount(self) -> None:
        """Show what is known."""
        self.call_after_refresh(self.show_all)

    def on_screen_resume(self) -> None:
        """Show what came while another screen was in front."""
        self.call_after_refresh(self.show_all)

    def on_resize(self) -> None:
        """What fits is another thing now."""
        self.call_after_refresh(self.show_all)

    def show_all(self) -> None:
        """Show everything anew."""
        self.feed_changed(frozenset({"state", "link", "progress", "decode", "host", "tick"}))

    def feed_changed(self, changed: frozenset[str]) -> None:
        """The feed knows more, or a second has passed."""
        if not self.is_mounted or not self.query("#header"):
            return
        if changed & {"state", "link", "progress", "tick"}:
            self.session.book.update()
        self._show_frame()
        self.show(changed)

    def _show_frame(self) -> None:
        feed = self.session.feed
        self.query_one("#header", StatusHeader).show(
            HeaderFacts(
                run=feed.state.created.plan_name if feed.state.created else feed.run,
                host=feed.host,
                state=feed.state,
                link=feed.link,
                now=feed.now(),
                console_now=time.time(),
                left=self.session.book.run_left(),
                simulated=feed.simulated,
                control=control_in_header(feed),
                others=others_in_header(feed),
            )
        )
        width = self.size.width
        self.query_one("#tabs", LineBar).set_line(tabs_line(self.PLACE, feed.state, feed.now(), width))
        self.query_one("#alert", LineBar).set_line(alert_line(self.session, width))
        self.show_hints()

    def show_hints(self) -> None:
        """Hint at what makes sense now."""
        feed = self.session.feed
        actions = hints(self.PLACE, feed.state, self.rows_for_hints())
        watches = other_controller(feed) is not None
        if feed.link.phase not in {LinkPhase.UP, LinkPhase.SILENT} or watches:
            actions = [action for action in actions if action.command is None]
        if feed.link.phase in {LinkPhase.DOWN, *LOST}:
            actions.insert(0, BY_ID["reconnect"])
        elif watches and not feed.readonly:
            actions.insert(0, BY_ID["take-control"])
        self.query_one("#footer", FooterHints).show(actions)

    def action_perform(self, name: str) -> None:
        """Do one of the register's actions."""
        self.perform(name)

    def perform(self, name: str) -> None:
        """Do one of the screen's own actions, or hand it to the app."""
        doer = self.doers().get(name)
        if doer is not None:
            doer()
            return
        handler = getattr(self.app, "perform", None)
        if handler is not None and BY_ID[name].place is not self.PLACE:
            handler(name)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker of this screen that failed is told of, and takes nothing down."""
        if event.state is WorkerState.ERROR:
            problem = event.worker.error
            self.tell(f"this did not work: {type(problem).__name__}: {problem}", bad=True)

    def tell(self, text: str, *, bad: bool = False) -> None:
        """A message that goes by itself. Its text is shown as it is."""
        self.app.notify(shown(text), severity="error" if bad else "information", markup=False, timeout=6)


def tabs_line(place: Place, state: RunState, now: float, width: int) -> Line:
    """The tabs, and at the right what the server does while no cell is measured."""
    spans: list[Span] = []
    used = 0
    for action in (one for one in actions_at(Place.EVERYWHERE) if one.id.startswith("show-")):
        text = f" {action.key} {action.label} "
        spans.append((text, Role.BADGE if action.id == f"show-{place}" else Role.DIM))
        used += len(text)
    status = launch_status(state, now)
    room = width - used - 2
    if status and room > 12:
        text = cut(status, room)
        spans += [(" " * (room - len(text) + 1), Role.PLAIN), (text, Role.LIVE)]
    return tuple(spans)


def launch_status(state: RunState, now: float) -> str:
    """`launch 4: capture graphs 43 % 0:35` while a server starts or stops; empty while it is ready."""
    launch = state.live_launch()
    if launch is None:
        return ""
    match launch.state:
        case st.Starting(step=step, progress=progress, since=since):
            percent = f" {progress * 100:.0f} %" if progress is not None else ""
            return f"launch {launch.number}: {shown(step)}{percent} {clock_time(now - since)}"
        case st.Stopping(step=step):
            return f"launch {launch.number} stops: {shown(step)}"
        case st.Dirty(holders=holders):
            return f"launch {launch.number} left {', '.join(map(shown, holders))}"
        case _:
            return ""


def alert_line(session: Session, width: int) -> Line:
    """What is wrong and what helps, on one line; nothing where nothing is."""
    feed = session.feed
    control = control_alert(session)
    alert = link_alert(feed.state, feed.link, feed.host, time.time())
    alert = alert or (control if is_fresh(session) else None) or _run_alert(feed.state) or control
    if alert is None:
        return EMPTY
    room = width - len(alert.keys) - 3
    return line((" " + alert.said(room), alert.role), ("  " + alert.keys, Role.KEY))


def _run_alert(state: RunState) -> Alert | None:
    dirty = next((one for one in state.launches.values() if isinstance(one.state, st.Dirty)), None)
    if dirty is not None and isinstance(dirty.state, st.Dirty):
        holders = ", ".join(dirty.state.holders)
        return Alert(f"the sweep waits: {holders} is left of launch {dirty.number}", "", Role.BAD)
    if state.phase is st.RunPhase.PAUSED:
        return Alert(f"paused by {state.paused_by}: {state.paused_because}", "P resume", Role.WARN)
    if state.phase is st.RunPhase.DRAINING:
        return Alert(f"no new launches, told by {state.paused_by}", "P resume", Role.WARN)
    if state.impossible_events:
        return Alert(f"{state.impossible_events} journal events did not fit where they came", "", Role.WARN)
    return None
