"""The part of the fold that is about launches and attempts: what a runner tells of its server and of its cells."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.run_state import Attempt, CellRow, LaunchRow, RunState

Handler: TypeAlias = Callable[[RunState, Any, float], RunState | None]
"""State, event, wall time of the entry; None for an event that the tables do not allow where it came."""


def with_cell(state: RunState, row: CellRow) -> RunState:
    """The state with this row in the place of the cell's."""
    return replace(state, cells={**state.cells, row.cell.id: row})


def with_launch(state: RunState, row: LaunchRow) -> RunState:
    """The state with this row in the place of the launch's."""
    return replace(state, launches={**state.launches, row.number: row})


def _launch_planned(state: RunState, event: ev.LaunchPlanned, at: float) -> RunState | None:
    if event.launch in state.launches or event.deployment not in state.deployments:
        return None
    row = LaunchRow(event.launch, event.deployment, event.round, st.Planned(), planned=at)
    held = {name: findings for name, findings in state.held.items() if name != event.deployment}
    return with_launch(replace(state, held=held), row)


def _engine_seen(state: RunState, event: ev.EngineSeen, at: float) -> RunState:
    return replace(state, engine=event.identity, group=state.group + 1 if event.changes else state.group)


def _launch_moved(state: RunState, number: int, to: st.LaunchState, **changes: Any) -> RunState | None:
    row = state.launches.get(number)
    if row is None or to.phase not in st.LAUNCH_TRANSITIONS[row.state.phase]:
        return None
    return with_launch(state, replace(row, state=to, **changes))


def _launch_starting(state: RunState, event: ev.LaunchStarting, at: float) -> RunState | None:
    row = state.launches.get(event.launch)
    if row is None:
        return None
    since = row.state.since if isinstance(row.state, st.Starting) and row.state.step == event.step else at
    return _launch_moved(
        state,
        event.launch,
        st.Starting(event.step, event.progress, since),
        pid=event.pid if event.pid is not None else row.pid,
        port=event.port if event.port is not None else row.port,
    )


def _launch_ready(state: RunState, event: ev.LaunchReady, at: float) -> RunState | None:
    return _launch_moved(
        state,
        event.launch,
        st.Ready(at),
        effective=event.effective,
        build=event.build,
        start_seconds=event.start_seconds,
        canary=event.canary,
    )


def _launch_stopping(state: RunState, event: ev.LaunchStopping, at: float) -> RunState | None:
    return _launch_moved(state, event.launch, st.Stopping(event.step, event.deadline))


def _launch_dirty(state: RunState, event: ev.LaunchDirty, at: float) -> RunState | None:
    return _launch_moved(state, event.launch, st.Dirty(event.holders))


def _launch_gone(state: RunState, event: ev.LaunchGone, at: float) -> RunState | None:
    row = state.launches.get(event.launch)
    if row is not None and isinstance(row.state, st.LaunchFailed):
        return state
    return _launch_moved(state, event.launch, st.Gone(at))


def _launch_failed(state: RunState, event: ev.LaunchFailed, at: float) -> RunState | None:
    """The launch failed; before it was ready, its waiting cells say so once, together, where the cause repeats."""
    before = state.launches.get(event.launch)
    cause = _cause(event)
    moved = _launch_moved(state, event.launch, st.LaunchFailed(cause, at), cause=cause)
    if moved is None or before is None or before.start_seconds is not None or cause.id == st.HOST_STARTED_ANEW:
        return moved
    failed = failed_starts(moved, before.deployment)
    if cause.retry is st.Retry.AS_IS and failed <= int(_protocol(state).get("retries", 2)):
        return moved
    cells = {
        name: replace(cell, state=st.Blocked(event.launch, cause))
        if cell.cell.deployment == before.deployment and isinstance(cell.state, st.Pending)
        else cell
        for name, cell in moved.cells.items()
    }
    return replace(moved, cells=cells)


def failed_starts(state: RunState, deployment: str) -> int:
    """How many starts of a deployment's server failed in a row, up to now."""
    number = 0
    for launch in reversed(tuple(state.launches.values())):
        if launch.deployment != deployment:
            continue
        if launch.cause is None or launch.start_seconds is not None:
            break
        number += launch.cause.id != st.HOST_STARTED_ANEW
    return number


# --- attempts


def _attempt_started(state: RunState, event: ev.AttemptStarted, at: float) -> RunState | None:
    row = state.cells.get(event.cell)
    if row is None:
        return None
    attempt = Attempt(event.attempt, event.launch, event.round, event.revision, started=at, group=state.group)
    if not isinstance(row.state, st.Pending):
        withdrawn = replace(attempt, outcome=st.CellPhase.INTERRUPTED, ended=at)
        return with_cell(state, replace(row, attempts=(*row.attempts, withdrawn)))
    running = st.Running(event.attempt, event.launch, event.round, at)
    row = replace(row, state=running, attempts=(*row.attempts, attempt), stop_requested=False, skip_after_stop=False)
    state = with_cell(state, row)
    return replace(state, queue=tuple(name for name in state.queue if name != event.cell))


def _skipped_while_it_ran(row: CellRow) -> st.Skipped:
    if row.stop_by == "deadline":
        return st.Skipped(row.stop_by, "stopped while it ran: the deadline had come")
    return st.Skipped("operator", "skipped while it ran")


