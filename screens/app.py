"""The console: an app of five screens over one run, and `open_console`, by which the command line opens it."""

import asyncio
import signal
import sys
import termios
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from ddconsole.core import states as st
from ddconsole.core.actions import BY_ID, Action, Place
from ddconsole.core.coming_back import come_back
from ddconsole.core.history import History
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import cell_label
from ddconsole.link.client import LinkPhase
from ddconsole.link.feed import RunFeed
from ddconsole.link.prompting import Answerer, Prompt, Prompts
from screens.confirm import ConfirmScreen, Question
from screens.console_screen import ConsoleScreen
from screens.help import Findable, FindScreen, action_items
from screens.host import HostScreen
from screens.login_prompt import LoginPromptScreen
from screens.logs import LogsScreen
from screens.preflight import PreflightScreen
from screens.results import ResultsScreen
from screens.session import Export, Preflight, Session
from screens.spans import shown
from screens.state_folder import state_folder
from screens.sweep import SweepScreen
from screens.taking_control import ControlDesk, lost_control
from screens.theme import COLOURS, THEME

FRAME = 0.1
"""Seconds between two looks at what changed: ten frames a second at most."""
_TTY_CHECK = 2.0


class ConsoleApp(App[int]):
    """Holds the screens, hands changes of the feed to those in sight, and leaves cleanly when it is told to."""

    CSS_PATH: ClassVar[str] = "console.tcss"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = []
    TITLE = "ddconsole"
    HORIZONTAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-narrow"), (110, "-medium"), (160, "-wide")]  # noqa: RUF012  # as Textual declares it
    VERTICAL_BREAKPOINTS: list[tuple[int, str]] | None = [(0, "-low"), (36, "-tall")]  # noqa: RUF012  # as Textual declares it

    def __init__(
        self,
        feed: RunFeed,
        preflight: Preflight | None = None,
        export: Export | None = None,
        history: History | None = None,
        prompts: Prompts | None = None,
    ) -> None:
        super().__init__()
        self.session = Session(feed, preflight, export, history)
        self._control = ControlDesk(self, self.session, self._tell)
        self.crash_file: Path | None = None
        self._prompts = prompts or Prompts()
        self._answerer_before: Answerer | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._changed: set[str] = set()
        self._frame_waits = False
        self._said: RunState = feed.state
        self.register_theme(THEME)
        self.theme = THEME.name
        session = self.session
        self.add_mode("sweep", lambda: SweepScreen(session, self))
        self.add_mode("logs", lambda: LogsScreen(session))
        self.add_mode("host", lambda: HostScreen(session))
        self.add_mode("preflight", lambda: PreflightScreen(session))
        self.add_mode("results", lambda: ResultsScreen(session))

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The stylesheets' own colours, whatever the theme."""
        return COLOURS

    def on_mount(self) -> None:
        """Open the sweep and listen."""
        self.switch_mode("sweep")
        self._unsubscribe = self.session.feed.subscribe(self._feed_changed)
        # While the app has the terminal, questions of a login are asked in it and nowhere else.
        self._answerer_before, self._prompts.answerer = self._prompts.answerer, self._answer
        self.set_interval(1.0, self._tick)
        if not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, partial(self.exit, 128 + number))
            self.set_interval(_TTY_CHECK, self._leave_without_terminal)

    def on_unmount(self) -> None:
        """Listen no more."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._prompts.answerer = self._answerer_before

    # --- the feed

    def _feed_changed(self, changed: frozenset[str]) -> None:
        """Remember what changed, and draw it from within the app: the feed calls from tasks of its own."""
        self._changed |= changed
        if not self._frame_waits and self.is_running:
            self._frame_waits = True
            self.call_later(self._begin_frame)

    def _begin_frame(self) -> None:
        """Draw at once; the next frame comes a tenth of a second later, if anything changes until then."""
        self._draw_frame()
        self.set_timer(FRAME, self._end_frame)

    def _end_frame(self) -> None:
        self._frame_waits = False
        if self._changed:
            self._feed_changed(frozenset())

    def _draw_frame(self) -> None:
        changed, self._changed = frozenset(self._changed), set()
        self._hand_on(changed)
        if "state" in changed:
            self._ring(self.session.feed.state)

    def _tick(self) -> None:
        self._hand_on(frozenset({"tick"}))

    def _hand_on(self, changed: frozenset[str]) -> None:
        for screen in self.screen_stack:
            handler = getattr(screen, "feed_changed", None)
            if handler is not None and screen.is_mounted:
                handler(changed)

    def _ring(self, state: RunState) -> None:
        """Once when the sweep pauses by itself, when it ends, and when this console loses control."""
        before, self._said = self._said, state
        ended = state.phase is st.RunPhase.ENDED and before.phase is not st.RunPhase.ENDED
        paused = state.phase is st.RunPhase.PAUSED and before.phase is not st.RunPhase.PAUSED
        if ended or (paused and state.paused_by == "ddconsole"):
            self.bell()
        if lost_control(self.session.feed, before, state):
            self.session.control_lost = time.monotonic()
            self.bell()
            self._hand_on(frozenset({"tick"}))
        elif self.session.feed.has_control():
            self.session.control_lost = None

    def _tell(self, text: str, bad: bool) -> None:  # as a screen's
        self.notify(shown(text), severity="error" if bad else "information", markup=False, timeout=6)

    # --- questions of a login

    async def _answer(self, prompt: Prompt) -> str | None:
        """Ask in a dialog of its own. The link asks from a task of its own, and takes the question back by a cancel."""
        screen = LoginPromptScreen(prompt, self._prompts.limit)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

        def answered(text: str | None) -> None:
            if not answer.done():
                answer.set_result(text)

        self.call_later(self.push_screen, screen, answered)
        try:
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                self.call_later(self._take_back, screen)

    def _take_back(self, screen: LoginPromptScreen) -> None:
        if screen in self.screen_stack and self.screen is screen:
            screen.dismiss(None)

    # --- actions

    def perform(self, name: str) -> None:
        """Do one of the register's actions, on its own screen."""
        action = BY_ID[name]
        if name.startswith("show-"):
            self.switch_mode(name.removeprefix("show-"))
        elif action.place is not Place.EVERYWHERE:
            self._perform_at(action)
        else:
            doers: dict[str, Callable[[], None]] = {
                "help": partial(self._find, cells=False),
                "palette": partial(self._find, cells=True),
                "take-control": self._control.take,
                "reconnect": self._reconnect,
                "quit": self._ask_to_leave,
            }
            doers[name]()

    def _perform_at(self, action: Action) -> None:
        self.switch_mode(action.place.value)
        self.call_after_refresh(self._perform_here, action.id)

    def _perform_here(self, name: str) -> None:
        if isinstance(self.screen, ConsoleScreen):
            self.screen.perform(name)

    def _find(self, *, cells: bool) -> None:
        here = self.screen.PLACE if isinstance(self.screen, ConsoleScreen) else Place.SWEEP
        items = action_items(here)
        if cells:
            state = self.session.feed.state
            items += [
                Findable(f"cell {name}", cell_label(row.cell, state.deployments[row.cell.deployment]), row.state.phase)
                for name, row in state.cells.items()
            ]
        title = "Find an action or a cell" if cells else "All keys"
        self.push_screen(FindScreen(title, items, "does it"), self._found)

    def _found(self, chosen: Findable | None) -> None:
        if chosen is None:
            return
        if chosen.action is not None:
            self.perform(chosen.action)
            return
        self.switch_mode("sweep")
        self.call_after_refresh(self._go_to_cell, chosen.name.removeprefix("cell "))

    def _go_to_cell(self, cell: str) -> None:
        if isinstance(self.screen, SweepScreen):
            self.screen.go_to(cell)

    def _reconnect(self) -> None:
        if self.session.feed.link.phase is LinkPhase.UP:
            self.notify(f"the link to {self.session.feed.host} is up", markup=False)
        else:
            self.session.feed.retry_now()

    async def action_quit(self) -> None:
        """Ctrl+q asks as q does."""
        self._ask_to_leave()

    def action_help_quit(self) -> None:
        """Ctrl+c asks as q does."""
        self._ask_to_leave()

    def _ask_to_leave(self) -> None:
        if any(isinstance(screen, ConfirmScreen) for screen in self.screen_stack):
            return
        self.push_screen(ConfirmScreen(self._leave_question), self._leave)

    def _leave_question(self) -> Question:
        feed = self.session.feed
        active = feed.state.phase is not st.RunPhase.ENDED and feed.link.phase is not LinkPhase.OFFLINE
        goes_on = [f"nothing: the sweep goes on on {feed.host}", f"come back with: {come_back(feed.run, feed.host)}"]
        return Question(
            title="Leave the console?",
            where=f"{feed.host}, run {feed.run}",
            costs=goes_on if active else ["nothing: the run has ended"],
            yes="leave",
            no="stay",
        )

    def _leave(self, answer: bool | None) -> None:
        if answer:
            self.exit(0)

    # --- leaving, and what must not take the console down

    def _leave_without_terminal(self) -> None:
        """A terminal that is gone reads as an endless end of file: leave before that eats a core."""
        try:
            termios.tcgetattr(sys.__stdin__.fileno() if sys.__stdin__ else 0)
        except (termios.error, OSError, ValueError):
            self.exit(128 + signal.SIGHUP)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """A worker that failed is told of, and takes nothing down."""
        if event.state is WorkerState.ERROR:
            problem = event.worker.error
            self.notify(shown(f"{type(problem).__name__}: {problem}"), severity="error", markup=False, timeout=10)

    def _handle_exception(self, error: Exception) -> None:
        """Textual's way out after a defect of ours: kept in a file, and said in one line, instead of a traceback."""
        if self.is_headless:
            super()._handle_exception(error)
            return
        self.crash_file = state_folder() / "console-defect.txt"
        text = "".join(traceback.format_exception(error))
        self.crash_file.write_text(text, encoding="utf-8", errors="backslashreplace")
        self.exit(70)

    def get_default_screen(self) -> Screen[None]:
        """An empty one, until the sweep's is there."""
        return Screen(id="_default")


