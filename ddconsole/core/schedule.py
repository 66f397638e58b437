"""What comes next: pure functions of the run's state, used by the agent to decide and by the console to foretell."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.control import Control, Ending, WantedCell
from ddconsole.core.launch_order import cell_rank, launch_rank
from ddconsole.core.pruning import asked_for, undecided
from ddconsole.core.run_state import CellRow, LaunchRow, RunState


@dataclass(frozen=True, slots=True)
class NextLaunch:
    """A launch to begin."""

    deployment: str
    round: int
    number: int


def next_launch(state: RunState) -> NextLaunch | None:
    """The launch that comes next when none is live.

    The queue's first cell decides, then what the protocol wants sooner, then canaries, smallest server first, then
    `protocol.order`.
    """
    rows = _pending(state)
    if not rows:
        return None
    queued = [state.cells[name] for name in state.queue if isinstance(state.cells[name].state, st.Pending)]
    sooner = [row for row in rows if row.sooner]
    canaries = [row for row in undecided(state).values() if isinstance(row.state, st.Pending)]
    if queued:
        first = queued[0]
    elif sooner:
        first = sooner[0]
    elif canaries:
        first = min(
            canaries, key=lambda row: (state.deployments[row.cell.deployment].tensor_parallel, _order(state, row))
        )
    else:
        first = min(rows, key=launch_rank(state))
    number = max(state.launches, default=0) + 1
    return NextLaunch(first.cell.deployment, first.next_round() or 1, number)


def cells_of_launch(state: RunState, launch: LaunchRow) -> Sequence[WantedCell]:
    """The cells that a live launch should measure, in order; the one that is being measured comes first."""
    wanted = [
        WantedCell(row.cell, row.state.attempt, row.state.round)
        for row in state.cells.values()
        if isinstance(row.state, st.Running) and row.state.launch == launch.number and not row.stop_requested
    ]
    eligible = [row for row in _pending(state) if _may_run_on(row, launch) and not _waits_for_canary(state, row)]
    queue = [state.cells[name] for name in state.queue if name in state.cells]
    if queue and queue[0].cell.deployment != launch.deployment and isinstance(queue[0].state, st.Pending):
        return wanted
    order = {name: place for place, name in enumerate(state.queue)}
    place = cell_rank(state, launch)
    eligible.sort(key=lambda row: (order.get(row.cell.id, len(order)), place(row)))
    wanted += [WantedCell(row.cell, _next_attempt(row), row.next_round() or 1) for row in eligible]
    return wanted


def control_for(state: RunState, launch: LaunchRow, generation: int, lease: int) -> Control:
    """What the agent wants of the runner of a live launch."""
    cells = tuple(cells_of_launch(state, launch))
    running = tuple(one for one in cells if _is_running(state.cells[one.cell.id]))
    ending = Ending.FINISH
    if state.phase is st.RunPhase.STOPPING or state.phase is st.RunPhase.ENDED:
        cells, ending = (), Ending.NOW
    elif state.phase is st.RunPhase.PAUSED:
        cells, ending = running, Ending.WAIT
    elif state.phase is st.RunPhase.RUNNING and _goes_on_after_canary(state, launch):
        ending = Ending.WAIT
    stopped_by = {
        row.cell.id: row.stop_by or "operator"
        for row in state.cells.values()
        if row.stop_requested and _is_running(row)
    }
    return Control(generation, lease, cells, ending, stopped_by)


def pause_reason(state: RunState) -> str | None:
    """Why the sweep should pause by itself.

    Something could not be written down, or the same cause ended launches of two deployments, one after the other.
    What was known when the operator said to go on does not count again.
    """
    unwritten = _storage_cause(state)
    if unwritten is not None:
        return unwritten.text
    recent = [launch for launch in reversed(tuple(state.launches.values())) if launch.cause is not None]
    if not recent or recent[0].number != max(state.launches) or recent[0].number <= state.resumed_at_launch:
        return None
    last = recent[0]
    assert last.cause is not None
    for launch in reversed(tuple(state.launches.values())[:-1]):
        if launch.cause is None or launch.cause.id != last.cause.id or launch.number <= state.resumed_at_launch:
            return None
        if launch.deployment != last.deployment:
            labels = f"{state.deployments[launch.deployment].label} and {state.deployments[last.deployment].label}"
            return f"{last.cause.text}: it ended {labels}, one after the other"
    return None


def _storage_cause(state: RunState) -> st.Cause | None:
    """Why the newest thing could not be written that failed since the operator said to go on."""
    for row in state.cells.values():
        attempt = row.latest()
        if attempt is None or attempt.cause is None or attempt.cause.id != st.STORAGE:
            continue
        if (attempt.ended or 0.0) > state.resumed_at:
            return attempt.cause
    last = state.launches.get(max(state.launches, default=0))
    if last is not None and last.number > state.resumed_at_launch and last.cause and last.cause.id == st.STORAGE:
        return last.cause
    return None


def _pending(state: RunState) -> list[CellRow]:
    return [row for row in state.cells.values() if isinstance(row.state, st.Pending)]


def _order(state: RunState, row: CellRow) -> int:
    return tuple(state.deployments).index(row.cell.deployment)


def _is_running(row: CellRow) -> bool:
    return isinstance(row.state, st.Running)


def _may_run_on(row: CellRow, launch: LaunchRow) -> bool:
    """A round is measured on a launch of its own, unless the operator wants the cell once more."""
    if row.cell.deployment != launch.deployment:
        return False
    assert isinstance(row.state, st.Pending)
    if row.state.again:
        return True
    return all(attempt.launch != launch.number for attempt in row.done_attempts())


def _waits_for_canary(state: RunState, row: CellRow) -> bool:
    """Whether it is not known yet if a cell will be pruned: a canary of its size has still to be measured.

    The baseline is never pruned: to stop its server early would only cost one more start.
    """
    deployment = state.deployments[row.cell.deployment]
    if state.created is None or state.phase is st.RunPhase.DRAINING:
        return False
    if deployment.method == state.created.baseline or asked_for(state, row):
        return False
    canaries = [one for (_, size), one in undecided(state).items() if size == deployment.tensor_parallel]
    return bool(canaries) and all(one.cell.id != row.cell.id for one in canaries)


def _goes_on_after_canary(state: RunState, launch: LaunchRow) -> bool:
    """Whether the server measures the last canary of its size: it stays up until that is decided."""
    size = state.deployments[launch.deployment].tensor_parallel
    canaries = [one for (_, other), one in undecided(state).items() if other == size]
    return len(canaries) == 1 and canaries[0].cell.deployment == launch.deployment


def _next_attempt(row: CellRow) -> int:
    return max((attempt.number for attempt in row.attempts), default=0) + 1
