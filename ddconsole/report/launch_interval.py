"""95 % intervals over launches: Student's t on one logarithm for each launch, Welch's t for the ratio of two sides.

A launch is what repeats independently: its requests share one server start, one memory layout, one clock of the GPU.
So each launch counts as one value, the median of its requests, and the interval is the t interval of these values
(Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM 2013, section 5: a random effects model, of which
only the topmost level enters). A percentile bootstrap of three to five launches is too narrow: it cannot draw what it
has not seen (Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69, 2015, section
4.2). Logarithms, because rates are noisy in proportion and a ratio of rates is a difference of them (Fleming and
Wallace, CACM 29, 1986). `tests/benchmarks/bench_intervals.py` measures how often the intervals hold the truth.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.95
_ANGLES = 8193
"""Points of the integral below: quantiles are right to six digits from one degree of freedom to a thousand."""


@lru_cache(maxsize=256)
def t_quantile(freedom: float) -> float:
    """How many standard errors the central 95 % of Student's t reach, at any degrees of freedom from 1 on.

    With t = sqrt(freedom) tan(angle) the density is cos(angle) to the power of (freedom - 1), on a finite range.
    """
    angles = np.linspace(0.0, math.pi / 2, _ANGLES)
    density = np.cos(angles) ** (freedom - 1.0)
    area = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    angle = float(np.interp(CONFIDENCE * area[-1], area, angles))
    return math.sqrt(freedom) * math.tan(angle)


@lru_cache(maxsize=4096)
def p_of_t(errors: float, freedom: float) -> float:
    """How often chance alone gives a Student's t that is so many standard errors or more away from 0, to either side.

    The integral is that of `t_quantile`, from the far end, so that small values keep their digits.
    """
    angle = math.atan(abs(errors) / math.sqrt(freedom))
    rest = np.linspace(angle, math.pi / 2, _ANGLES)
    whole = np.linspace(0.0, math.pi / 2, _ANGLES)
    tail, all_of_it = (float(np.trapezoid(np.cos(angles) ** (freedom - 1.0), angles)) for angles in (rest, whole))
    return min(1.0, tail / all_of_it)


def interval_of(launches: Sequence[float]) -> tuple[float, float]:
    """The interval of what a launch gives typically.

    Args:
        launches: one positive value for each launch, at least two.
    """
    centre, error, freedom = _summary(launches)
    reach = t_quantile(freedom) * error
    return math.exp(centre - reach), math.exp(centre + reach)


def interval_of_ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float]:
    """The interval of the ratio of what a launch gives typically on two sides, whose launches are independent.

    Degrees of freedom by Welch and Satterthwaite: neither side's noise is taken for the other's.

    Args:
        above: one positive value for each launch, at least two.
        below: the same of the other side.
    """
    difference, error, freedom = _summary_of_ratio(above, below)
    reach = t_quantile(freedom) * error if error > 0 else 0.0
    return math.exp(difference - reach), math.exp(difference + reach)


def p_of_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """How often chance alone puts the ratio of two equal sides as far from 1, by the t of `interval_of_ratio`.

    Args:
        above: one positive value for each launch, at least two.
        below: the same of the other side.
    """
    difference, error, freedom = _summary_of_ratio(above, below)
    if error > 0:
        return p_of_t(difference / error, freedom)
    return 1.0 if difference == 0 else 0.0


def _summary_of_ratio(above: Sequence[float], below: Sequence[float]) -> tuple[float, float, float]:
    """Difference of the logarithms' means, its standard error, and the degrees of freedom."""
    centre, error, freedom = _summary(above)
    other_centre, other_error, other_freedom = _summary(below)
    squared = error**2 + other_error**2
    if squared == 0:
        return centre - other_centre, 0.0, 1.0
    joint = squared**2 / (error**4 / freedom + other_error**4 / other_freedom)
    return centre - other_centre, math.sqrt(squared), round(joint, 3)


def _summary(launches: Sequence[float]) -> tuple[float, float, int]:
    """Mean of the logarithms, its standard error, and the degrees of freedom."""
    logarithms = np.log(np.asarray(launches, dtype=np.float64))
    error = float(logarithms.std(ddof=1)) / math.sqrt(len(launches))
    return float(logarithms.mean()), error, len(launches) - 1
