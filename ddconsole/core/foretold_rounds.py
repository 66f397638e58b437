"""How many rounds and starts a run will still take: what the protocol will add, as far as it can be foretold.

With `protocol.repeat` a cell goes on until its interval is narrow enough. When that is depends on how much launches
differ, and on luck: the first few may agree by chance. So the rule is played through many times with that noise, and a
cell's rounds are what came of it on the mean. The noise is the cell's own, drawn towards that of all cells together;
before any cell has two launches, it is taken to be what makes three launches just enough. With `protocol.prune` most
methods start once more after their canary. With `protocol.baseline_every` the baseline comes again and again. What
pruning will save is not foretold.
"""

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from ddconsole.core import states as st
from ddconsole.core.drift import baseline_every
from ddconsole.core.pruning import undecided
from ddconsole.core.repeating import LAUNCHES_FOR_AN_INTERVAL, Repeat, half_width, repeat_of
from ddconsole.core.run_state import CellRow, RunState

Chances = tuple[float, ...]
"""Of a first further round, a second one, ...: their sum is the number of rounds to expect."""

_PLAYED = 300
_STEPS_OF_NOISE = 8
"""Per factor of e: noise is rounded, so that the same game is not played again and again."""
_DRAWN = 4
"""Degrees of freedom that the noise of all cells counts as, beside a cell's own."""


def rounds_left(row: CellRow) -> int:
    """Rounds of a cell that are still to be measured as it stands, the running one among them."""
    return max(1, row.cell.rounds - len(row.done_attempts()))


def rounds_foretold(state: RunState) -> dict[str, Chances]:
    """By cell: the chances of further rounds, repetitions included. Cells that have ended are not in it."""
    waiting = {name: row for name, row in state.cells.items() if isinstance(row.state, st.Pending | st.Running)}
    repeat = repeat_of(state)
    if repeat is None:
        return {name: (1.0,) * rounds_left(row) for name, row in waiting.items()}
    common = _noise_of_all(state)
    return {name: _chances(row, repeat, common) for name, row in waiting.items()}


def expected(chances: Chances) -> float:
    """The number of rounds on the mean."""
    return math.fsum(chances)


def expected_most(of_cells: Iterable[Chances]) -> float:
    """The number of rounds of the cell that needs most of them, on the mean: starts of the server of all these."""
    several = list(of_cells)
    longest = max((len(one) for one in several), default=0)
    return math.fsum(
        1.0 - math.prod(1.0 - (one[place] if place < len(one) else 0.0) for one in several) for place in range(longest)
    )


def _chances(row: CellRow, repeat: Repeat, common: float | None) -> Chances:
    done, sure = len(row.done_attempts()), rounds_left(row)
    ended = games(_rounded(_noise(row, common) / repeat.until), repeat.most) if _noise(row, common) else None
    if ended is None:
        return (1.0,) * max(sure, LAUNCHES_FOR_AN_INTERVAL - done)
    begun = max(done, LAUNCHES_FOR_AN_INTERVAL - 1)
    going = sum(1 for number in ended if number > begun)
    chances = [1.0] * max(sure, LAUNCHES_FOR_AN_INTERVAL - done)
    for launches in range(done + len(chances), repeat.most):
        chances.append(sum(1 for number in ended if number > launches) / going if going else 0.0)
    return tuple(chances)


def _rounded(noise: float) -> float:
    return math.exp(round(math.log(noise) * _STEPS_OF_NOISE) / _STEPS_OF_NOISE)


@lru_cache(maxsize=64)
def games(noise: float, most: int) -> tuple[int, ...]:
    """After how many launches each of many games ended.

    Args:
        noise: as a share of half the interval that is asked for.
        most: launches after which it ends in any case.
    """
    dice = random.Random(1)
    small = 0.001  # the interval of logarithms this small is that of the rates
    ended = []
    for _ in range(_PLAYED):
        rates: list[float] = []
        while len(rates) < most:
            rates.append(math.exp(dice.gauss(0.0, noise * small)))
            width = half_width(rates)
            if width is not None and width <= small:
                break
        ended.append(len(rates))
    return tuple(ended)


def _noise(row: CellRow, common: float | None) -> float:
    """Standard deviation of the logarithm of a launch's rate; 0 where nothing tells."""
    rates = _rates(row)
    freedom = len(rates) - 1
    own = statistics.variance(rates) if freedom > 0 else 0.0
    if common is None:
        return math.sqrt(own)
    return math.sqrt((max(0, freedom) * own + _DRAWN * common**2) / (max(0, freedom) + _DRAWN))


def _noise_of_all(state: RunState) -> float | None:
    several = [rates for rates in map(_rates, state.cells.values()) if len(rates) > 1]
    found = [(len(rates) - 1, statistics.variance(rates)) for rates in several]
    freedom = sum(number for number, _ in found)
    return math.sqrt(sum(number * variance for number, variance in found) / freedom) if freedom else None


def _rates(row: CellRow) -> Sequence[float]:
    told = (attempt.figures.get("output_rate") for attempt in row.compared_attempts())
    return [math.log(rate) for rate in told if isinstance(rate, int | float) and rate > 0]


def starts_for_canaries(state: RunState) -> dict[str, int]:
    """By deployment: one more start, where its canary is measured before the rest of it.

    The last canary of a tensor-parallel size decides at once: its server goes on.
    """
    waiting: dict[str, int] = {}
    for row in state.cells.values():
        if isinstance(row.state, st.Pending):
            waiting[row.cell.deployment] = waiting.get(row.cell.deployment, 0) + 1
    found: dict[int, list[str]] = {}
    baseline = state.created.baseline if state.created else ""
    for (method, size), row in undecided(state).items():
        others = waiting.get(row.cell.deployment, 0) - isinstance(row.state, st.Pending)
        if method != baseline and others > 0:
            found.setdefault(size, []).append(row.cell.deployment)
    return {name: 1 for names in found.values() for name in names[:-1]}


def drift_checks_left(state: RunState, rounds: Mapping[str, Chances]) -> dict[str, int]:
    """By cell of the baseline: how often it will be measured again to see drift."""
    every = baseline_every(state)
    if every is None:
        return {}
    baseline = state.created.baseline if state.created else ""
    first: dict[int, str] = {}
    cells: dict[int, float] = {}
    for name, row in state.cells.items():
        deployment = state.deployments[row.cell.deployment]
        if deployment.method == baseline:
            first.setdefault(deployment.tensor_parallel, name)
        else:
            size = deployment.tensor_parallel
            cells[size] = cells.get(size, 0.0) + expected(rounds.get(name, ()))
    return {first[size]: int(number // every) for size, number in cells.items() if size in first and number >= every}
