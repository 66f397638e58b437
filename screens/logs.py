"""The servers' logs: live or from disk, one launch at a time."""

import os
from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.widget import Widget
from textual.widgets import Input

from ddconsole.core.actions import Place
from ddconsole.core.run_state import LaunchRow
from ddconsole.core.wire import LogPiece
from ddconsole.link.client import AgentError
from screens.clipboard import copy_text, save_text
from screens.console_screen import ConsoleScreen, Doer
from screens.help import Findable, FindScreen
from screens.keys import bindings_at
from screens.session import Session
from screens.spans import Line, Role, Span, line, shown
from screens.widgets.line_bar import LineBar
from screens.widgets.log_view import LogView

_CHUNK = 256 * 1024
_MOST_BYTES = 16 * 1024 * 1024
"""Of a whole log: what is older stays in the file on the host."""


class LogsScreen(ConsoleScreen):
    """One launch's log."""

    CSS_PATH: ClassVar[str] = "logs.tcss"
    PLACE = Place.LOGS
    BINDINGS: ClassVar[list[BindingType]] = bindings_at(Place.LOGS)

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._launch: int | None = None
        self._stays = False
        """The operator chose the launch: a new one does not take its place."""
        self._offset = 0
        self._whole = False
        self._loading = False
        self._waiting: list[LogPiece] = []

    def body(self) -> Sequence[Widget]:
        """Which launch, its log, the search."""
        field = Input(placeholder="search", id="search", compact=True)
        field.display = False
        return (LineBar(id="launch"), LogView(id="log"), field)

    def on_mount(self) -> None:
        """Begin with the newest launch."""
        super().on_mount()
        self.view.focus()

    @property
    def view(self) -> LogView:
        """The log."""
        return self.query_one("#log", LogView)

    def doers(self) -> dict[str, Doer]:
        """Ways to look, and to take text away."""
        return {
            "follow": self._toggle_follow,
            "search": self._open_search,
            "next-match": lambda: self._find(1),
            "previous-match": lambda: self._find(-1),
            "error": self._go_error,
            "wrap": lambda: self.view.set_wrap(not self.view.wrap),
            "next-launch": lambda: self._step_launch(1),
            "previous-launch": lambda: self._step_launch(-1),
            "choose-launch": self._choose_launch,
            "load-log": self._load_whole,
            "select": self.view.toggle_selection,
            "copy": self._copy,
            "save": self._save,
        }

    # --- which launch

    def show(self, changed: frozenset[str]) -> None:  # noqa: ARG002  # all of it hangs on the run's state
        """The launch that was asked for, else the newest one."""
        wanted, self.session.wanted_launch = self.session.wanted_launch, None
        launches = self.session.feed.state.launches
        if wanted is not None and wanted in launches:
            self._stays = wanted != max(launches)
            self._open(wanted)
        elif launches and (self._launch is None or (not self._stays and self._launch != max(launches))):
            self._open(max(launches))
        self._show_launch_line()

    def _open(self, launch: int) -> None:
        if launch == self._launch:
            return
        self._launch = launch
        self._offset, self._whole, self._loading = 0, False, False
        self._waiting.clear()
        self.view.clear()
        # The feed calls from a task of its own; widgets are touched from within the app.
        self.session.feed.follow_log(launch, self._take_over)

    def _take_over(self, piece: LogPiece) -> None:
        if self.is_running:
            self.call_later(self._piece_came, piece)

    def _piece_came(self, piece: LogPiece) -> None:
        if piece.launch != self._launch:
            return
        if self._loading:
            self._waiting.append(piece)
            return
        self._offset = piece.offset
        self.view.add_lines(piece.lines, piece.dropped)

    def _step_launch(self, step: int) -> None:
        numbers = sorted(self.session.feed.state.launches)
        if not numbers:
            self.tell("no server has been started yet")
            return
        place = numbers.index(self._launch) if self._launch in numbers else len(numbers) - 1
        self._choose(numbers[max(0, min(len(numbers) - 1, place + step))])

    def _choose(self, launch: int) -> None:
        self._stays = launch != max(self.session.feed.state.launches)
        self._open(launch)
        self._show_launch_line()

    def _choose_launch(self) -> None:
        state = self.session.feed.state
        items = [
            Findable(f"launch {one.number}", self._launch_in_words(one), one.state.phase.value)
            for one in reversed(tuple(state.launches.values()))
        ]
        self.app.push_screen(FindScreen("Choose a launch", items, "opens"), self._launch_chosen)

    def _launch_chosen(self, chosen: Findable | None) -> None:
        if chosen is not None:
            self._choose(int(chosen.name.removeprefix("launch ")))

    def _launch_in_words(self, launch: LaunchRow) -> str:
        label = shown(self.session.feed.state.deployments[launch.deployment].label)
        cause = f": {shown(launch.cause.text)}" if launch.cause is not None else ""
        return f"{label} {launch.state.phase}{cause}"

    @on(LogView.Moved)
    def _show_launch_line(self) -> None:
        self.query_one("#launch", LineBar).set_line(self._launch_line())

    def _launch_line(self) -> Line:
        launches = self.session.feed.state.launches
        launch = launches.get(self._launch or 0)
        if launch is None:
            return line((" no server has been started yet", Role.DIM))
        view, buffer = self.view, self.view.buffer
        spans: list[Span] = [
            (f" launch {launch.number} of {max(launches)}  ", Role.STRONG),
            (f"{self._launch_in_words(launch)}  ", Role.PLAIN),
            ("▶ follows" if view.following else "‖ holds still", Role.LIVE if view.following else Role.WARN),
        ]
        if view.cursor is not None:
            spans.append((f"  line {view.cursor:,} of {buffer.last:,}", Role.DIM))
        if buffer.errors:
            spans.append((f"  ✗ {buffer.errors:,} errors (e)", Role.BAD))
        if buffer.dropped:
            spans.append((f"  {buffer.dropped:,} left out", Role.WARN))
        if self._loading:
            spans.append(("  reading …", Role.LIVE))
        if view.selected_from is not None:
            spans.append((f"  {len(view.selection()):,} selected: y copy, s save", Role.ACCENT))
        if view.search:
            spans.append((f"  /{shown(view.search)}", Role.KEY))
        return tuple(spans)

    # --- moving

    def _toggle_follow(self) -> None:
        if self.view.following:
            self.view.hold()
        else:
            self.view.follow()

    def _go_error(self) -> None:
        first = self.view.following
        if first and not self._whole:
            self._load_whole(then_error=True)
        elif not self.view.find_error(first=first):
            self.tell("no line is marked as an error")

    def _find(self, step: int) -> None:
        if not self.view.search:
            self.tell("nothing is searched yet: / searches")
        elif not self.view.find(step):
            more = "" if self._whole else " in what is loaded; L reads the whole log"
            self.tell(f"{self.view.search!r} is not found{more}")

    def _open_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = True
        field.value = ""
        field.focus()

    @on(Input.Changed, "#search")
    def _search_typed(self, event: Input.Changed) -> None:
        if self.query_one("#search", Input).display:
            self.view.set_search(event.value)

    @on(Input.Submitted, "#search")
    def _search_submitted(self, event: Input.Submitted) -> None:
        self._close_search()
        self.view.set_search(event.value)
        if event.value:
            self._find(-1)

    def _close_search(self) -> None:
        field = self.query_one("#search", Input)
        field.display = False
        self.view.focus()

    def key_escape(self) -> None:
        """Leave the search, the selection, or stop marking matches."""
        if self.query_one("#search", Input).display:
            self._close_search()
            self.view.set_search("")
        elif self.view.selected_from is not None:
            self.view.toggle_selection()
        else:
            self.view.set_search("")

    # --- the whole log

    def _load_whole(self, *, then_error: bool = False) -> None:
        if self._launch is not None and not self._loading:
            self._loading = True
            self.run_worker(self._load(self._launch, then_error=then_error), exit_on_error=False)
            self._show_launch_line()

    async def _load(self, launch: int, *, then_error: bool) -> None:
        """Read up to where the stream is, then go on with what streamed in meanwhile: no line twice, none missing."""
        end = self._offset
        try:
            chunks = await self._read(launch, end)
        except AgentError as problem:
            self.tell(f"the log was not read: {problem}", bad=True)
            chunks = None
        if launch != self._launch:
            return
        self._loading = False
        if chunks is not None:
            self.view.clear()
            self.view.add_lines(whole_lines(b"".join(chunks)))
            self._whole = True
        waiting, self._waiting = self._waiting, []
        for piece in waiting:
            self._piece_came(piece)
        if then_error and chunks is not None and not self.view.find_error(first=True):
            self.tell("no line is marked as an error")
        self._show_launch_line()

    async def _read(self, launch: int, end: int) -> list[bytes]:
        offset = max(0, end - _MOST_BYTES)
        chunks = []
        while offset < end or not end:
            chunk = await self.session.feed.read_log(launch, offset, min(_CHUNK, end - offset) if end else _CHUNK)
            if not chunk or launch != self._launch:
                break
            chunks.append(chunk)
            offset += len(chunk)
        if not end:
            self._offset = offset
        return chunks

    # --- taking text away

    def _copy(self) -> None:
        lines = self.view.selection()
        if not lines:
            self.tell("nothing to copy: hold still (f) and select (v) first")
            return
        text = "\n".join(lines)
        self.run_worker(self._copied(text, len(lines)), exit_on_error=False)

    async def _copied(self, text: str, lines: int) -> None:
        route = await copy_text(text, os.environ, self.app.copy_to_clipboard)
        self.tell(f"{lines} lines {route}")

    def _save(self) -> None:
        buffer = self.view.buffer
        selected = self.view.selected_from is not None
        lines = self.view.selection() if selected else [buffer.text(n) for n in range(buffer.first, buffer.last + 1)]
        name = f"{self.session.feed.run}-launch{self._launch}.log"
        try:
            path = save_text("\n".join(lines) + "\n", name)
        except OSError as problem:
            self.tell(f"not saved: {problem}", bad=True)
            return
        self.tell(f"{len(lines):,} lines saved to {path}")


def whole_lines(data: bytes) -> list[str]:
    """Lines of a log as read from its file; bytes that are no UTF-8 stay visible."""
    return data.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n") if data else []
