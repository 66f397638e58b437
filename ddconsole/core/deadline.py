"""A deadline of a sweep: what fits before it and what is dropped, the last and least important cells first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ddconsole.core import states as st
from ddconsole.core.duration import Estimates, running_left
from ddconsole.core.foretold_rounds import rounds_left
from ddconsole.core.row_text import point_key
from ddconsole.core.run_state import CellRow, RunState

BY_DEADLINE = "deadline"
"""Who skipped or stopped a cell, and ended a run."""
_SHORTEST_STOP = 5.0
"""Seconds that are kept for ending a server, however fast it was before."""
_MARGIN = 1.1
"""A dropped cell comes back when it fits with so much to spare: estimates move with every cell."""


def next_time_of_day(text: str, now: float) -> float:
    """The wall time at which the machine's clock next shows `HH:MM`.

    An hour that does not exist that day (a clock is put forward) is as long after midnight as if it did; of one that
    comes twice, the next one counts.

    Args:
        text: `07:00`.
        now: wall time, seconds since 1970.

    Raises:
        ValueError: it is no time of day.
    """
    time = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  # the machine's own zone, with its rules
    today = datetime.fromtimestamp(now)  # noqa: DTZ006
    for days in (0, 1):
        day = today.replace(hour=time.hour, minute=time.minute, second=0, microsecond=0) + timedelta(days=days)
        for fold in (0, 1):
            at = day.replace(fold=fold).timestamp()
            if at > now:
                return at
    raise ValueError(text)


NO_DEADLINE = "none"
"""What an operator writes for no deadline any more."""


def until_problem(text: str) -> str:
    """What is wrong with a deadline as it was typed; empty where nothing is."""
    if text == NO_DEADLINE:
        return ""
    try:
        next_time_of_day(text, 0.0)
    except ValueError:
        return f"no time of day: write one like 07:00, or {NO_DEADLINE}"
    return ""


def deadline_in_words(at: float, now: float) -> str:
    """`07:00 CET`, with the date where it is more than a day away."""
    there = datetime.fromtimestamp(at).astimezone()
    return f"{there:%H:%M %Z}" if 0 <= at - now < 86400 else f"{there:%-d %b %H:%M %Z}"


@dataclass(frozen=True, slots=True)
class Fit:
    """Which of the cells that wait fit."""

    kept: tuple[str, ...]
    dropped: Mapping[str, tuple[float, float]]
    """By cell: seconds that it needs with its server's starts, and seconds that are left for it."""


def reserve(state: RunState, estimates: Estimates) -> float:
    """Seconds before the deadline at which the last server has to go: to end it, and to put back what was displaced."""
    return max(estimates.defaults.stop_seconds, _SHORTEST_STOP) + len(state.debts) * estimates.defaults.start_seconds


def fit(state: RunState, estimates: Estimates, seconds: float, at: float) -> Fit:
    """Which cells fit into the time until the deadline. The rest is dropped from the end.

    Cells keep their place by priority: those with rounds done, those that the operator told to come next, the
    baseline, then the order of the table. Behind the first that does not fit any more all are dropped: a short one does
    not overtake. One that would take more than all of the time makes way, and so does one whose baseline does: it has
    nothing to be compared with.

    Args:
        state: the run.
        estimates: for its cells and launches.
        seconds: until the deadline.
        at: wall time on the agent's clock.
    """
    available = seconds - reserve(state, estimates)
    begun = used = running_left(state, estimates, at)
    live = state.live_launch()
    starts = {live.deployment: 1} if live is not None else {}
    kept: list[str] = []
    dropped: dict[str, tuple[float, float]] = {}
    lost: set[object] = set()
    full = False
    for row in sorted(_candidates(state), key=lambda row: _rank(state, row)):
        rounds, deployment = rounds_left(row), row.cell.deployment
        needs = _needs(state, row, estimates, starts)
        makes_way = begun + needs > available or (point_key(row, state)[1:] in lost and not _is_baseline(state, row))
        margin = 1.0 if isinstance(row.state, st.Pending) else _MARGIN
        full = full or (not makes_way and used + needs * margin > available)
        if full or makes_way:
            dropped[row.cell.id] = (needs, max(0.0, available - used))
            if _is_baseline(state, row):
                lost.add(point_key(row, state)[1:])
            continue
        used += needs
        starts[deployment] = max(rounds, starts.get(deployment, 0))
        kept.append(row.cell.id)
    return Fit(tuple(kept), dropped)


def _needs(state: RunState, row: CellRow, estimates: Estimates, starts: Mapping[str, int]) -> float:
    """Seconds of a cell's rounds, with the starts of its server beyond those that are there or were counted."""
    deployment = state.deployments[row.cell.deployment]
    rounds = rounds_left(row)
    more = max(0, rounds - starts.get(deployment.id, 0))
    return rounds * estimates.cell_seconds(deployment, row.cell.point) + more * estimates.launch_seconds(deployment)


def dropped_cells(state: RunState) -> Sequence[CellRow]:
    """Those that the deadline keeps from being measured."""
    return [row for row in state.cells.values() if _is_dropped(row)]


def deadline_passed(state: RunState) -> str:
    """Why a run that its deadline has ended cannot simply go on, and what to do; empty for every other run."""
    deadline = state.deadline
    if state.phase is not st.RunPhase.ENDED or state.outcome != BY_DEADLINE or deadline is None or not deadline.at:
        return ""
    left = len(dropped_cells(state))
    rest = f", with {left} {'cell' if left == 1 else 'cells'} left out" if left else ""
    text = f"the sweep ended by its deadline, {deadline.text}{rest}: it would end again at once"
    return f"{text}; set another one (until HH:MM) or none (until {NO_DEADLINE}), and it goes on"


def deadline_holds(state: RunState) -> str:
    """What to know before something is measured in a run that its deadline has ended."""
    if not deadline_passed(state) or state.deadline is None:
        return ""
    return f"; the deadline {state.deadline.text} still holds: until {NO_DEADLINE} lifts it"


def _is_dropped(row: CellRow) -> bool:
    return isinstance(row.state, st.Skipped) and row.state.by == BY_DEADLINE


def _candidates(state: RunState) -> list[CellRow]:
    return [row for row in state.cells.values() if isinstance(row.state, st.Pending) or _is_dropped(row)]


def _is_baseline(state: RunState, row: CellRow) -> bool:
    return state.created is not None and state.deployments[row.cell.deployment].method == state.created.baseline


def _rank(state: RunState, row: CellRow) -> int:
    """Lower goes first; equal ones keep the order of the table."""
    if row.done_attempts():
        return 0
    if row.cell.id in state.queue or (isinstance(row.state, st.Pending) and row.state.again):
        return 1
    return 2 if _is_baseline(state, row) else 3
