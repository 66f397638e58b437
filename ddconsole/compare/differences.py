"""Cell by cell: the ratio of two runs with its interval, and which of many ratios are more than chance.

The interval of a ratio is Welch's t interval over launches (`report.launch_interval`), of the prompts that both sides
have. Of hundreds of cells some intervals miss 1 by chance: twenty in four hundred. So a cell counts as regressed or
improved only where it is found by the procedure of Benjamini and Hochberg at 5 % ("Controlling the False Discovery
Rate", Journal of the Royal Statistical Society B 57, 1995): of all cells that are told as changed, one in twenty at
most is expected to be none. Servers (all cells of a method at a tensor-parallel size) are judged in the same way among
themselves. A change below `least` is no news, however certain. On fewer launches than an interval needs nothing is
certain: a change is told as *perhaps* where every prompt says so, else as one that cannot be told.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from ddconsole.compare.side import ComparedCell, Figure
from ddconsole.core.figures import percentile
from ddconsole.report.launch_interval import interval_of_ratio, p_of_ratio
from ddconsole.report.statistics import (
    LAUNCHES_FOR_AN_INTERVAL,
    Estimate,
    Observations,
    Sureness,
    median_estimate,
)

FALSE_DISCOVERIES = 0.05
LEAST = 0.01
"""The change from which on it is told, as a share."""
_FEWEST_PROMPTS = 3
"""Prompts that a guess within one launch needs."""


class Verdict(StrEnum):
    """What became of a cell."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    PERHAPS_WORSE = "perhaps worse"
    """Its own interval says so and its server as a whole regressed, though of so many cells it is not certain; or
    every prompt says so on fewer than three launches, which may differ as much."""
    PERHAPS_BETTER = "perhaps better"
    CANNOT_BE_TOLD = "cannot be told"
    """The figure is another one, on fewer launches than an interval needs, and the prompts do not agree on it."""
    UNCHANGED = "unchanged"
    """Within `least`; or the launches have an interval, and it shows no change."""


_PERHAPS = {Verdict.REGRESSED: Verdict.PERHAPS_WORSE, Verdict.IMPROVED: Verdict.PERHAPS_BETTER}

Server: TypeAlias = tuple[str, int]
"""Method and tensor-parallel size."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of one cell in both runs."""

    label: str
    before: ComparedCell
    after: ComparedCell
    old: Estimate
    new: Estimate
    ratio: Estimate
    """Second run over first."""
    p: float | None
    """How often chance alone gives a ratio as far from 1; None below three launches."""
    prompts: int
    """That both have and the ratio is made of; 0 where there is none in common: then it is not paired."""
    verdict: Verdict = Verdict.UNCHANGED

    @property
    def launches(self) -> tuple[int, int]:
        """On each side."""
        return len(self.before.launches), len(self.after.launches)


@dataclass(frozen=True, slots=True)
class ServerDifference:
    """One method at one tensor-parallel size: all its cells together, launch by launch."""

    method: str
    tensor_parallel: int
    ratio: Estimate
    """Geometric mean over the cells."""
    p: float | None
    cells: int
    regressed: int = 0
    """Cells of it that did."""
    improved: int = 0
    verdict: Verdict = Verdict.UNCHANGED

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.method} TP{self.tensor_parallel}"


def difference_of(before: ComparedCell, after: ComparedCell, figure: Figure) -> Difference | None:
    """Compare one cell; None where either side lacks the figure."""
    old, new = before.observed.get(figure.id), after.observed.get(figure.id)
    if old is None or new is None:
        return None
    shared = tuple(key for key in old.keys if key in set(new.keys))
    left, right = (old.for_keys(shared), new.for_keys(shared)) if shared else (old, new)
    before_all, after_all = median_estimate(left), median_estimate(right)
    if before_all is None or after_all is None or min(before_all.value, after_all.value) <= 0:
        return None
    above, below = right.launch_medians(), left.launch_medians()
    certain = min(len(above), len(below)) >= LAUNCHES_FOR_AN_INTERVAL and min(*above, *below) > 0
    value = after_all.value / before_all.value
    return Difference(
        label=before.label,
        before=before,
        after=after,
        old=before_all,
        new=after_all,
        ratio=_interval(value, above, below) if certain else _within_launches(value, left, right, shared),
        p=p_of_ratio(above, below) if certain else None,
        prompts=len(shared),
    )


def is_too_wide(low: float, high: float) -> bool:
    """Whether the range of a ratio reaches a tenth or ten times: in percent it says nothing."""
    return low < 0.1 or high > 10


