"""State is a fold over the journal: `state = apply(state, entry)`.

Total (an unknown event changes nothing and is counted), without clocks, and the same for agent, console and the
offline viewer.
"""

from collections.abc import Iterable
from dataclasses import replace

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.fold_launches import LAUNCH_HANDLERS, Handler, running_row, with_cell, with_launch
from ddconsole.core.run_state import CellRow, Controller, Debt, Edit, Notice, RunState
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
            state = with_launch(state, replace(launch, taken_over=entry.origin.n))
    handler = _HANDLERS.get(type(entry.event))
    if handler is None:
        return state
    changed: RunState | None = handler(state, entry.event, entry.at)
    return changed if changed is not None else replace(state, impossible_events=state.impossible_events + 1)


# Each handler gives the new state, or None where the tables do not allow the event.


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
        return with_cell(state, row)
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
    return with_cell(state, replace(row, cell=cell, state=st.Pending(), edits=(*row.edits, edit)))


def _command_taken(state: RunState, event: ev.CommandTaken, at: float) -> RunState:
    return replace(state, commands={**state.commands, event.id: event})


def _control_taken(state: RunState, event: ev.ControlTaken, at: float) -> RunState | None:
    if event.epoch <= (state.controller.epoch if state.controller else 0):
        return None
    return replace(state, controller=Controller(event.by, event.console, event.epoch, at, event.where))


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
        kept = row.kept or isinstance(row.state, st.Pruned)
        cells[name] = replace(row, cell=cell, state=st.Pending(again=True), kept=kept)
    return replace(state, cells=cells)


def _cells_skipped(state: RunState, event: ev.CellsSkipped, at: float) -> RunState:
    return _move(state, event.cells, st.Skipped(event.by, event.because))


def _cells_put_back(state: RunState, event: ev.CellsPutBack, at: float) -> RunState:
    return _move(state, event.cells, st.Pending())


def _deadline_set(state: RunState, event: ev.DeadlineSet, at: float) -> RunState:
    return replace(state, deadline=event)


def _cells_pruned(state: RunState, event: ev.CellsPruned, at: float) -> RunState:
    return _move(state, event.cells, st.Pruned(event.because))


def _cells_repeated(state: RunState, event: ev.CellsRepeated, at: float) -> RunState:
    """One more round, on a launch of its own."""
    cells = dict(state.cells)
    for name in event.cells:
        row = cells.get(name)
        if row is not None and isinstance(row.state, st.Done):
            more = replace(row.cell, rounds=row.cell.rounds + 1)
            cells[name] = replace(row, cell=more, state=st.Pending(), sooner=event.sooner)
        elif row is not None and event.sooner and isinstance(row.state, st.Pending):
            cells[name] = replace(row, sooner=True)
    return replace(state, cells=cells)


def _cells_unfit(state: RunState, event: ev.CellsUnfit, at: float) -> RunState:
    return _move(state, event.cells, st.Unfit(event.because))


def _cell_stop_requested(state: RunState, event: ev.CellStopRequested, at: float) -> RunState | None:
    row = running_row(state, event.cell, event.attempt)
    if row is None:
        return None
    skip = row.skip_after_stop or event.then_skip
    return with_cell(state, replace(row, stop_requested=True, skip_after_stop=skip, stop_by=event.by))


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
    warnings = (*state.warnings, Notice(at, text, event.deployment))
    return replace(state, warnings=warnings, held={**state.held, event.deployment: tuple(event.findings)})


_HANDLERS: dict[type, Handler] = {
    ev.RunCreated: _run_created,
    ev.EpochBegan: _epoch_began,
    ev.DeploymentAdded: _deployment_added,
    ev.CellAdded: _cell_added,
    ev.CellEdited: _cell_edited,
    ev.CommandTaken: _command_taken,
    ev.ControlTaken: _control_taken,
    ev.LaunchHeld: _launch_held,
    **LAUNCH_HANDLERS,
    ev.CellsMovedFirst: _cells_moved_first,
    ev.CellsRetried: _cells_retried,
    ev.CellsSkipped: _cells_skipped,
    ev.CellsPutBack: _cells_put_back,
    ev.DeadlineSet: _deadline_set,
    ev.CellsPruned: _cells_pruned,
    ev.CellsRepeated: _cells_repeated,
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