def open_console(
    feed: RunFeed,
    *,
    preflight: Preflight | None = None,
    export: Export | None = None,
    history: History | None = None,
    prompts: Prompts | None = None,
    mouse: bool = True,
) -> int:
    """Open the console and stay until the operator leaves.

    Args:
        feed: the run, not bound to an event loop yet: use `run_console` where one runs already.
        preflight: runs the checks, for the Preflight screen.
        export: writes tables and figures, for the Results screen.
        history: what earlier runs on the host told about times.
        prompts: what a login has to ask while the console is open is asked in it.
        mouse: whether the terminal is asked for mouse events.

    Returns:
        The exit code: 0, 128 + signal when it was told to go, 70 after a defect of the console.
    """
    return asyncio.run(
        run_console(feed, preflight=preflight, export=export, history=history, prompts=prompts, mouse=mouse)
    )


async def run_console(
    feed: RunFeed,
    *,
    preflight: Preflight | None = None,
    export: Export | None = None,
    history: History | None = None,
    prompts: Prompts | None = None,
    mouse: bool = True,
) -> int:
    """As `open_console`, on the event loop that runs. The caller closes the feed."""
    app = ConsoleApp(feed, preflight, export, history, prompts)
    code = await app.run_async(mouse=mouse)
    if app.crash_file is not None:
        sys.stderr.write(
            f"The console has a defect and closed. The sweep on {feed.host} goes on: {come_back(feed.run, feed.host)}\n"
            f"What happened stands in {app.crash_file}\n"
        )
    return 0 if code is None else code
