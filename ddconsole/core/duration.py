"""How long things will take: from defaults, then from earlier runs on the host, then from this run as it goes.

A cell's time is its output tokens, one stream after the other, over the rate at which a stream got them, everything
between (prompts, pauses, warm-up) included. So one measured cell tells what the next of its kind will take.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core import states as st
from ddconsole.core.expansion import Expansion
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import Deployment, WorkloadPoint

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Defaults:
    """Assumed where nothing was measured yet."""

    start_seconds: float = 120.0
    stop_seconds: float = 10.0
    stream_rate: float = 30.0
    """Output tokens a second of one stream of the baseline on one GPU."""
    speculative_gain: float = 2.5
    parallel_gain: float = 0.5
    """Exponent: four GPUs are twice as fast as one."""
    concurrency_loss: float = 0.15
    """Exponent: a stream beside seven others is a quarter slower."""


_DEFAULTS = {
    # A small model on a few CPU cores: quick to start, and most of a cell's time goes into reading its prompts.
    "llamacpp": Defaults(10.0, 1.0, stream_rate=12.0, speculative_gain=1.0, concurrency_loss=0.6),
}


def defaults_for(engine: str) -> Defaults:
    """What is assumed of an engine: most are GPU servers that load for minutes."""
    return _DEFAULTS.get(engine, Defaults())


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured cell: the rate of one stream, output tokens a second, everything between included."""

    method: str
    tensor_parallel: int
    kind: str
    concurrency: int
    rate: float


@dataclass(frozen=True, slots=True)
class History:
    """What earlier runs with the same model told, on one host."""

    starts: Mapping[str, float] = field(default_factory=dict)
    """Seconds until ready, by `METHOD TPn`."""
    observations: tuple[Observation, ...] = ()


def history_from_json(data: Mapping[str, Any]) -> History:
    """As `history_to_json` wrote it; what cannot be used is left out, for a history is never worth an error."""
    if data.get("format") != FORMAT:
        return History()
    starts = {
        str(name): float(seconds)
        for name, seconds in dict(data.get("starts") or {}).items()
        if isinstance(seconds, int | float) and seconds > 0
    }
    observations = []
    for one in data.get("observations") or ():
        try:
            found = Observation(str(one[0]), int(one[1]), str(one[2]), int(one[3]), float(one[4]))
        except (TypeError, ValueError, IndexError, KeyError):
            continue
        if found.rate > 0 and math.isfinite(found.rate):
            observations.append(found)
    return History(starts, tuple(observations))


def history_to_json(history: History) -> dict[str, Any]:
    """For a small file beside the runs of a host."""
    rows = [[o.method, o.tensor_parallel, o.kind, o.concurrency, round(o.rate, 3)] for o in history.observations]
    return {"format": FORMAT, "starts": dict(history.starts), "observations": rows}


def learned(history: History, state: RunState) -> History:
    """The history with what a run told: newer observations take the place of older ones of the same kind."""
    by_key = {_key(one): one for one in (*history.observations, *observations_of(state))}
    return History({**history.starts, **_starts(state)}, tuple(by_key.values()))


def _key(one: Observation) -> tuple[str, int, str, int]:
    return one.method, one.tensor_parallel, one.kind, one.concurrency


def observations_of(state: RunState) -> list[Observation]:
    """What the done attempts of a run tell."""
    found = []
    for row in state.cells.values():
        deployment = state.deployments[row.cell.deployment]
        for attempt in row.done_attempts():
            if attempt.ended is not None and attempt.ended > attempt.started:
                rate = stream_tokens(row.cell.point) / (attempt.ended - attempt.started)
                found.append(_observation(deployment, row.cell.point, rate))
    return found


def _observation(deployment: Deployment, point: WorkloadPoint, rate: float) -> Observation:
    return Observation(deployment.method, deployment.tensor_parallel, point.kind, point.concurrency, rate)


def _starts(state: RunState) -> dict[str, float]:
    return {
        state.deployments[launch.deployment].label: launch.start_seconds
        for launch in state.launches.values()
        if launch.start_seconds
    }


def stream_tokens(point: WorkloadPoint) -> int:
    """Output tokens of the longest stream of an attempt."""
    requests = point.requests * point.repetitions
    if point.kind in {"closed-loop", "open-loop"}:
        requests = math.ceil(requests / point.concurrency)
    return requests * point.max_tokens


