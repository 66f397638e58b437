"""How long things will take: from defaults, then from earlier runs on the host, then from this run as it goes.

A cell's time is its output tokens, one stream after the other, over the rate at which a stream got them, everything
between (prompts, pauses, warm-up) included. So one measured cell tells what the next of its kind will take.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ddconsole.core import states as st
from ddconsole.core.expansion import Expansion
from ddconsole.core.foretold_rounds import (
    Chances,
    drift_checks_left,
    expected,
    expected_most,
    rounds_foretold,
    starts_for_canaries,
)
from ddconsole.core.history import History, Observation
from ddconsole.core.pace import Pace, Seen, fit_pace
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import Deployment, WorkloadPoint


@dataclass(frozen=True, slots=True)
class Defaults:
    """Assumed where nothing was measured yet."""

    start_seconds: float = 120.0
    stop_seconds: float = 10.0
    stream_rate: float = 30.0
    """Output tokens a second of one stream of the baseline on one GPU."""
    speculative_gain: float = 2.5
    gains: Mapping[str, float] = field(default_factory=lambda: {"dflash": 3.5, "ddtree": 4.2})
    """By kind of speculation, where it is not that: what CT200's operator measured at its usual settings."""
    parallel_gain: float = 0.5
    """Exponent: four GPUs are twice as fast as one."""
    concurrency_loss: float = 0.15
    """Exponent: a stream beside seven others is a quarter slower."""

    def gain_of(self, speculation: str) -> float:
        """The factor that a kind of speculation is taken to gain; 1 without speculation."""
        return self.gains.get(speculation, self.speculative_gain) if speculation else 1.0


_DEFAULTS = {
    # A small model on a few CPU cores: quick to start, and most of a cell's time goes into reading its prompts.
    "llamacpp": Defaults(10.0, 1.0, stream_rate=12.0, speculative_gain=1.0, gains={}, concurrency_loss=0.6),
}


def defaults_for(engine: str) -> Defaults:
    """What is assumed of an engine: most are GPU servers that load for minutes."""
    return _DEFAULTS.get(engine, Defaults())


def learned(history: History, state: RunState) -> History:
    """The history with what a run told: newer observations take the place of older ones of the same kind."""
    new = observations_of(state)
    known = {_key(one)[:4] for one in new}
    kept = [one for one in history.observations if one.tokens or _key(one)[:4] not in known]
    by_key = {_key(one): one for one in (*kept, *new)}
    return History({**history.starts, **_starts(state)}, tuple(by_key.values()))


def _key(one: Observation) -> tuple[str, int, str, int, int, str]:
    return one.method, one.tensor_parallel, one.kind, one.concurrency, one.tokens, one.prompts


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
    return Observation(
        deployment.method,
        deployment.tensor_parallel,
        point.kind,
        point.concurrency,
        rate,
        point.max_tokens,
        point.prompts,
        deployment.speculative.kind if deployment.speculative is not None else "",
    )


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
    around_cells: float | None = None
    """Seconds of a launch of this run beyond its start and its cells, until the next one; None before there is one."""
    pace: Pace | None = None
    """Fitted to what was measured; without it, made whenever it is asked for."""

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
        rest = self.defaults.stop_seconds if self.around_cells is None else self.around_cells
        return self.start_seconds(deployment) + rest

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
        return self._foretold_rate(deployment, point)

    def _foretold_rate(self, deployment: Deployment, point: WorkloadPoint) -> float:
        """Of a method that was not measured at this tensor-parallel size: by itself elsewhere, and by others here."""
        pace = self.pace or pace_of(self.observations or self.history.observations, self.defaults)
        beyond = pace.beyond(
            deployment.method,
            deployment.tensor_parallel,
            (point.kind, point.concurrency, point.max_tokens, point.prompts),
            self.defaults.gain_of(deployment.speculative.kind if deployment.speculative is not None else ""),
        )
        return _expected(self.defaults, deployment.tensor_parallel, point.concurrency) * math.exp(beyond)


def _expected(defaults: Defaults, tensor_parallel: int, concurrency: int) -> float:
    per_stream = concurrency**-defaults.concurrency_loss
    rate: float = defaults.stream_rate * tensor_parallel**defaults.parallel_gain * per_stream
    return rate


def pace_of(observations: Iterable[Observation], defaults: Defaults) -> Pace:
    """How fast methods are beyond the defaults, fitted to what was measured."""
    return fit_pace([_seen(one, defaults) for one in observations])


def _seen(one: Observation, defaults: Defaults) -> Seen:
    beyond = math.log(one.rate / _expected(defaults, one.tensor_parallel, one.concurrency))
    place = (one.kind, one.concurrency, one.tokens, one.prompts)
    return Seen(one.method, defaults.gain_of(one.speculation), one.tensor_parallel, place, beyond)