def _end_attempt(row: CellRow, number: int, **changes: Any) -> CellRow:
    attempts = tuple(replace(one, **changes) if one.number == number else one for one in row.attempts)
    sooner = row.sooner and changes.get("outcome") is not st.CellPhase.DONE
    return replace(row, attempts=attempts, stop_requested=False, skip_after_stop=False, sooner=sooner)


def running_row(state: RunState, cell: str, attempt: int) -> CellRow | None:
    """The row of a cell, if this attempt of it runs."""
    row = state.cells.get(cell)
    if row is None or not isinstance(row.state, st.Running) or row.state.attempt != attempt:
        return None
    return row


def _attempt_done(state: RunState, event: ev.AttemptDone, at: float) -> RunState | None:
    row = running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    ended = _end_attempt(
        row,
        event.attempt,
        outcome=st.CellPhase.DONE,
        ended=at,
        figures=event.figures,
        flags=event.flags,
        sha256=event.sha256,
        fingerprint=event.fingerprint,
    )
    if row.skip_after_stop:
        return with_cell(state, replace(ended, state=_skipped_while_it_ran(row)))
    return with_cell(state, replace(ended, state=st.Done(at) if ended.next_round() is None else st.Pending()))


def _attempt_failed(state: RunState, event: ev.AttemptFailed, at: float) -> RunState | None:
    row = running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    cause = _cause(event)
    ended = _end_attempt(
        row,
        event.attempt,
        outcome=st.CellPhase.FAILED,
        ended=at,
        figures=event.figures,
        cause=cause,
        sha256=event.sha256,
    )
    if row.skip_after_stop:
        return with_cell(state, replace(ended, state=_skipped_while_it_ran(row)))
    if may_retry_by_itself(ended, cause, int(_protocol(state).get("retries", 2))):
        return with_cell(state, replace(ended, state=st.Pending(automatic_retry_of=cause)))
    return with_cell(state, replace(ended, state=st.Failed(cause, at)))


def may_retry_by_itself(row: CellRow, cause: st.Cause, retries: int) -> bool:
    """Whether the cause allows one more attempt as it is: `retries` times at most in a row."""
    if cause.retry is not st.Retry.AS_IS:
        return False
    failed_in_a_row = 0
    for attempt in reversed(row.attempts):
        if attempt.outcome is not st.CellPhase.FAILED or attempt.revision != row.cell.revision:
            break
        failed_in_a_row += 1
    return failed_in_a_row <= retries


def _attempt_stopped(state: RunState, event: ev.AttemptStopped, at: float) -> RunState | None:
    row = running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    ended = _end_attempt(
        row,
        event.attempt,
        outcome=st.CellPhase.STOPPED,
        ended=at,
        figures=event.figures,
        sha256=event.sha256,
        by=event.by,
    )
    after: st.CellState = st.Stopped(event.by, at)
    if row.skip_after_stop:
        after = _skipped_while_it_ran(row)
    return with_cell(state, replace(ended, state=after))


def _attempt_interrupted(state: RunState, event: ev.AttemptInterrupted, at: float) -> RunState | None:
    """Void: the cell goes back to pending and is measured again as the next attempt, two times at most in a row."""
    row = running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    cause = st.Cause("INTERRUPTED", event.why, retry=st.Retry.AS_IS)
    ended = _end_attempt(row, event.attempt, outcome=st.CellPhase.INTERRUPTED, ended=at, cause=cause)
    if row.skip_after_stop:
        return with_cell(state, replace(ended, state=_skipped_while_it_ran(row)))
    in_a_row = 0
    for attempt in reversed(ended.attempts):
        if attempt.outcome is not st.CellPhase.INTERRUPTED:
            break
        in_a_row += 1
    retries = int(_protocol(state).get("retries", 2))
    again = (event.blameless or in_a_row <= retries) and not row.stop_requested
    after: st.CellState = st.Pending(automatic_retry_of=cause) if again else st.Interrupted(event.why, at)
    return with_cell(state, replace(ended, state=after))


def _protocol(state: RunState) -> Mapping[str, Any]:
    return state.created.protocol if state.created else {}


def _cause(event: ev.LaunchFailed | ev.AttemptFailed) -> st.Cause:
    retry = st.Retry(event.retry) if event.retry in set(st.Retry) else st.Retry.CHANGE
    return st.Cause(event.cause, event.text, event.evidence, event.do, retry)


LAUNCH_HANDLERS: dict[type, Handler] = {
    ev.LaunchPlanned: _launch_planned,
    ev.EngineSeen: _engine_seen,
    ev.LaunchStarting: _launch_starting,
    ev.LaunchReady: _launch_ready,
    ev.LaunchStopping: _launch_stopping,
    ev.LaunchDirty: _launch_dirty,
    ev.LaunchGone: _launch_gone,
    ev.LaunchFailed: _launch_failed,
    ev.AttemptStarted: _attempt_started,
    ev.AttemptDone: _attempt_done,
    ev.AttemptFailed: _attempt_failed,
    ev.AttemptStopped: _attempt_stopped,
    ev.AttemptInterrupted: _attempt_interrupted,
}
"""By the type of the event."""
