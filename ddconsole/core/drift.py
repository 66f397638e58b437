"""Drift: what the baseline, measured again and again, says of the machine while the sweep went on.

`protocol.baseline_every: N` measures the baseline's first cell of a tensor-parallel size once more after N cells of
other methods there, at the next change of servers: no server is stopped for it. Every launch of it also counts in the
baseline's figures.

The drift of a cell is the line through the logarithms of its launches' rates over time, as the share by which the rate
changed from its first to its last launch. Its interval is the one of the line's slope (Student's t, two degrees of
freedom less than launches), so it needs three launches; two tell a change that may be noise between launches.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.events import CellsRepeated
from ddconsole.core.run_state import Attempt, CellRow, RunState
from ddconsole.core.student_t import t_95

LAUNCHES_FOR_AN_INTERVAL = 3
WORTH_TELLING = 0.01
"""A change below it flags nothing, however sure it is."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One cell over the launches that measured it."""

    cell: str
    label: str
    """Of its deployment."""
    times: tuple[float, ...]
    """Wall time at which each launch began to measure it."""
    rates: tuple[float, ...]
    """Tokens a second, median of each launch's requests."""
    change: float
    """Share by which the rate changed from the first launch to the last, along the line."""
    low: float | None
    high: float | None
    """95 % interval of the change; None with two launches."""

    @property
    def beyond(self) -> bool:
        """Whether the change is no noise between launches: its interval does not hold zero, and it is worth telling."""
        if self.low is None or self.high is None or abs(self.change) < WORTH_TELLING:
            return False
        return self.low > 0 or self.high < 0

    @property
    def hours(self) -> float:
        """From the first launch to the last."""
        return (self.times[-1] - self.times[0]) / 3600


def baseline_every(state: RunState) -> int | None:
    """After how many cells of other methods the baseline is measured again; None where it is not."""
    asked = state.created.protocol.get("baseline_every") if state.created else None
    return int(asked) if asked else None


def drift_checks(state: RunState) -> list[CellsRepeated]:
    """Which cells of the baseline are to be measured again now, before what else waits."""
    every = baseline_every(state)
    if every is None or state.phase is not st.RunPhase.RUNNING:
        return []
    checks = []
    for size, row in _sentinels(state).items():
        last = max(attempt.started for attempt in row.done_attempts())
        since = sum(1 for attempt in _others(state, size) if attempt.started > last)
        if not row.sooner and since >= every:
            because = f"{since} cells of other methods since it was measured last: to see drift"
            checks.append(CellsRepeated((row.cell.id,), because, sooner=True))
    return checks


def _sentinels(state: RunState) -> dict[int, CellRow]:
    """By tensor-parallel size: the baseline's first cell that has been measured and can be again."""
    found: dict[int, CellRow] = {}
    for row in state.cells.values():
        deployment = state.deployments[row.cell.deployment]
        if not _is_baseline(state, row) or not row.done_attempts():
            continue
        if isinstance(row.state, st.Done | st.Pending):
            found.setdefault(deployment.tensor_parallel, row)
    return found


def _others(state: RunState, size: int) -> list[Attempt]:
    return [
        attempt
        for row in state.cells.values()
        if not _is_baseline(state, row) and state.deployments[row.cell.deployment].tensor_parallel == size
        for attempt in row.attempts
        if attempt.outcome is st.CellPhase.DONE
    ]


def _is_baseline(state: RunState, row: CellRow) -> bool:
    return state.created is not None and state.deployments[row.cell.deployment].method == state.created.baseline


def baseline_drift(state: RunState) -> tuple[Drift, ...]:
    """The drift of every cell of the baseline that was measured on two launches or more, in the order of the table."""
    found = (drift_of(state, row) for row in state.cells.values() if _is_baseline(state, row))
    return tuple(one for one in found if one is not None)


def drift_of(state: RunState, row: CellRow) -> Drift | None:
    """The drift of any cell; None with one launch."""
    told = [(attempt.started, _rate(attempt)) for attempt in row.compared_attempts()]
    points = sorted((at, rate) for at, rate in told if rate is not None)
    if len(points) < 2 or points[0][0] == points[-1][0]:
        return None
    times, rates = tuple(at for at, _ in points), tuple(rate for _, rate in points)
    change, low, high = _line(times, rates)
    return Drift(row.cell.id, state.deployments[row.cell.deployment].label, times, rates, change, low, high)


def _rate(attempt: Attempt) -> float | None:
    value = attempt.figures.get("output_rate")
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _line(times: Sequence[float], rates: Sequence[float]) -> tuple[float, float | None, float | None]:
    """Change from the first to the last, with its interval."""
    span = times[-1] - times[0]
    logarithms = [math.log(rate) for rate in rates]
    slope, intercept = statistics.linear_regression(times, logarithms)
    if len(times) < LAUNCHES_FOR_AN_INTERVAL:
        return math.expm1(slope * span), None, None
    left = [value - intercept - slope * at for at, value in zip(times, logarithms, strict=True)]
    middle = statistics.fmean(times)
    freedom = len(times) - 2
    error = math.sqrt(math.fsum(one * one for one in left) / freedom / math.fsum((at - middle) ** 2 for at in times))
    reach = t_95(freedom) * error
    return math.expm1(slope * span), math.expm1((slope - reach) * span), math.expm1((slope + reach) * span)


def drift_in_words(drift: Drift) -> str:
    """`28.4 to 27.1 tok/s over 5 launches and 3.2 h: -4.6 % (95 % interval -6.0 % to -3.1 %): more than noise`."""
    what = f"{drift.rates[0]:.1f} to {drift.rates[-1]:.1f} tok/s over {len(drift.rates)} launches"
    text = f"{what} and {drift.hours:.1f} h: {drift.change:+.1%}"
    if drift.low is None or drift.high is None:
        return f"{text} (two launches tell no interval)"
    verdict = "more than noise between launches" if drift.beyond else "no more than noise between launches"
    return f"{text} (95 % interval {drift.low:+.1%} to {drift.high:+.1%}): {verdict}"


def drift_notes(row: CellRow, state: RunState) -> list[str]:
    """What is to be said beside a cell's figures: that the baseline drifted at its tensor-parallel size."""
    size = state.deployments[row.cell.deployment].tensor_parallel
    notes = []
    for drift in baseline_drift(state):
        deployment = state.deployments[state.cells[drift.cell].cell.deployment]
        if drift.beyond and deployment.tensor_parallel == size:
            notes.append(f"the baseline drifted: {drift.label} {drift.cell} {drift_in_words(drift)}")
    return notes
