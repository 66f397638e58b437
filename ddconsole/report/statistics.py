"""Medians, and how sure they are: spreads, bootstrap intervals, and percentiles that the sample carries.

Noise sits at three levels: launches, repetitions within a launch, requests within a repetition. An interval resamples
all three (a hierarchical percentile bootstrap; Kalibera and Jones, ISMM 2013), and needs at least three launches. With
fewer there is only a spread: the central 95 % of the requests.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ddconsole.core.figures import percentile
from ddconsole.core.records import RequestOutcome, RequestRecord

RESAMPLES = 10_000
SEED = 7
"""Of the bootstrap; every cell draws the same numbers, so an interval depends on its own data alone."""
LAUNCHES_FOR_AN_INTERVAL = 3

PERCENTILE_FLOORS = ((0.99, 662), (0.95, 130), (0.90, 64), (0.50, 11))
"""Requests that a percentile needs at least: MLPerf's floors at a confidence of 0.99 (facts: reporting)."""

_ROWS = 1_000
"""Resamples drawn at once: 8 KB of memory for each request of the cell, three times over."""
_KEPT = 200
"""Requests of a cell up to which the drawn places are kept for the next cell of the same shape: most are alike."""

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]


class Sureness(StrEnum):
    """What `low` and `high` of an estimate are."""

    INTERVAL = "interval"
    """95 % bootstrap interval over launches, repetitions and requests."""
    SPREAD = "spread"
    """Central 95 % of the requests: no interval."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure, with what is known of its noise."""

    value: float
    low: float | None = None
    high: float | None = None
    sureness: Sureness = Sureness.NONE

    @property
    def half_width(self) -> float | None:
        """Half the distance between `low` and `high`."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    def overlaps(self, other: "Estimate") -> bool:
        """Whether the two ranges have a value in common; a figure without a range is its value alone."""
        mine = (self.value, self.value) if self.low is None or self.high is None else (self.low, self.high)
        its = (other.value, other.value) if other.low is None or other.high is None else (other.low, other.high)
        return mine[0] <= its[1] and its[0] <= mine[1]


@dataclass(frozen=True, slots=True)
class Observations:
    """One figure of every request that succeeded.

    `values` has the shape (launches, repetitions, keys), NaN where there is no value; `repetitions` counts the filled
    ones of each launch. A key is a prompt and its how-manieth occurrence within a repetition.
    """

    values: Floats
    repetitions: Indices
    keys: tuple[tuple[str, int], ...]

    @property
    def launches(self) -> int:
        """Launches with at least one value."""
        return int(self.values.shape[0])

    def known(self) -> list[float]:
        """All values, in a fixed order."""
        return [float(one) for one in self.values[~np.isnan(self.values)]]

    def for_keys(self, keys: Sequence[tuple[str, int]]) -> "Observations":
        """The same with these keys only, in this order."""
        places = [self.keys.index(key) for key in keys]
        return Observations(self.values[:, :, places], self.repetitions, tuple(keys))


def observe(
    launches: Mapping[int, Iterable[Iterable[RequestRecord]]], figure: Callable[[RequestRecord], float | None]
) -> Observations | None:
    """Take one figure from the requests that succeeded; None where none has it.

    Args:
        launches: by launch, the records of each attempt on it.
        figure: of one request; None where it is not defined.
    """
    rows: list[list[dict[tuple[str, int], float]]] = []
    for number in sorted(launches):
        repetitions = [one for records in launches[number] for one in _by_repetition(records, figure) if one]
        if repetitions:
            rows.append(repetitions)
    if not rows:
        return None
    keys = tuple(sorted({key for row in rows for repetition in row for key in repetition}))
    place = {key: number for number, key in enumerate(keys)}
    values = np.full((len(rows), max(map(len, rows)), len(keys)), np.nan)
    for first, row in enumerate(rows):
        for second, repetition in enumerate(row):
            for key, value in repetition.items():
                values[first, second, place[key]] = value
    return Observations(values, np.array([len(row) for row in rows], dtype=np.intp), keys)


def median_estimate(observations: Observations | None) -> Estimate | None:
    """The median over all requests, with an interval or a spread."""
    if observations is None:
        return None
    known = observations.known()
    value = statistics.median(known)
    if observations.launches >= LAUNCHES_FOR_AN_INTERVAL:
        medians = np.concatenate([_medians(one) for one in _resampled(observations)])
        return _interval(value, medians)
    if len(known) < 2:
        return Estimate(value)
    return Estimate(value, percentile(known, 0.025), percentile(known, 0.975), Sureness.SPREAD)


def ratio_estimate(numerator: Observations | None, denominator: Observations | None) -> Estimate | None:
    """The ratio of two medians; the interval is paired: both sides draw the same prompts.

    With fewer than three launches on either side, or no prompt in common, there is no interval.
    """
    if numerator is None or denominator is None:
        return None
    value = statistics.median(numerator.known()) / statistics.median(denominator.known())
    shared = tuple(key for key in numerator.keys if key in set(denominator.keys))
    if min(numerator.launches, denominator.launches) < LAUNCHES_FOR_AN_INTERVAL or not shared:
        return Estimate(value)
    above = _resampled(numerator.for_keys(shared), prompts_together=True, stream=0)
    below = _resampled(denominator.for_keys(shared), prompts_together=True, stream=1)
    ratios = np.concatenate([_medians(one) / _medians(two) for one, two in zip(above, below, strict=True)])
    return _interval(value, ratios)


def certified_percentile(values: Sequence[float], fraction: float) -> float | None:
    """The percentile, or None where the sample is too small to carry it."""
    needed = next(floor for certain, floor in PERCENTILE_FLOORS if certain <= fraction)
    return percentile(values, fraction) if len(values) >= needed else None


def _by_repetition(
    records: Iterable[RequestRecord], figure: Callable[[RequestRecord], float | None]
) -> list[dict[tuple[str, int], float]]:
    found: dict[int, dict[tuple[str, int], float]] = {}
    seen: dict[tuple[int, str], int] = {}
    for record in sorted(records, key=lambda one: one.index):
        place = (record.repetition, record.prompt)
        occurrence = seen.get(place, 0)
        seen[place] = occurrence + 1
        value = figure(record) if record.outcome is RequestOutcome.OK else None
        if value is not None and math.isfinite(value):
            found.setdefault(record.repetition, {})[record.prompt, occurrence] = value
    return [found[number] for number in sorted(found)]


def _interval(value: float, resampled: Floats) -> Estimate:
    sure = resampled[~np.isnan(resampled)]
    low, high = np.quantile(sure, [0.025, 0.975])
    return Estimate(value, float(low), float(high), Sureness.INTERVAL)


def _resampled(observations: Observations, *, prompts_together: bool = False, stream: int = 0) -> Iterator[Floats]:
    """Resamples in chunks of rows, each row one resample of all values.

    `prompts_together` draws the prompts once for a resample, the same for every `stream`, instead of afresh in each
    repetition.
    """
    values, counts = observations.values, tuple(int(one) for one in observations.repetitions)
    launches, repetitions, keys = values.shape
    flat = np.ascontiguousarray(values).reshape(launches * repetitions, keys)
    draw = _drawn_prompts if launches * repetitions * keys <= _KEPT else _drawn_prompts.__wrapped__
    for start in range(0, RESAMPLES, _ROWS):
        chosen = _drawn_repetitions(start, launches, repetitions, counts, stream)
        prompts = draw(start, 1 if prompts_together else launches * repetitions, keys)
        yield flat[chosen[:, :, None], prompts].reshape(_ROWS, -1)


@lru_cache(maxsize=40)
def _drawn_repetitions(start: int, launches: int, repetitions: int, counts: tuple[int, ...], stream: int) -> Indices:
    """Which (launch, repetition), as one index, stands where: (rows, launches x repetitions)."""
    generator = np.random.default_rng([SEED, 1, stream, start])
    launch = (generator.random((_ROWS, launches, 1)) * launches).astype(np.intp)
    within = (generator.random((_ROWS, launches, repetitions)) * np.array(counts)[launch]).astype(np.intp)
    drawn: Indices = (launch * repetitions + within).reshape(_ROWS, launches * repetitions)
    return drawn


@lru_cache(maxsize=40)
def _drawn_prompts(start: int, places: int, keys: int) -> Indices:
    """Which key stands where: (rows, places, keys)."""
    generator = np.random.default_rng([SEED, 2, start])
    return (generator.random((_ROWS, places, keys)) * keys).astype(np.intp)


def _medians(rows: Floats) -> Floats:
    """The median of each row over what is not NaN; NaN where all is."""
    if not np.isnan(rows).any():
        middle = rows.shape[1] // 2
        if rows.shape[1] % 2:
            odd: Floats = np.partition(rows, middle, axis=1)[:, middle]
            return odd
        parted = np.partition(rows, (middle - 1, middle), axis=1)
        even: Floats = (parted[:, middle - 1] + parted[:, middle]) / 2
        return even
    ordered = np.sort(rows, axis=1)  # NaN comes last
    number = rows.shape[1] - np.isnan(rows).sum(axis=1)
    line = np.arange(rows.shape[0])
    low = ordered[line, np.maximum((number - 1) // 2, 0)]
    high = ordered[line, np.minimum(number // 2, rows.shape[1] - 1)]
    both: Floats = np.where(number > 0, (low + high) / 2, np.nan)
    return both
