"""What a command does: from the run's state and a command to events, or to a refusal that says what is possible."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.deadline import deadline_holds, deadline_passed, dropped_cells, until_problem
from ddconsole.core.editing import EditProblem, edit_cell
from ddconsole.core.preconditions import moved_on, pause_moved_on
from ddconsole.core.pruning import pruned_together
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.steering import fence, take
from ddconsole.core.sweep import Deployment, cell_label, to_json
from ddconsole.core.wire import Command, CommandAnswer, Watchers


@dataclass(frozen=True, slots=True)
class Decision:
    """The events of a command, in order (none when it is refused), and what the operator is told."""

    events: tuple[ev.Event, ...]
    answer: CommandAnswer


def decide(state: RunState, command: Command, watchers: Watchers | None = None) -> Decision:
    """Make events of a command.

    Args:
        state: the run.
        command: one whose id has taken effect before changes nothing, and is answered as it was then.
        watchers: who is there; None where that is not known: then whoever has control counts as there.
    """
    before = state.commands.get(command.id)
    if before is not None:
        return _again(state, before, command)
    if command.name == st.ControlCommand.TAKE:
        return _take_control(state, command, watchers)
    if command.name not in {*st.RunCommand, *st.CellCommand}:
        known = ", ".join((*st.CellCommand, *st.RunCommand, *st.ControlCommand))
        return _refused(f"there is no command {command.name!r}; there are {known}")
    grant = fence(state, command, watchers)
    if isinstance(grant, CommandAnswer):
        return Decision((), grant)
    if command.name in set(st.RunCommand):
        decision = _run_command(state, command, st.RunCommand(command.name))
    else:
        decision = _cell_command(state, command, st.CellCommand(command.name))
    return _recorded(command, decision, grant.events)


def _recorded(command: Command, decision: Decision, before: Sequence[ev.Event] = ()) -> Decision:
    """With the event that keeps the command from taking effect again."""
    answer = decision.answer
    if not answer.taken:
        return decision
    taken = ev.CommandTaken(command.id, command.name, answer.cells, command.by, answer.text)
    return replace(decision, events=(*before, taken, *decision.events))


def _again(state: RunState, before: ev.CommandTaken, command: Command) -> Decision:
    if before.name != command.name:
        return _refused(f"{command.name}: another command had this id, {before.name}; nothing was done")
    controller = state.controller
    epoch = controller.epoch if controller is not None and controller.console == command.console else 0
    return Decision((), CommandAnswer(True, before.text or "done before", before.cells, epoch))


def _take_control(state: RunState, command: Command, watchers: Watchers | None) -> Decision:
    events, answer = take(state, command, watchers)
    if not events:
        return Decision((), answer)
    return _recorded(command, Decision(events, answer))


def _refused(text: str) -> Decision:
    return Decision((), CommandAnswer(taken=False, text=text))


def _taken(command: Command, events: Sequence[ev.Event], text: str, cells: tuple[str, ...] = ()) -> Decision:
    return Decision(tuple(events), CommandAnswer(taken=True, text=text, cells=cells or command.cells))


# --- the run


def _run_command(state: RunState, command: Command, name: st.RunCommand) -> Decision:
    if state.phase not in st.RUN_COMMANDS[name]:
        return _refused(f"the run is {state.phase}: {name} means nothing now; possible: {_possible(state)}")
    if name is st.RunCommand.RESUME and (why := pause_moved_on(state, command) or deadline_passed(state)):
        return _refused(why)
    if name is st.RunCommand.UNTIL:
        return _until(state, command)
    if name is st.RunCommand.WAIVE:
        return _waive(state, command)
    if name is st.RunCommand.SETTLE:
        return _settle(state, command)
    event, text = _run_event(state, command, name)
    return _taken(command, (event,), text)


def _possible(state: RunState) -> str:
    """The commands that mean something now; those about debts only where there are any."""
    legal = (one for one in st.RunCommand if state.phase in st.RUN_COMMANDS[one])
    return ", ".join(one for one in legal if state.debts or one not in st.ABOUT_DEBTS) or "none"


def _run_event(state: RunState, command: Command, name: st.RunCommand) -> tuple[ev.Event, str]:
    match name:
        case st.RunCommand.PAUSE:
            because = command.because or "asked"
            held = "".join(f"; {debt.what} stays stopped" for debt in state.debts.values())
            return ev.RunPaused(command.by, because), f"no further cell after this one; the server stays up{held}"
        case st.RunCommand.RESUME:
            return ev.RunResumed(command.by), "going on"
        case st.RunCommand.DRAIN:
            return ev.RunDraining(command.by), "no new launches: what the running server has to do is done"
        case st.RunCommand.STOP:
            return ev.RunStopping(command.by), "stopping now"
        case st.RunCommand.SETTLE | st.RunCommand.WAIVE | st.RunCommand.UNTIL:
            raise AssertionError(name)


def _settle(state: RunState, command: Command) -> Decision:
    """Put back now: it is waited for, not promised."""
    if not state.debts:
        return _refused("the run owes nothing")
    if state.live_launch() is not None:
        return _refused("the server of the paused run is still up and may need the GPU: stop-run first")
    names = ", ".join(debt.what for debt in state.debts.values())
    return _taken(command, (ev.DebtsAsked(tuple(state.debts), command.by),), f"putting back {names}")


def _waive(state: RunState, command: Command) -> Decision:
    """By name, so that nobody waives what he has not read. Also before it is taken: then the run leaves it alone."""
    owed = ", ".join(state.debts) or "none"
    if not command.changes:
        return _refused(f"which one? The run owes: {owed}")
    how = f"waived by {command.by}"
    events = [ev.DebtSettled(one, how, waived=True) for one in command.changes]
    text = f"{', '.join(command.changes)}: the run leaves it alone; starting it again is up to you"
    return _taken(command, events, text)


def _until(state: RunState, command: Command) -> Decision:
    """A new deadline, as the host resolved it. A run that ended because of the one before goes on."""
    at, text = command.changes.get("at"), command.changes.get("text")
    if at is None or text is None:
        problem = until_problem(str(command.changes.get("until") or ""))
        return _refused(f"until: {problem or 'the host has not resolved it'}")
    events: list[ev.Event] = [ev.DeadlineSet(float(at), text, command.by)]
    if state.phase is st.RunPhase.ENDED and dropped_cells(state):
        events.append(ev.RunResumed(command.by))
    return _taken(command, events, f"until {text}" if float(at) else "no deadline any more")


# --- cells


def _cell_command(state: RunState, command: Command, name: st.CellCommand) -> Decision:
    rows = [state.cells[one] for one in command.cells if one in state.cells]
    unknown = [one for one in command.cells if one not in state.cells]
    if unknown:
        return _refused(f"there is no cell {', '.join(unknown)} in this run")
    if not rows:
        return _refused(f"{name}: no cell was named")
    moved = [why for row in rows if (why := moved_on(state, row, command.expected))]
    legal = [
        row for row in rows if row.state.phase in st.CELL_COMMANDS[name] and not moved_on(state, row, command.expected)
    ]
    if moved and not legal:
        return _refused(f"{moved[0]}; {name} was not done" + (f", nor for {len(moved) - 1} more" if moved[1:] else ""))
    if not legal:
        phase = rows[0].state.phase
        possible = ", ".join(one for one in st.CellCommand if phase in st.CELL_COMMANDS[one])
        return _refused(f"{rows[0].cell.id} is {phase}: {name} means nothing now; possible: {possible}")
    left_out = len(rows) - len(legal)
    decision = _CELL_HANDLERS[name](state, command, legal)
    if left_out and decision.answer.taken:
        because = f": {moved[0]}" if moved else ""
        text = f"{decision.answer.text}; {left_out} left as {'they are' if left_out > 1 else 'it is'}{because}"
        return replace(decision, answer=replace(decision.answer, text=text))
    return decision


def _names(rows: Sequence[CellRow]) -> tuple[str, ...]:
    return tuple(row.cell.id for row in rows)


def _say(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{len(names)} cells"


def _start(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    names = _names(rows)
    return _taken(command, (ev.CellsMovedFirst(names, command.by),), f"{_say(names)} next", names)


def _start_now(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    names = _names(rows)
    events: list[ev.Event] = [ev.CellsMovedFirst(names, command.by)]
    running = state.running_cell()
    text = f"{_say(names)} next"
    if running is not None and isinstance(running.state, st.Running):
        events.append(ev.CellStopRequested(running.cell.id, running.state.attempt, command.by))
        text = f"{running.cell.id} is being stopped, then {_say(names)}"
    if state.phase is st.RunPhase.PAUSED:
        events.append(ev.RunResumed(command.by))
    return _taken(command, events, text, names)


def _stop(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    names = _names(rows)
    return _taken(command, _stop_requests(command, rows, then_skip=False), f"stopping {_say(names)}", names)


def _stop_requests(command: Command, rows: Sequence[CellRow], *, then_skip: bool) -> list[ev.Event]:
    return [
        ev.CellStopRequested(row.cell.id, row.state.attempt, command.by, then_skip)
        for row in rows
        if isinstance(row.state, st.Running)
    ]


def _retry(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    names = _names(rows)
    events: list[ev.Event] = [ev.CellsRetried(names, command.by)]
    text = f"{_say(names)} once more{deadline_holds(state)}"
    if state.phase is st.RunPhase.ENDED:
        events.append(ev.RunResumed(command.by))
    return _taken(command, events, text, names)


def _take_back(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    return _retry(state, command, pruned_together(state, rows))


def _skip(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    running = [row for row in rows if isinstance(row.state, st.Running)]
    waiting = [row for row in rows if not isinstance(row.state, st.Running)]
    events = _stop_requests(command, running, then_skip=True)
    if waiting:
        events.append(ev.CellsSkipped(_names(waiting), command.by, command.because or "skipped"))
    return _taken(command, events, f"{_say(_names(rows))} skipped", _names(rows))


def _edit(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    events: list[ev.Event] = []
    texts: list[str] = []
    deployments = dict(state.deployments)
    for row in rows:
        try:
            point, deployment = edit_cell(
                row.cell, deployments[row.cell.deployment], command.changes, engine=_engine(state)
            )
        except EditProblem as problem:
            return _refused(f"{row.cell.id}: {problem}")
        target = _same_deployment(deployments, deployment)
        if target is None:
            target = replace(deployment, id=f"d{len(deployments) + 1:02d}")
            deployments[target.id] = target
            events.append(ev.DeploymentAdded(to_json(target)))
        cell = row.cell.edited(point, target.id)
        events.append(ev.CellEdited(to_json(cell), command.by, dict(command.changes)))
        texts.append(f"{cell.id} is now {cell_label(cell, target)}")
    if state.phase is st.RunPhase.ENDED:
        events.append(ev.RunResumed(command.by))
    return _taken(command, events, "; ".join(texts), _names(rows))


def _engine(state: RunState) -> str:
    return state.created.engine if state.created else ""


def _same_deployment(deployments: dict[str, Deployment], wanted: Deployment) -> Deployment | None:
    return next((one for one in deployments.values() if replace(one, id=wanted.id) == wanted), None)


def _duplicate(state: RunState, command: Command, rows: Sequence[CellRow]) -> Decision:
    number = max(int(name.removeprefix("c")) for name in state.cells)
    events: list[ev.Event] = []
    names: list[str] = []
    for row in rows:
        number += 1
        name = f"c{number:03d}"
        cell = replace(row.cell, id=name, derived_from=row.cell.id, revision=0)
        if command.changes:
            try:
                point, deployment = edit_cell(
                    cell, state.deployments[cell.deployment], command.changes, engine=_engine(state)
                )
            except EditProblem as problem:
                return _refused(f"{row.cell.id}: {problem}")
            target = _same_deployment(dict(state.deployments), deployment)
            if target is None:
                return _refused(f"{row.cell.id}: duplicate first, then edit the copy's server flags")
            cell = replace(cell, point=point, deployment=target.id)
        events.append(ev.CellAdded(to_json(cell)))
        names.append(name)
    if state.phase is st.RunPhase.ENDED:
        events.append(ev.RunResumed(command.by))
    return _taken(command, events, f"added {', '.join(names)}", tuple(names))


_CellHandler = Callable[[RunState, Command, Sequence[CellRow]], Decision]
_CELL_HANDLERS: dict[st.CellCommand, _CellHandler] = {
    st.CellCommand.START: _start,
    st.CellCommand.START_NOW: _start_now,
    st.CellCommand.STOP: _stop,
    st.CellCommand.RETRY: _retry,
    st.CellCommand.TAKE_BACK: _take_back,
    st.CellCommand.SKIP: _skip,
    st.CellCommand.EDIT: _edit,
    st.CellCommand.DUPLICATE: _duplicate,
}