# --- estimates -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Estimates:
    """What cells and launches will take: this run's observations come first, then the history's, then defaults."""

    defaults: Defaults = field(default_factory=Defaults)
    starts: Mapping[str, float] = field(default_factory=dict)
    """Of this run, by `METHOD TPn`."""
    observations: Sequence[Observation] = ()
    history: History = field(default_factory=History)

    def cell_seconds(self, deployment: Deployment, point: WorkloadPoint) -> float:
        """Of one attempt."""
        if point.rate is not None:
            sending = point.requests * point.repetitions / point.rate
            return sending + point.max_tokens / self._rate(deployment, point)
        return stream_tokens(point) / self._rate(deployment, point)

    @property
    def basis(self) -> str:
        """What the times of cells are taken from, in words."""
        if self.observations:
            return "by what was measured so far"
        return "by earlier runs on this host" if self.history.observations else "a guess: nothing was measured yet"

    def launch_seconds(self, deployment: Deployment) -> float:
        """Of one start and stop of the server, cells apart."""
        return self.start_seconds(deployment) + self.defaults.stop_seconds

    def start_seconds(self, deployment: Deployment) -> float:
        """Until the server is ready: of this deployment's kind, else of the same number of GPUs, else of any."""
        for starts in (self.starts, self.history.starts):
            if deployment.label in starts:
                return starts[deployment.label]
        for starts in (self.starts, self.history.starts):
            size = f" TP{deployment.tensor_parallel}"
            near = [seconds for label, seconds in starts.items() if label.endswith(size)] or list(starts.values())
            if near:
                return sum(near) / len(near)
        return self.defaults.start_seconds

    def _rate(self, deployment: Deployment, point: WorkloadPoint) -> float:
        for observations in (self.observations, self.history.observations):
            rate = _nearest(observations, deployment, point)
            if rate is not None:
                return rate
        return self._default_rate(deployment, point) * self._correction()

    def _default_rate(self, deployment: Deployment, point: WorkloadPoint) -> float:
        gain = self.defaults.speculative_gain if deployment.speculative is not None else 1.0
        return _expected(self.defaults, deployment.tensor_parallel, point.concurrency) * gain

    def _correction(self) -> float:
        """How much faster than the defaults this run, else the history, was on the whole."""
        for observations in (self.observations, self.history.observations):
            if observations:
                ratios = [
                    one.rate / _expected(self.defaults, one.tensor_parallel, one.concurrency) for one in observations
                ]
                return math.exp(sum(math.log(one) for one in ratios) / len(ratios))
        return 1.0


def _expected(defaults: Defaults, tensor_parallel: int, concurrency: int) -> float:
    per_stream = concurrency**-defaults.concurrency_loss
    rate: float = defaults.stream_rate * tensor_parallel**defaults.parallel_gain * per_stream
    return rate


def _nearest(observations: Iterable[Observation], deployment: Deployment, point: WorkloadPoint) -> float | None:
    """The mean rate of the same method and size, if possible of the same kind of workload, at the next concurrency."""
    same = [
        one
        for one in observations
        if one.method == deployment.method and one.tensor_parallel == deployment.tensor_parallel
    ]
    same = [one for one in same if one.kind == point.kind] or same
    if not same:
        return None
    distance = min(_steps(one.concurrency, point.concurrency) for one in same)
    rates = [one.rate for one in same if _steps(one.concurrency, point.concurrency) == distance]
    return sum(rates) / len(rates)


def _steps(one: int, other: int) -> float:
    return abs(math.log2(one / other))


def estimates_for(state: RunState, history: History | None = None) -> Estimates:
    """Estimates from a run as it stands, and from the history of its host."""
    engine = state.created.engine if state.created else ""
    return Estimates(defaults_for(engine), _starts(state), observations_of(state), history or History())


@dataclass(frozen=True, slots=True)
class Prediction:
    """Seconds that a plan will take, before anything starts."""

    cells: Mapping[str, float]
    """By cell: all its rounds. Only cells that will be tried."""
    launches: Mapping[str, float]
    """By deployment: all its starts and stops."""

    @property
    def total(self) -> float:
        """Of the whole sweep."""
        return sum(self.cells.values()) + sum(self.launches.values())