def _nearest(observations: Iterable[Observation], deployment: Deployment, point: WorkloadPoint) -> float | None:
    """The mean rate of the same method and size at the nearest workload point, if possible of the same kind."""
    same = [
        one
        for one in observations
        if one.method == deployment.method and one.tensor_parallel == deployment.tensor_parallel
    ]
    same = [one for one in same if one.kind == point.kind] or same
    if not same:
        return None
    distances = [_distance(one, point) for one in same]
    rates = [one.rate for one, distance in zip(same, distances, strict=True) if distance == min(distances)]
    return sum(rates) / len(rates)


def _distance(one: Observation, point: WorkloadPoint) -> float:
    """Doublings of the concurrency, half of those of the length, and a quarter for other prompts."""
    longer = _steps(one.tokens, point.max_tokens) if one.tokens else 0.0
    other = 0.25 if one.prompts and one.prompts != point.prompts else 0.0
    return _steps(one.concurrency, point.concurrency) + longer / 2 + other


def _steps(one: int, other: int) -> float:
    return abs(math.log2(one / other))


def estimates_for(state: RunState, history: History | None = None) -> Estimates:
    """Estimates from a run as it stands, and from the history of its host."""
    engine = state.created.engine if state.created else ""
    defaults, known = defaults_for(engine), history or History()
    observations = observations_of(state)
    pace = pace_of(observations or known.observations, defaults)
    return Estimates(defaults, _starts(state), observations, known, _around_cells(state), pace)


def _around_cells(state: RunState) -> float | None:
    """Seconds of a launch beyond its start and its cells, until the next one was planned: the mean of those so far."""
    cells: dict[int, float] = {}
    for row in state.cells.values():
        for attempt in row.attempts:
            if attempt.ended is not None:
                cells[attempt.launch] = cells.get(attempt.launch, 0.0) + attempt.ended - attempt.started
    launches = sorted(state.launches.values(), key=lambda one: one.number)
    found = [
        after.planned - one.planned - (one.start_seconds or 0.0) - cells.get(one.number, 0.0)
        for one, after in pairwise(launches)
        if isinstance(one.state, st.Gone) and one.start_seconds
    ]
    return max(0.0, statistics.median(found)) if found else None


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
    rounds = rounds_foretold(state)
    cells = {
        name: _cell_left(state, row, estimates, at, expected(rounds[name])) if name in rounds else None
        for name, row in state.cells.items()
    }
    later = waiting(state, estimates)
    return Remaining(cells, None if later is None else later + running_left(state, estimates, at))


def waiting(state: RunState, estimates: Estimates) -> float | None:
    """Seconds of what has not begun: cells that wait, later rounds of the running one, starts that are to come.

    None when no cell is left. However long what runs now takes, no less than this is left of the run.
    """
    rounds = rounds_foretold(state)
    if not rounds:
        return None
    seconds = _drift_checks_left(state, estimates, rounds)
    of_deployments: dict[str, list[Chances]] = {}
    for name, chances in rounds.items():
        row = state.cells[name]
        of_deployments.setdefault(row.cell.deployment, []).append(chances)
        later = expected(chances) - (1 if isinstance(row.state, st.Running) else 0)
        seconds += later * estimates.cell_seconds(state.deployments[row.cell.deployment], row.cell.point)
    more = starts_for_canaries(state)
    starts = {name: expected_most(several) + more.get(name, 0) for name, several in of_deployments.items()}
    live = state.live_launch()
    if live is not None and live.deployment in starts:
        starts[live.deployment] -= 1
    return seconds + sum(count * estimates.launch_seconds(state.deployments[name]) for name, count in starts.items())


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


def _cell_left(state: RunState, row: CellRow, estimates: Estimates, at: float, rounds: float) -> float:
    seconds = estimates.cell_seconds(state.deployments[row.cell.deployment], row.cell.point)
    if isinstance(row.state, st.Running):
        return max(0.0, seconds - max(0.0, at - row.state.since)) + (rounds - 1) * seconds
    return rounds * seconds


def _drift_checks_left(state: RunState, estimates: Estimates, rounds: Mapping[str, Chances]) -> float:
    """Launches of the baseline that are still to come to see drift."""
    seconds = 0.0
    for name, number in drift_checks_left(state, rounds).items():
        cell = state.cells[name].cell
        deployment = state.deployments[cell.deployment]
        seconds += number * (estimates.launch_seconds(deployment) + estimates.cell_seconds(deployment, cell.point))
    return seconds


def launch_left(state: RunState, estimates: Estimates, at: float) -> float:
    """The rest of the start of the launch that lives, and its stop; 0 where none lives."""
    live = state.live_launch()
    if live is None:
        return 0.0
    start = estimates.start_seconds(state.deployments[live.deployment])
    stop = estimates.launch_seconds(state.deployments[live.deployment]) - start
    if not isinstance(live.state, st.Planned | st.Starting):
        return stop
    return stop + max(0.0, start - max(0.0, at - live.planned))
