"""What a command will mean for the schedule, in words, before it acts."""

from collections.abc import Callable, Iterable, Sequence

from ddconsole.core import states as st
from ddconsole.core.pruning import pruned_together
from ddconsole.core.row_text import seconds_in_words
from ddconsole.core.run_state import CellRow, LaunchRow, RunState
from ddconsole.core.sweep import Deployment


def cost(
    state: RunState, command: st.CellCommand | st.RunCommand, cells: Sequence[str] = (), now: float | None = None
) -> list[str]:
    """What a command costs: server starts, measured time that is lost, cells that stay behind.

    Args:
        state: the run as it is known.
        command: what would be told.
        cells: the cells it would be told to; unknown ones are left out.
        now: wall time on the agent's clock; the time of the last journal entry by default.

    Returns:
        One sentence a line; empty when it costs nothing.
    """
    at = state.at if now is None else now
    rows = [state.cells[name] for name in cells if name in state.cells]
    if isinstance(command, st.RunCommand):
        return _RUN_COSTS[command](state, at)
    return _CELL_COSTS[command](state, rows, at)


def start_in_words(state: RunState, deployment: Deployment) -> str:
    """How long a start of this deployment took before: of its own launches, else of its tensor-parallel size."""
    own = [one for one in state.launches.values() if one.deployment == deployment.id]
    told = _start_times(own)
    if told:
        return f"a start of it took {told}"
    size = [
        one
        for one in state.launches.values()
        if one.deployment in state.deployments
        and state.deployments[one.deployment].tensor_parallel == deployment.tensor_parallel
    ]
    told = _start_times(size)
    if told:
        return f"starts at TP{deployment.tensor_parallel} took {told}"
    return "how long its start takes is not known yet"


def launch_cost(state: RunState, deployment: Deployment) -> list[str]:
    """What it costs that one more cell of a deployment is to be measured: nothing, or one more start."""
    live = state.live_launch()
    if live is not None and live.deployment == deployment.id:
        return []
    waiting = any(
        row.cell.deployment == deployment.id and isinstance(row.state, st.Pending) for row in state.cells.values()
    )
    if waiting:
        return []
    return [f"one more server start, of {deployment.label}: {start_in_words(state, deployment)}"]


def _start_times(launches: Iterable[LaunchRow]) -> str:
    seconds = [one.start_seconds for one in launches if one.start_seconds]
    if not seconds:
        return ""
    low, high = seconds_in_words(min(seconds)), seconds_in_words(max(seconds))
    return low if low == high else f"{low} to {high}"


def _of_deployments(state: RunState, rows: Sequence[CellRow]) -> list[Deployment]:
    names = dict.fromkeys(row.cell.deployment for row in rows)
    return [state.deployments[name] for name in names]


def _lost(state: RunState, at: float) -> list[str]:
    running = state.running_cell()
    if running is None or not isinstance(running.state, st.Running):
        return []
    gone = seconds_in_words(max(0.0, at - running.state.since))
    return [
        f"{running.cell.id} has been measured for {gone}: that is lost (its records are kept, and count for nothing)"
    ]


def _restarts(state: RunState, rows: Sequence[CellRow]) -> list[str]:
    """The starts that it costs to take these cells next."""
    live = state.live_launch()
    others = [one for one in _of_deployments(state, rows) if live is None or one.id != live.deployment]
    lines = []
    if live is not None and others:
        current = state.deployments[live.deployment]
        left = _pending_of(state, live.deployment) - sum(row.cell.deployment == live.deployment for row in rows)
        lines.append(f"the server of {current.label} (launch {live.number}) is stopped first")
        if left > 0:
            cells = "1 cell" if left == 1 else f"{left} cells"
            lines.append(f"{current.label} has {cells} left: one more start later, {start_in_words(state, current)}")
    lines += [f"{one.label} is started: {start_in_words(state, one)}" for one in others]
    return lines


def _pending_of(state: RunState, deployment: str) -> int:
    return sum(row.cell.deployment == deployment and isinstance(row.state, st.Pending) for row in state.cells.values())