def predict(expansion: Expansion, estimates: Estimates) -> Prediction:
    """What an expansion will take."""
    deployments = {one.id: one for one in expansion.deployments}
    cells = {
        cell.id: cell.rounds * estimates.cell_seconds(deployments[cell.deployment], cell.point)
        for cell in expansion.measured
    }
    rounds = {cell.deployment: cell.rounds for cell in expansion.measured}
    launches = {name: count * estimates.launch_seconds(deployments[name]) for name, count in rounds.items()}
    return Prediction(cells, launches)


def estimate_of_expansion(expansion: Expansion, engine: str = "", history: History | None = None) -> float:
    """Seconds that an expansion will take, launches included.

    Args:
        expansion: of a plan.
        engine: the engine's kind, for the defaults.
        history: of the host.
    """
    return predict(expansion, Estimates(defaults_for(engine), history=history or History())).total


# --- what is left of a run -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remaining:
    """Seconds that are left."""

    cells: Mapping[str, float | None]
    """By cell; None for one that nothing will happen to by itself."""
    total: float | None
    """Of the run, launches included; None when no cell is left."""


def remaining(state: RunState, estimates: Estimates, now: float | None = None) -> Remaining:
    """What is left of a run.

    Args:
        state: the run.
        estimates: for its cells and launches.
        now: wall time on the agent's clock; the time of the last journal entry without it.
    """
    at = state.at if now is None else now
    cells = {name: _cell_left(state, row, estimates, at) for name, row in state.cells.items()}
    later = waiting(state, estimates)
    return Remaining(cells, None if later is None else later + running_left(state, estimates, at))


def waiting(state: RunState, estimates: Estimates) -> float | None:
    """Seconds of what has not begun: cells that wait, later rounds of the running one, starts that are to come.

    None when no cell is left. However long what runs now takes, no less than this is left of the run.
    """
    seconds = 0.0
    rounds: dict[str, int] = {}
    for row in state.cells.values():
        if not isinstance(row.state, st.Pending | st.Running):
            continue
        deployment, left = state.deployments[row.cell.deployment], rounds_left(row)
        rounds[deployment.id] = max(rounds.get(deployment.id, 0), left)
        later = left - (1 if isinstance(row.state, st.Running) else 0)
        seconds += later * estimates.cell_seconds(deployment, row.cell.point)
    live = state.live_launch()
    if live is not None and live.deployment in rounds:
        rounds[live.deployment] -= 1
    starts = sum(count * estimates.launch_seconds(state.deployments[name]) for name, count in rounds.items())
    return seconds + starts if rounds else None


def remaining_of_run(state: RunState) -> float | None:
    """Seconds that are left of a run, from what it told so far; None when nothing is left, or it has ended."""
    if state.phase is st.RunPhase.ENDED:
        return None
    return remaining(state, estimates_for(state)).total


def running_left(state: RunState, estimates: Estimates, at: float) -> float:
    """Seconds of what goes on now: the rest of the cell that is measured, of a server's start, and its stop."""
    row = state.running_cell()
    seconds = 0.0
    if row is not None and isinstance(row.state, st.Running):
        whole = estimates.cell_seconds(state.deployments[row.cell.deployment], row.cell.point)
        seconds += max(0.0, whole - max(0.0, at - row.state.since))
    return seconds + launch_left(state, estimates, at)


def rounds_left(row: CellRow) -> int:
    """Rounds of a cell that are still to be measured, the running one among them."""
    return max(1, row.cell.rounds - len(row.done_attempts()))


def _cell_left(state: RunState, row: CellRow, estimates: Estimates, at: float) -> float | None:
    seconds = estimates.cell_seconds(state.deployments[row.cell.deployment], row.cell.point)
    match row.state:
        case st.Pending():
            return rounds_left(row) * seconds
        case st.Running(since=since):
            return max(0.0, seconds - max(0.0, at - since)) + (rounds_left(row) - 1) * seconds
        case _:
            return None


def launch_left(state: RunState, estimates: Estimates, at: float) -> float:
    """The rest of the start of the launch that lives, and its stop; 0 where none lives."""
    live = state.live_launch()
    if live is None:
        return 0.0
    if not isinstance(live.state, st.Planned | st.Starting):
        return estimates.defaults.stop_seconds
    whole = estimates.start_seconds(state.deployments[live.deployment])
    return estimates.defaults.stop_seconds + max(0.0, whole - max(0.0, at - live.planned))
