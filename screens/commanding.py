"""From a key to a command: who it goes to, what it costs, the question, the answer."""

from collections.abc import Callable, Mapping, Sequence

from textual.app import App

from ddconsole.core import states as st
from ddconsole.core.actions import Action, Danger, refusal, targets
from ddconsole.core.coming_back import come_back
from ddconsole.core.command_cost import cost
from ddconsole.core.preconditions import seen
from ddconsole.core.run_state import CellRow
from ddconsole.core.sweep import cell_label
from ddconsole.core.wire import Seen
from ddconsole.link.client import AgentError, LinkPhase
from screens.confirm import ConfirmScreen, Question
from screens.session import Session
from screens.spans import shown
from screens.taking_control import ControlDesk

Tell = Callable[[str, bool], None]

_YES: dict[st.CellCommand | st.RunCommand, str] = {
    st.CellCommand.START: "start it next",
    st.CellCommand.START_NOW: "stop what runs, start it now",
    st.CellCommand.STOP: "stop it",
    st.CellCommand.RETRY: "measure it again",
    st.CellCommand.TAKE_BACK: "measure them after all",
    st.CellCommand.SKIP: "skip it",
    st.CellCommand.DUPLICATE: "add the copy",
    st.RunCommand.DRAIN: "no new launches",
    st.RunCommand.STOP: "stop the sweep now",
    st.RunCommand.WAIVE: "waive, I start it myself",
}
_TITLES: dict[st.CellCommand | st.RunCommand, str] = {
    st.CellCommand.START: "Start next?",
    st.CellCommand.START_NOW: "Stop what runs and start this now?",
    st.CellCommand.STOP: "Stop the running cell?",
    st.CellCommand.RETRY: "Measure once more?",
    st.CellCommand.TAKE_BACK: "Take back what was pruned?",
    st.CellCommand.SKIP: "Skip?",
    st.CellCommand.DUPLICATE: "Duplicate?",
    st.RunCommand.DRAIN: "Take no new launches?",
    st.RunCommand.STOP: "Stop the whole sweep now?",
    st.RunCommand.WAIVE: "Leave what was stopped as it is?",
}


