"""Synthetic experiments whose truth is known: how often an interval holds it.

The logarithm of a request's rate is its prompt's own, plus noise of the launch, of the repetition and of the request.
The prompts are the same in every launch, as in a sweep. The truth is what a launch without noise of its own gives: the
median of the mixture that the prompts make.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from ddconsole.report.statistics import Estimate, Floats, Observations, median_estimate, ratio_estimate

PROMPTS = 5
Bounds = tuple[float, float]


@dataclass(frozen=True)
class Noise:
    """Standard deviations of the logarithm of the rate, and of the prompts' own."""

    name: str
    launch: float
    repetition: float
    request: float
    prompt: float = 0.10
    heavy: bool = False
    """The launches' noise has the tails of Student's t with four degrees of freedom."""


@dataclass(frozen=True)
class Experiment:
    """A cell and its baseline on the same prompts, with the truths."""

    cell: Observations
    baseline: Observations
    rate: float
    speed_up: float


def experiments(shape: Sequence[int], noise: Noise, number: int, seed: int = 7) -> Iterator[Experiment]:
    """`number` experiments; `shape` gives the repetitions of each launch. The baseline has them in reverse order."""
    dice = np.random.default_rng(seed)
    for _ in range(number):
        plain = dice.normal(np.log(30.0), noise.prompt, PROMPTS)
        gained = plain + dice.normal(np.log(2.0), noise.prompt / 2, PROMPTS)
        cell, baseline = _observe(dice, gained, shape, noise), _observe(dice, plain, shape[::-1], noise)
        rate = _truth(gained, noise)
        yield Experiment(cell, baseline, rate, rate / _truth(plain, noise))


def rate_bounds(one: Experiment) -> Bounds:
    """The interval of the cell's rate."""
    return _bounds(median_estimate(one.cell))


def speed_up_bounds(one: Experiment) -> Bounds:
    """The interval of the speed-up."""
    return _bounds(ratio_estimate(one.cell, one.baseline))


def naive_rate_bounds(one: Experiment) -> Bounds:
    """As if all requests were independent: a percentile bootstrap over them."""
    return _quantiles(_request_medians(one.cell))


def naive_speed_up_bounds(one: Experiment) -> Bounds:
    """The same of the speed-up, each prompt drawn on both sides together."""
    return _quantiles(_request_medians(one.cell) / _request_medians(one.baseline))


def bootstrap_rate_bounds(one: Experiment) -> Bounds:
    """A percentile bootstrap of all three levels."""
    return _quantiles(_three_levels(one.cell, 1))


def bootstrap_speed_up_bounds(one: Experiment) -> Bounds:
    """The same of the speed-up."""
    return _quantiles(_three_levels(one.cell, 1) / _three_levels(one.baseline, 2))


def share_that_holds(
    found: Sequence[Experiment], bounds: Callable[[Experiment], Bounds], truth: Callable[[Experiment], float]
) -> float:
    """The share of experiments whose interval holds the truth."""
    held = 0
    for one in found:
        low, high = bounds(one)
        held += low <= truth(one) <= high
    return held / len(found)


_RESAMPLES = 200


def _observe(dice: np.random.Generator, prompts: Floats, shape: Sequence[int], noise: Noise) -> Observations:
    values = np.full((len(shape), max(shape), PROMPTS), np.nan)
    for launch, repetitions in enumerate(shape):
        shift = dice.standard_t(4) / np.sqrt(2) if noise.heavy else dice.normal()
        own = dice.normal(0.0, noise.repetition, (repetitions, 1))
        rest = dice.normal(0.0, noise.request, (repetitions, PROMPTS))
        values[launch, :repetitions] = np.exp(prompts + noise.launch * shift + own + rest)
    keys = tuple((f"p{number}", 0) for number in range(PROMPTS))
    return Observations(values, np.array(shape, dtype=np.intp), keys)


def _truth(prompts: Floats, noise: Noise) -> float:
    within = NormalDist(0.0, float(np.hypot(noise.repetition, noise.request)))
    low, high = float(prompts.min()) - 1.0, float(prompts.max()) + 1.0
    for _ in range(40):
        middle = (low + high) / 2
        below = sum(within.cdf(middle - float(one)) for one in prompts) / PROMPTS
        low, high = (middle, high) if below < 0.5 else (low, middle)
    return float(np.exp(low))


def _bounds(estimate: Estimate | None) -> Bounds:
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low, estimate.high


def _quantiles(resampled: Floats) -> Bounds:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(low), float(high)


def _request_medians(observations: Observations) -> Floats:
    known = np.array(observations.known())
    drawn = np.random.default_rng(1).integers(0, len(known), (_RESAMPLES, len(known)))
    medians: Floats = np.median(known[drawn], axis=1)
    return medians


def _three_levels(observations: Observations, stream: int) -> Floats:
    dice = np.random.default_rng([1, stream])
    values, counts = observations.values, observations.repetitions
    launches, repetitions, keys = values.shape
    launch = dice.integers(0, launches, (_RESAMPLES, launches, 1, 1))
    within = (dice.random((_RESAMPLES, launches, repetitions, 1)) * counts[launch]).astype(np.intp)
    request = dice.integers(0, keys, (_RESAMPLES, launches, repetitions, keys))
    medians: Floats = np.median(values[launch, within, request].reshape(_RESAMPLES, -1), axis=1)
    return medians
