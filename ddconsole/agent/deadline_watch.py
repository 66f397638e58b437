"""Keeping a deadline: before each launch and as cells end, what does not fit is dropped; at its end, all stops."""

from ddconsole.agent.journal import Journal
from ddconsole.core import states as st
from ddconsole.core.clock import Clock
from ddconsole.core.deadline import BY_DEADLINE, dropped_cells, fit, reserve
from ddconsole.core.duration import estimates_for
from ddconsole.core.events import CellsPutBack, CellsSkipped, CellStopRequested, DeadlineSet, Event, RunStopping
from ddconsole.core.row_text import seconds_in_words
from ddconsole.core.run_state import RunState
from ddconsole.runner.boot import suspended_seconds

_INTERVAL = 30.0
"""Real seconds after which it is looked again although nothing happened."""
_SHORTEST = 1.0
"""Real seconds between two looks while a server lives: the estimates of a large plan take tens of milliseconds."""


class DeadlineWatch:
    """Watches the deadline of one run.

    The time left is counted down on the monotonic clock from the moment at which this agent learned of the deadline: a
    wall clock that is set meanwhile moves nothing.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._deadline: DeadlineSet | None = None
        self._ends = 0.0
        self._seen = -1
        self._looked = float("-inf")

    def look(self, real_now: float) -> None:
        """Drop, put back, and stop what the deadline asks for.

        Args:
            real_now: seconds of the machine's monotonic clock.
        """
        state = self._journal.state
        if state.deadline is None or state.phase in (st.RunPhase.ENDED, st.RunPhase.STOPPING):
            return
        if state.deadline != self._deadline:
            self._deadline, self._seen = state.deadline, -1
            self._ends = self._elapsed() + state.deadline.at - self._clock.now()
        due = state.seq != self._seen and (
            state.live_launch() is None or self._seen < 0 or real_now - self._looked > _SHORTEST
        )
        left = self._ends - self._elapsed() if state.deadline.at else float("inf")
        over = left <= reserve(state, estimates_for(state))
        if not due and not over and real_now - self._looked < _INTERVAL:
            return
        self._journal.append(_events(state, left, over=over, at=self._clock.now()))
        self._seen, self._looked = self._journal.state.seq, real_now

    def _elapsed(self) -> float:
        return self._clock.monotonic() + suspended_seconds()


def _events(state: RunState, left: float, *, over: bool, at: float) -> list[Event]:
    assert state.deadline is not None
    estimates = estimates_for(state)
    found = fit(state, estimates, left, at)
    events: list[Event] = []
    back = tuple(row.cell.id for row in dropped_cells(state) if row.cell.id in found.kept)
    if back:
        events.append(CellsPutBack(back, "it fits before the deadline"))
    for name, (needs, remains) in reversed(tuple(found.dropped.items())):
        if isinstance(state.cells[name].state, st.Pending):
            because = f"does not fit before {state.deadline.text}: {_why(needs, remains)}"
            events.append(CellsSkipped((name,), BY_DEADLINE, because))
    if over:
        running = state.running_cell()
        if running is not None and isinstance(running.state, st.Running) and not running.stop_requested:
            attempt = running.state.attempt
            events.append(CellStopRequested(running.cell.id, attempt, BY_DEADLINE, then_skip=True))
        if state.phase in (st.RunPhase.PAUSED, st.RunPhase.DRAINING):
            events.append(RunStopping(BY_DEADLINE))
    return events


def _why(needs: float, remains: float) -> str:
    if needs <= remains:
        return "what comes before it does not either"
    return f"it needs about {seconds_in_words(needs)}, {seconds_in_words(remains)} are left for it"
