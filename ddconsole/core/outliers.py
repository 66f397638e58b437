"""Values far from the rest: marked, never dropped."""

import math
import statistics
from collections.abc import Sequence

from ddconsole.core.figures import output_rate, percentile
from ddconsole.core.records import RequestOutcome, RequestRecord

FENCE = 3.0
"""Interquartile ranges beyond the quartiles (Tukey's outer fences, Exploratory Data Analysis, 1977)."""
LEAST_VALUES = 8
LEAST_SHARE = 0.05
"""A value nearer to the median than that is no outlier, however close together the others are."""


def outliers(values: Sequence[float]) -> tuple[int, ...]:
    """Places of the outliers among positive values, which vary in proportion; none among fewer than eight."""
    if len(values) < LEAST_VALUES or min(values) <= 0:
        return ()
    logarithms = [math.log(value) for value in values]
    low, high = percentile(logarithms, 0.25), percentile(logarithms, 0.75)
    middle, reach = statistics.median(logarithms), FENCE * (high - low)
    return tuple(
        place
        for place, one in enumerate(logarithms)
        if not low - reach <= one <= high + reach and abs(math.expm1(one - middle)) > LEAST_SHARE
    )


def outlying_requests(records: Sequence[RequestRecord]) -> tuple[int, ...]:
    """Indices of requests whose rate lies far from that of their prompt's other requests in the attempt.

    A prompt's own pace is no outlier: what counts is the ratio to the median of its prompt, over all prompts together.
    """
    rates = [(one, output_rate(one)) for one in records if one.outcome is RequestOutcome.OK]
    known = [(one, rate) for one, rate in rates if rate is not None]
    by_prompt: dict[str, list[float]] = {}
    for one, rate in known:
        by_prompt.setdefault(one.prompt, []).append(rate)
    compared = [(one, rate) for one, rate in known if len(by_prompt[one.prompt]) > 2]
    places = outliers([rate / statistics.median(by_prompt[one.prompt]) for one, rate in compared])
    return tuple(sorted(compared[place][0].index for place in places))