def _start(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    return _restarts(state, rows)


def _start_now(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    return [*_lost(state, at), *_restarts(state, rows)]


def _stop(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    return [*_lost(state, at), "the server stays up and takes its next cell"]


def _retry(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    lines = [line for one in _of_deployments(state, rows) for line in launch_cost(state, one)]
    done = [row.cell.id for row in rows if isinstance(row.state, st.Done)]
    if done:
        lines.append(f"{_names(done)} is done: it is measured once more, and both attempts count")
    if state.phase is st.RunPhase.ENDED:
        lines.append("the run has ended: it goes on with this")
    return lines


def _take_back(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    together = pruned_together(state, rows)
    cells = "1 cell" if len(together) == 1 else f"{len(together)} cells"
    text = f"{cells} pruned for the same reason: measured after all, and not pruned again"
    return [text, *_retry(state, together, at)]


def _skip(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    running = any(isinstance(row.state, st.Running) for row in rows)
    waiting = [row.cell.id for row in rows if not isinstance(row.state, st.Running)]
    lines = _lost(state, at) if running else []
    if waiting:
        lines.append(f"{_names(waiting)} is not measured, unless told with R (retry)")
    lines += _baseline_lost(state, rows)
    return lines


def _baseline_lost(state: RunState, rows: Sequence[CellRow]) -> list[str]:
    baseline = state.created.baseline if state.created else ""
    names = [row.cell.id for row in rows if state.deployments[row.cell.deployment].method == baseline]
    if not names:
        return []
    return [f"{_names(names)} is the baseline: without it the other methods have no speed-up at that point"]


def _no_cell_cost(state: RunState, rows: Sequence[CellRow], at: float) -> list[str]:
    return [line for one in _of_deployments(state, rows) for line in launch_cost(state, one)]


def _names(cells: Sequence[str]) -> str:
    return cells[0] if len(cells) == 1 else f"each of {len(cells)} cells"


# --- the run


def _pause(state: RunState, at: float) -> list[str]:
    running = state.running_cell()
    live = state.live_launch()
    lines = [f"{running.cell.id} is finished first"] if running else []
    if live is not None:
        gpus = state.deployments[live.deployment].placement.gpus
        held = f" and holds GPU {', '.join(map(str, gpus))}" if gpus else ""
        lines.append(f"the server of launch {live.number} stays up{held}")
    return lines + [f"{debt.what} stays stopped" for debt in state.debts.values()]


def _resume(state: RunState, at: float) -> list[str]:
    left = sum(isinstance(row.state, st.Pending) for row in state.cells.values())
    return [f"{left} cells are pending"] if left else ["no cell is pending: there is nothing to go on with"]


def _drain(state: RunState, at: float) -> list[str]:
    live = state.live_launch()
    here = _pending_of(state, live.deployment) if live else 0
    rest = sum(isinstance(row.state, st.Pending) for row in state.cells.values()) - here
    lines = []
    if live is not None:
        lines.append(f"{state.deployments[live.deployment].label} (launch {live.number}) still measures {here} cells")
    lines.append(f"{rest} cells of other deployments stay pending; P (resume) takes them up again")
    return lines


def _stop_run(state: RunState, at: float) -> list[str]:
    live = state.live_launch()
    left = sum(isinstance(row.state, st.Pending) for row in state.cells.values())
    lines = _lost(state, at)
    if live is not None:
        label = state.deployments[live.deployment].label
        lines.append(f"the server of {label} (launch {live.number}) is stopped: going on later costs its start again")
    lines.append(f"{left} cells stay pending")
    lines += [f"put back: {debt.what}" for debt in state.debts.values()]
    return lines


def _settle(state: RunState, at: float) -> list[str]:
    lines = [f"{debt.what} is started, and takes its GPU" for debt in state.debts.values()]
    return lines or ["the run owes nothing"]


def _waive(state: RunState, at: float) -> list[str]:
    lines = [f"{name} is not put back: start it yourself" for name in state.debts]
    return lines or ["the run owes nothing"]


_CELL_COSTS: dict[st.CellCommand, Callable[[RunState, Sequence[CellRow], float], list[str]]] = {
    st.CellCommand.START: _start,
    st.CellCommand.START_NOW: _start_now,
    st.CellCommand.STOP: _stop,
    st.CellCommand.RETRY: _retry,
    st.CellCommand.TAKE_BACK: _take_back,
    st.CellCommand.SKIP: _skip,
    st.CellCommand.EDIT: _no_cell_cost,
    st.CellCommand.DUPLICATE: _no_cell_cost,
}
_RUN_COSTS: dict[st.RunCommand, Callable[[RunState, float], list[str]]] = {
    st.RunCommand.PAUSE: _pause,
    st.RunCommand.RESUME: _resume,
    st.RunCommand.DRAIN: _drain,
    st.RunCommand.STOP: _stop_run,
    st.RunCommand.SETTLE: _settle,
    st.RunCommand.WAIVE: _waive,
    st.RunCommand.UNTIL: lambda _state, _at: [],
}
