"""Medians, and how sure they are: spreads, intervals over launches, and percentiles that the sample carries.

Noise sits at three levels: launches, repetitions within a launch, requests within a repetition. The two lower ones are
in the median of each launch; an interval is made of those medians (`launch_interval`), and needs at least three
launches. With fewer there is only a spread: the central 95 % of the requests.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ddconsole.core.figures import percentile
from ddconsole.core.records import RequestOutcome
from ddconsole.core.row_text import REQUESTS_FOR_A_MEDIAN
from ddconsole.report.launch_interval import interval_of, interval_of_ratio

LAUNCHES_FOR_AN_INTERVAL = 3

PERCENTILE_FLOORS = ((0.99, 662), (0.95, 130), (0.90, 64), (0.50, REQUESTS_FOR_A_MEDIAN))
"""Requests that a percentile needs at least: MLPerf's floors at a confidence of 0.99 (facts: reporting)."""


class Measured(Protocol):
    """A request, as a record or as the figures of one."""

    @property
    def index(self) -> int:
        """Order of sending."""

    @property
    def repetition(self) -> int:
        """Within the attempt."""

    @property
    def prompt(self) -> str:
        """Name of the prompt."""

    @property
    def outcome(self) -> RequestOutcome:
        """Only `ok` counts."""


R = TypeVar("R", bound=Measured)

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]


class Sureness(StrEnum):
    """What `low` and `high` of an estimate are."""

    INTERVAL = "interval"
    """95 % interval over launches."""
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

    def times(self, factor: float) -> "Estimate":
        """The same in another unit."""
        low, high = (None if one is None else one * factor for one in (self.low, self.high))
        return Estimate(self.value * factor, low, high, self.sureness)

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

    def launch_medians(self) -> list[float]:
        """The median of each launch's requests, in the order of the launches; a launch without a value has none."""
        known = (launch[~np.isnan(launch)] for launch in self.values)
        return [float(np.median(one)) for one in known if one.size]

    def for_keys(self, keys: Sequence[tuple[str, int]]) -> "Observations":
        """The same with these keys only, in this order."""
        places = [self.keys.index(key) for key in keys]
        return Observations(self.values[:, :, places], self.repetitions, tuple(keys))


def observe(launches: Mapping[int, Iterable[Iterable[R]]], figure: Callable[[R], float | None]) -> Observations | None:
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
        return _interval(value, interval_of(observations.launch_medians()))
    if len(known) < 2:
        return Estimate(value)
    return Estimate(value, percentile(known, 0.025), percentile(known, 0.975), Sureness.SPREAD)


def ratio_estimate(numerator: Observations | None, denominator: Observations | None) -> Estimate | None:
    """The ratio of two medians; the interval is paired: it is made of the prompts that both sides have.

    With fewer than three launches on either side, or no prompt in common, there is no interval.
    """
    if numerator is None or denominator is None:
        return None
    value = statistics.median(numerator.known()) / statistics.median(denominator.known())
    shared = tuple(key for key in numerator.keys if key in set(denominator.keys))
    above, below = (one.for_keys(shared).launch_medians() for one in (numerator, denominator))
    if min(len(above), len(below)) < LAUNCHES_FOR_AN_INTERVAL:
        return Estimate(value)
    return _interval(value, interval_of_ratio(above, below))


def certified_percentile(values: Sequence[float], fraction: float) -> float | None:
    """The percentile, or None where the sample is too small to carry it."""
    needed = next(floor for certain, floor in PERCENTILE_FLOORS if certain <= fraction)
    return percentile(values, fraction) if len(values) >= needed else None


def _by_repetition(records: Iterable[R], figure: Callable[[R], float | None]) -> list[dict[tuple[str, int], float]]:
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


def _interval(value: float, bounds: tuple[float, float]) -> Estimate:
    """The interval is around the launches, the figure is over all requests: it is never left outside."""
    return Estimate(value, min(bounds[0], value), max(bounds[1], value), Sureness.INTERVAL)
