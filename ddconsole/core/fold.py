"""State is a fold over the journal: `state = apply(state, entry)`.

Total (an unknown event changes nothing and is counted), without clocks, and the same for agent, console and the
offline viewer.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.run_state import Attempt, CellRow, Controller, Debt, Edit, LaunchRow, Notice, RunState
from ddconsole.core.sweep import cell_from_json, deployment_from_json


def fold(entries: Iterable[ev.Entry], state: RunState | None = None) -> RunState:
    """All entries, in order."""
    current = state or RunState()
    for entry in entries:
        current = apply(current, entry)
    return current


def apply(state: RunState, entry: ev.Entry) -> RunState:
    """The state after one entry. An entry that was applied before (by seq, or by origin) changes nothing."""
    if entry.seq <= state.seq:
        return state
    state = replace(state, seq=entry.seq, epoch=entry.epoch, at=entry.at)
    if entry.event is None:
        return replace(state, unknown_events=state.unknown_events + 1)
    if entry.origin is not None:
        launch = state.launches.get(entry.origin.launch)
        if launch is not None:
            if entry.origin.n <= launch.taken_over:
                return state
            state = _with_launch(state, replace(launch, taken_over=entry.origin.n))
    handler = _HANDLERS.get(type(entry.event))
    if handler is None:
        return state
    changed: RunState | None = handler(state, entry.event, entry.at)
    return changed if changed is not None else replace(state, impossible_events=state.impossible_events + 1)


# Each handler gives the new state, or None where the tables do not allow the event.

_Handler = Callable[[RunState, Any, float], RunState | None]


def _with_cell(state: RunState, row: CellRow) -> RunState:
    return replace(state, cells={**state.cells, row.cell.id: row})


def _with_launch(state: RunState, row: LaunchRow) -> RunState:
    return replace(state, launches={**state.launches, row.number: row})


def _run_created(state: RunState, event: ev.RunCreated, at: float) -> RunState | None:
    return None if state.created else replace(state, created=event, began=at)


def _epoch_began(state: RunState, event: ev.EpochBegan, at: float) -> RunState:
    """Another boot pauses what ran, and something is to be checked before anything goes on."""
    state = replace(state, boot=event.boot)
    if not event.since:
        return state
    state = replace(state, booted=event.since, boot_why=event.reason, boot_findings=())
    if state.phase not in (st.RunPhase.RUNNING, st.RunPhase.DRAINING):
        return state
    because = event.reason if state.phase is st.RunPhase.RUNNING else "no new launches had been asked for"
    return _run_phase(state, st.RunPhase.PAUSED, "ddconsole", because)


def _deployment_added(state: RunState, event: ev.DeploymentAdded, at: float) -> RunState:
    deployment = deployment_from_json(event.deployment)
    return replace(state, deployments={**state.deployments, deployment.id: deployment})


def _cell_added(state: RunState, event: ev.CellAdded, at: float) -> RunState | None:
    cell = cell_from_json(event.cell)
    if cell.id in state.cells or cell.deployment not in state.deployments:
        return None
    row = CellRow(cell, st.Pending())
    if cell.derived_from not in state.cells:
        return _with_cell(state, row)
    cells: dict[str, CellRow] = {}
    for name, one in state.cells.items():
        cells[name] = one
        if name == cell.derived_from:
            cells[cell.id] = row
    return replace(state, cells=cells)


def _cell_edited(state: RunState, event: ev.CellEdited, at: float) -> RunState | None:
    cell = cell_from_json(event.cell)
    row = state.cells.get(cell.id)
    if row is None or isinstance(row.state, st.Running) or cell.deployment not in state.deployments:
        return None
    edit = Edit(cell.revision, event.by, event.changes)
    return _with_cell(state, replace(row, cell=cell, state=st.Pending(), edits=(*row.edits, edit)))


def _command_taken(state: RunState, event: ev.CommandTaken, at: float) -> RunState:
    return replace(state, commands={**state.commands, event.id: event})


def _control_taken(state: RunState, event: ev.ControlTaken, at: float) -> RunState | None:
    if event.epoch <= (state.controller.epoch if state.controller else 0):
        return None
    return replace(state, controller=Controller(event.by, event.console, event.epoch, at, event.where))


# --- launches


def _launch_planned(state: RunState, event: ev.LaunchPlanned, at: float) -> RunState | None:
    if event.launch in state.launches or event.deployment not in state.deployments:
        return None
    row = LaunchRow(event.launch, event.deployment, event.round, st.Planned(), planned=at)
    return _with_launch(state, row)


def _engine_seen(state: RunState, event: ev.EngineSeen, at: float) -> RunState:
    return replace(state, engine=event.identity, group=state.group + 1 if event.changes else state.group)


def _launch_moved(state: RunState, number: int, to: st.LaunchState, **changes: Any) -> RunState | None:
    row = state.launches.get(number)
    if row is None or to.phase not in st.LAUNCH_TRANSITIONS[row.state.phase]:
        return None
    return _with_launch(state, replace(row, state=to, **changes))


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
        return _with_cell(state, replace(row, attempts=(*row.attempts, withdrawn)))
    running = st.Running(event.attempt, event.launch, event.round, at)
    row = replace(row, state=running, attempts=(*row.attempts, attempt), stop_requested=False, skip_after_stop=False)
    state = _with_cell(state, row)
    return replace(state, queue=tuple(name for name in state.queue if name != event.cell))


def _skipped_while_it_ran(row: CellRow) -> st.Skipped:
    if row.stop_by == "deadline":
        return st.Skipped(row.stop_by, "stopped while it ran: the deadline had come")
    return st.Skipped("operator", "skipped while it ran")


def _end_attempt(row: CellRow, number: int, **changes: Any) -> CellRow:
    attempts = tuple(replace(one, **changes) if one.number == number else one for one in row.attempts)
    return replace(row, attempts=attempts, stop_requested=False, skip_after_stop=False)


def _running_row(state: RunState, cell: str, attempt: int) -> CellRow | None:
    row = state.cells.get(cell)
    if row is None or not isinstance(row.state, st.Running) or row.state.attempt != attempt:
        return None
    return row


def _attempt_done(state: RunState, event: ev.AttemptDone, at: float) -> RunState | None:
    row = _running_row(state, event.cell, event.attempt)
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
        return _with_cell(state, replace(ended, state=_skipped_while_it_ran(row)))
    return _with_cell(state, replace(ended, state=st.Done(at) if ended.next_round() is None else st.Pending()))


def _attempt_failed(state: RunState, event: ev.AttemptFailed, at: float) -> RunState | None:
    row = _running_row(state, event.cell, event.attempt)
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
        return _with_cell(state, replace(ended, state=_skipped_while_it_ran(row)))
    if may_retry_by_itself(ended, cause, int(_protocol(state).get("retries", 2))):
        return _with_cell(state, replace(ended, state=st.Pending(automatic_retry_of=cause)))
    return _with_cell(state, replace(ended, state=st.Failed(cause, at)))


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
    row = _running_row(state, event.cell, event.attempt)
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
    return _with_cell(state, replace(ended, state=after))


def _attempt_interrupted(state: RunState, event: ev.AttemptInterrupted, at: float) -> RunState | None:
    """Void: the cell goes back to pending and is measured again as the next attempt, two times at most in a row."""
    row = _running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    cause = st.Cause("INTERRUPTED", event.why, retry=st.Retry.AS_IS)
    ended = _end_attempt(row, event.attempt, outcome=st.CellPhase.INTERRUPTED, ended=at, cause=cause)
    if row.skip_after_stop:
        return _with_cell(state, replace(ended, state=_skipped_while_it_ran(row)))
    in_a_row = 0
    for attempt in reversed(ended.attempts):
        if attempt.outcome is not st.CellPhase.INTERRUPTED:
            break
        in_a_row += 1
    retries = int(_protocol(state).get("retries", 2))
    again = (event.blameless or in_a_row <= retries) and not row.stop_requested
    after: st.CellState = st.Pending(automatic_retry_of=cause) if again else st.Interrupted(event.why, at)
    return _with_cell(state, replace(ended, state=after))


# --- the schedule


def _move(state: RunState, names: tuple[str, ...], to: st.CellState) -> RunState:
    cells = dict(state.cells)
    for name in names:
        row = cells.get(name)
        if row is not None and to.phase in st.CELL_TRANSITIONS[row.state.phase]:
            cells[name] = replace(row, state=to)
    return replace(state, cells=cells, queue=tuple(one for one in state.queue if one not in names))


def _cells_moved_first(state: RunState, event: ev.CellsMovedFirst, at: float) -> RunState:
    rest = tuple(name for name in state.queue if name not in event.cells)
    return replace(state, queue=(*event.cells, *rest))


def _cells_retried(state: RunState, event: ev.CellsRetried, at: float) -> RunState:
    """Back to pending. A cell whose rounds are all done gets one more round, so that an attempt n + 1 is made."""
    cells = dict(state.cells)
    for name in event.cells:
        row = cells.get(name)
        if row is None or row.state.phase not in st.END_PHASES:
            continue
        cell = row.cell
        if row.next_round() is None:
            cell = replace(cell, rounds=cell.rounds + 1)
        cells[name] = replace(row, cell=cell, state=st.Pending(again=True))
    return replace(state, cells=cells)


def _cells_skipped(state: RunState, event: ev.CellsSkipped, at: float) -> RunState:
    return _move(state, event.cells, st.Skipped(event.by, event.because))


def _cells_put_back(state: RunState, event: ev.CellsPutBack, at: float) -> RunState:
    return _move(state, event.cells, st.Pending())


def _deadline_set(state: RunState, event: ev.DeadlineSet, at: float) -> RunState:
    return replace(state, deadline=event)


def _cells_pruned(state: RunState, event: ev.CellsPruned, at: float) -> RunState:
    return _move(state, event.cells, st.Pruned(event.because))


def _cells_unfit(state: RunState, event: ev.CellsUnfit, at: float) -> RunState:
    return _move(state, event.cells, st.Unfit(event.because))


def _cell_stop_requested(state: RunState, event: ev.CellStopRequested, at: float) -> RunState | None:
    row = _running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    skip = row.skip_after_stop or event.then_skip
    return _with_cell(state, replace(row, stop_requested=True, skip_after_stop=skip, stop_by=event.by))


def _run_phase(state: RunState, phase: st.RunPhase, by: str = "", because: str = "") -> RunState:
    return replace(state, phase=phase, phase_seq=state.seq, paused_by=by, paused_because=because)


def _run_paused(state: RunState, event: ev.RunPaused, at: float) -> RunState:
    return _run_phase(state, st.RunPhase.PAUSED, event.by, event.because)


def _host_rechecked(state: RunState, event: ev.HostRechecked, at: float) -> RunState:
    if event.findings and not event.overruled:
        return replace(state, boot_findings=event.findings)
    return replace(state, booted=0.0, boot_findings=())


def _run_resumed(state: RunState, event: ev.RunResumed, at: float) -> RunState:
    running = _run_phase(state, st.RunPhase.RUNNING)
    return replace(running, outcome="", resumed_at_launch=max(state.launches, default=0), resumed_at=at)


def _run_draining(state: RunState, event: ev.RunDraining, at: float) -> RunState:
    return _run_phase(state, st.RunPhase.DRAINING, event.by)


def _run_stopping(state: RunState, event: ev.RunStopping, at: float) -> RunState:
    return _run_phase(state, st.RunPhase.STOPPING, event.by)


def _run_ended(state: RunState, event: ev.RunEnded, at: float) -> RunState:
    return replace(_run_phase(state, st.RunPhase.ENDED), outcome=event.outcome)


def _debt_taken(state: RunState, event: ev.DebtTaken, at: float) -> RunState:
    debt = Debt(event.what, at, event.record, event.boot)
    return replace(state, debts={**state.debts, event.debt: debt})


def _debt_settled(state: RunState, event: ev.DebtSettled, at: float) -> RunState:
    left = {name: debt for name, debt in state.debts.items() if name != event.debt}
    return replace(state, debts=left, waived=state.waived | {event.debt} if event.waived else state.waived)


def _debt_kept(state: RunState, event: ev.DebtKept, at: float) -> RunState | None:
    debt = state.debts.get(event.debt)
    if debt is None:
        return None
    text = f"{debt.what} is not put back: {event.because}"
    warnings = (*state.warnings, Notice(at, text, event.debt))
    debts = {**state.debts, event.debt: replace(debt, problem=event.because, asked=False)}
    return replace(state, debts=debts, warnings=warnings)


def _debts_asked(state: RunState, event: ev.DebtsAsked, at: float) -> RunState:
    asked = {name: replace(debt, asked=True) for name, debt in state.debts.items() if name in event.debts}
    return replace(state, debts={**state.debts, **asked})


def _warned(state: RunState, event: ev.Warned, at: float) -> RunState:
    return replace(state, warnings=(*state.warnings, Notice(at, event.text, event.about)))


def _launch_held(state: RunState, event: ev.LaunchHeld, at: float) -> RunState:
    text = f"launch of {event.deployment} held back: " + "; ".join(event.findings)
    return replace(state, warnings=(*state.warnings, Notice(at, text, event.deployment)))


def _protocol(state: RunState) -> Mapping[str, Any]:
    return state.created.protocol if state.created else {}


def _cause(event: ev.LaunchFailed | ev.AttemptFailed) -> st.Cause:
    retry = st.Retry(event.retry) if event.retry in set(st.Retry) else st.Retry.CHANGE
    return st.Cause(event.cause, event.text, event.evidence, event.do, retry)


_HANDLERS: dict[type, _Handler] = {
    ev.RunCreated: _run_created,
    ev.EpochBegan: _epoch_began,
    ev.DeploymentAdded: _deployment_added,
    ev.CellAdded: _cell_added,
    ev.CellEdited: _cell_edited,
    ev.CommandTaken: _command_taken,
    ev.ControlTaken: _control_taken,
    ev.LaunchPlanned: _launch_planned,
    ev.EngineSeen: _engine_seen,
    ev.LaunchHeld: _launch_held,
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
    ev.CellsMovedFirst: _cells_moved_first,
    ev.CellsRetried: _cells_retried,
    ev.CellsSkipped: _cells_skipped,
    ev.CellsPutBack: _cells_put_back,
    ev.DeadlineSet: _deadline_set,
    ev.CellsPruned: _cells_pruned,
    ev.CellsUnfit: _cells_unfit,
    ev.CellStopRequested: _cell_stop_requested,
    ev.RunPaused: _run_paused,
    ev.HostRechecked: _host_rechecked,
    ev.RunResumed: _run_resumed,
    ev.RunDraining: _run_draining,
    ev.RunStopping: _run_stopping,
    ev.RunEnded: _run_ended,
    ev.DebtTaken: _debt_taken,
    ev.DebtSettled: _debt_settled,
    ev.DebtKept: _debt_kept,
    ev.DebtsAsked: _debts_asked,
    ev.Warned: _warned,
}