class Commander:
    """Tells the sweep what the operator wants, after asking where that costs something."""

    def __init__(self, app: App[int], session: Session, tell: Tell) -> None:
        self._app = app
        self._session = session
        self._tell = tell
        self._control = ControlDesk(app, session, tell)

    def command(self, action: Action, cells: Sequence[str] = (), hidden: frozenset[str] = frozenset()) -> None:
        """Tell it, or ask first.

        Args:
            action: one with a command.
            cells: whom it goes to; those in whose phase it is not legal are left out.
            hidden: ids that the filter keeps out of sight.
        """
        assert action.command is not None
        rows = self._session.rows(cells)
        why = self.why_not(action, rows)
        if why:
            self._tell(why, True)
            return
        if self.asked_for_control(action):
            return
        chosen = targets(action, rows)
        names = [row.cell.id for row in chosen]
        expected = {row.cell.id: seen(row) for row in chosen}
        costs = self._costs(action, names)
        if action.danger is Danger.DESTROY or len(names) > 1 or (costs and self._costs_a_start(action)):
            self._app.push_screen(
                ConfirmScreen(lambda: self._question(action, names, hidden)),
                lambda answer: self._answered(action, expected, answer=bool(answer)),
            )
            return
        self.send(action, expected)

    def asked_for_control(self, action: Action) -> bool:
        """Whether another console has control: then the operator is asked for that, and nothing else is done."""
        controller = self._session.feed.state.controller
        if self._session.feed.readonly or controller is None or not self._control.must_ask():
            return False
        self._control.ask(controller, action)
        return True

    def why_not(self, action: Action, rows: Sequence[CellRow]) -> str:
        """Why it cannot be told now; empty where it can."""
        feed = self._session.feed
        if feed.link.phase is LinkPhase.OFFLINE:
            asks = come_back(feed.run, feed.host)
            return f"this run is read from disk and cannot be told anything: {asks} asks its host"
        if feed.link.phase not in {LinkPhase.UP, LinkPhase.SILENT}:
            return f"the link to {feed.host} is {feed.link.phase}: nothing can be told to the sweep now (ctrl+r tries)"
        if action.command in st.ABOUT_DEBTS and not feed.state.debts:
            return "this run has stopped no unit that is not back"
        return refusal(action, feed.state, rows)

    def send(self, action: Action, cells: Mapping[str, Seen], changes: dict[str, str | None] | None = None) -> None:
        """Tell it now; the answer, or what went wrong, is shown.

        Args:
            action: one with a command.
            cells: whom it goes to, as the operator saw them: one that has moved on since is left as it is.
            changes: for `edit`.
        """
        self._app.run_worker(self._send(action, cells, changes), exit_on_error=False)

    async def _send(self, action: Action, cells: Mapping[str, Seen], changes: dict[str, str | None] | None) -> None:
        assert action.command is not None
        feed = self._session.feed
        try:
            answer = await feed.command(action.command.value, tuple(cells), changes, expected=cells)
        except AgentError as problem:
            self._tell(f"{action.command}: {problem}", True)
            return
        if answer.controller is not None:
            self._tell(answer.text, True)
            self._control.ask(answer.controller, action)
            return
        edited = changes if changes and action.command is st.CellCommand.EDIT else {}
        typed = ", ".join(f"{name}={value}" for name, value in edited.items())
        kept = f". You had typed: {typed}" if typed and not answer.taken else ""
        self._tell(answer.text + kept, not answer.taken)

    @staticmethod
    def _costs_a_start(action: Action) -> bool:
        return isinstance(action.command, st.CellCommand)

    def _costs(self, action: Action, names: Sequence[str]) -> list[str]:
        assert action.command is not None
        feed = self._session.feed
        return cost(feed.state, action.command, names, feed.now())

    def _question(self, action: Action, names: Sequence[str], hidden: frozenset[str]) -> Question:
        """As things stand now: cells that have moved on in the meantime are no targets any more."""
        assert action.command is not None
        feed = self._session.feed
        rows = targets(action, self._session.rows(names))
        labels = [
            f"{row.cell.id}  {cell_label(row.cell, feed.state.deployments[row.cell.deployment])}  ({row.state.phase})"
            for row in rows
        ]
        if action.command is st.RunCommand.WAIVE:
            labels = [f"{shown(debt.what)}  {shown(debt.problem)}".rstrip() for debt in feed.state.debts.values()]
        if isinstance(action.command, st.CellCommand) and not rows:
            labels = ["nothing any more: it has moved on in the meantime"]
        many = f" ({len(rows)} cells)" if len(rows) > 1 else ""
        return Question(
            title=_TITLES.get(action.command, action.label) + many,
            where=f"{shown(feed.host)}, run {shown(feed.run)}",
            targets=labels,
            hidden=sum(row.cell.id in hidden for row in rows),
            costs=self._costs(action, [row.cell.id for row in rows]) or ["nothing: it may come back with R (retry)"],
            yes=_YES.get(action.command, action.label),
        )

    def _answered(self, action: Action, expected: Mapping[str, Seen], *, answer: bool) -> None:
        """Who it goes to is looked at once more: the dialog may have been open for long."""
        assert action.command is not None
        if not answer:
            return
        rows = self._session.rows(tuple(expected))
        why = self.why_not(action, rows)
        if why:
            self._tell(why, True)
            return
        if self.asked_for_control(action):
            return
        waived = self._session.feed.state.debts if action.command is st.RunCommand.WAIVE else ()
        seen_then = {row.cell.id: expected[row.cell.id] for row in targets(action, rows)}
        self.send(action, seen_then, dict.fromkeys(waived) or None)