def judged(
    differences: Sequence[Difference], figure: Figure, least: float = LEAST
) -> tuple[list[Difference], list[ServerDifference]]:
    """The cells with their verdicts, and the servers with theirs; they are judged together, for there are many."""
    by_server: dict[Server, list[Difference]] = {}
    for one in differences:
        by_server.setdefault(one.before.place[:2], []).append(one)
    servers = {server: _together(server, some, figure) for server, some in by_server.items()}
    limit = _largest_p([one.p for one in servers.values() if one.p is not None])
    of_servers = {server: _verdict(one.ratio, one.p, figure, limit, least) for server, one in servers.items()}
    limit = _largest_p([one.p for one in differences if one.p is not None])
    cells = [
        replace(one, verdict=_of_cell(one, figure, limit, least, of_servers[one.before.place[:2]]))
        for one in differences
    ]
    counts = Counter((one.before.place[:2], one.verdict) for one in cells)
    return cells, [
        replace(
            one,
            regressed=counts[server, Verdict.REGRESSED],
            improved=counts[server, Verdict.IMPROVED],
            verdict=of_servers[server],
        )
        for server, one in servers.items()
    ]


def _interval(value: float, above: Sequence[float], below: Sequence[float]) -> Estimate:
    low, high = interval_of_ratio(above, below)
    return Estimate(value, min(low, value), max(high, value), Sureness.INTERVAL)


def _within_launches(value: float, old: Observations, new: Observations, shared: Sequence[object]) -> Estimate:
    """The range in which the prompts' own ratios lie: a spread, for it knows nothing of other launches."""
    if len(shared) < _FEWEST_PROMPTS:
        return Estimate(value)
    ratios = [float(one) for one in _by_key(new) / _by_key(old) if math.isfinite(one)]
    if len(ratios) < _FEWEST_PROMPTS:
        return Estimate(value)
    low, high = percentile(ratios, 0.025), percentile(ratios, 0.975)
    return Estimate(value, min(low, value), max(high, value), Sureness.SPREAD)


def _by_key(observations: Observations) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The median of each prompt over everything."""
    flat = observations.values.reshape(-1, observations.values.shape[2])
    return np.array(
        [np.median(column[~np.isnan(column)]) if (~np.isnan(column)).any() else np.nan for column in flat.T]
    )


def _largest_p(values: Sequence[float]) -> float:
    """Up to which p the cells are found, by Benjamini and Hochberg."""
    found = 0.0
    for number, value in enumerate(sorted(values), start=1):
        if value <= FALSE_DISCOVERIES * number / len(values):
            found = value
    return found


def _of_cell(one: Difference, figure: Figure, limit: float, least: float, server: Verdict) -> Verdict:
    verdict = _verdict(one.ratio, one.p, figure, limit, least)
    if verdict is not Verdict.UNCHANGED or one.p is None:
        return verdict
    alone = _verdict(one.ratio, one.p, figure, FALSE_DISCOVERIES, least)
    return _PERHAPS[alone] if alone is server and alone in _PERHAPS else verdict


def _verdict(ratio: Estimate, p: float | None, figure: Figure, limit: float, least: float) -> Verdict:
    change = ratio.value - 1
    if abs(change) < least:
        return Verdict.UNCHANGED
    verdict = Verdict.IMPROVED if (change > 0) == figure.higher_is_better else Verdict.REGRESSED
    if p is not None:
        return verdict if p <= limit else Verdict.UNCHANGED
    if ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high:
        return Verdict.CANNOT_BE_TOLD
    return _PERHAPS[verdict]


def _together(server: Server, some: Sequence[Difference], figure: Figure) -> ServerDifference:
    """Geometric mean of the cells' ratios; its interval is over launches, each the mean of its cells."""
    value = math.exp(statistics.fmean(math.log(one.ratio.value) for one in some))
    above = _launch_means([(one.after, _on(one, one.after, figure)) for one in some])
    below = _launch_means([(one.before, _on(one, one.before, figure)) for one in some])
    if min(len(above), len(below)) < LAUNCHES_FOR_AN_INTERVAL:
        return ServerDifference(*server, Estimate(value), None, len(some))
    return ServerDifference(*server, _interval(value, above, below), p_of_ratio(above, below), len(some))


def _on(one: Difference, side: ComparedCell, figure: Figure) -> Observations:
    """One side's observations of the prompts that both have."""
    mine = side.observed[figure.id]
    if not one.prompts:
        return mine
    other = one.after if side is one.before else one.before
    theirs = set(other.observed[figure.id].keys)
    return mine.for_keys(tuple(key for key in mine.keys if key in theirs))


def _launch_means(cells: Sequence[tuple[ComparedCell, Observations]]) -> list[float]:
    """For each launch on which all cells were measured, the geometric mean of their medians."""
    medians: list[Mapping[int, float]] = []
    for cell, observations in cells:
        values = observations.launch_medians()
        if len(values) != len(cell.launches) or min(values) <= 0:
            return []
        medians.append(dict(zip(cell.launches, values, strict=True)))
    shared = set.intersection(*(set(one) for one in medians))
    return [math.exp(statistics.fmean(math.log(one[launch]) for one in medians)) for launch in sorted(shared)]
