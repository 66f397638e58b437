import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ddconsole.core.figures import output_rate
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.sweep import Deployment, Placement
from ddconsole.report.statistics import (
    Estimate,
    Observations,
    Sureness,
    certified_percentile,
    median_estimate,
    observe,
    ratio_estimate,
)
from tests.report.sample_runs import records_of, single

AR = Deployment("d01", "ar", 1, 1, {}, {}, Placement())
DFLASH = replace(AR, id="d02", method="dflash")


def observed(deployment: Deployment, launches: int) -> Observations:
    records = {number: [records_of(deployment, single(256, 3), number)] for number in range(1, launches + 1)}
    found = observe(records, output_rate)
    assert found is not None
    return found


def naive_interval(launches: Sequence[Sequence[Sequence[float]]], resamples: int = 4000) -> tuple[float, float]:
    dice = random.Random(1)
    medians = []
    for _ in range(resamples):
        values: list[float] = []
        for _ in launches:
            launch = dice.choice(launches)
            for _ in launch:
                repetition = dice.choice(launch)
                values.extend(dice.choice(repetition) for _ in repetition)
        medians.append(statistics.median(values))
    medians.sort()
    return medians[int(0.025 * resamples)], medians[int(0.975 * resamples)]


def test_three_launches_give_the_interval_that_plain_loops_give() -> None:
    found = observed(DFLASH, 4)
    estimate = median_estimate(found)
    assert estimate is not None
    assert estimate.sureness is Sureness.INTERVAL
    low, high = naive_interval(found.values.tolist())
    assert estimate.value == statistics.median(found.known())
    assert estimate.low is not None
    assert estimate.high is not None
    tolerance = 0.15 * (high - low)
    assert estimate.low == pytest.approx(low, abs=tolerance)
    assert estimate.high == pytest.approx(high, abs=tolerance)


@pytest.mark.parametrize("launches", [1, 2])
def test_fewer_launches_give_a_spread_and_no_interval(launches: int) -> None:
    estimate = median_estimate(observed(DFLASH, launches))
    assert estimate is not None
    assert estimate.sureness is Sureness.SPREAD
    assert estimate.low is not None
    assert estimate.low < estimate.value


def test_one_request_gives_neither() -> None:
    found = observe({1: [records_of(AR, single(256, 1), 1)[:1]]}, output_rate)
    estimate = median_estimate(found)
    assert estimate is not None
    assert (estimate.low, estimate.sureness) == (None, Sureness.NONE)


def test_a_speed_up_paired_by_prompt_is_surer_than_its_two_rates() -> None:
    fast, slow = observed(DFLASH, 3), observed(AR, 3)
    ratio, above, below = ratio_estimate(fast, slow), median_estimate(fast), median_estimate(slow)
    assert ratio is not None
    assert above is not None
    assert below is not None
    assert ratio.value == pytest.approx(above.value / below.value)
    assert ratio.half_width is not None
    assert above.half_width is not None
    assert below.half_width is not None
    unpaired = ratio.value * (above.half_width / above.value + below.half_width / below.value)
    assert ratio.half_width < 0.6 * unpaired


def test_a_speed_up_has_no_interval_where_one_side_has_two_launches_or_no_prompt_is_shared() -> None:
    three, two = observed(DFLASH, 3), observed(AR, 2)
    assert ratio_estimate(three, two) == Estimate(statistics.median(three.known()) / statistics.median(two.known()))
    other = observed(AR, 3)
    renamed = Observations(other.values, other.repetitions, tuple(("other", number) for number in range(5)))
    found = ratio_estimate(three, renamed)
    assert found is not None
    assert found.low is None


def test_failed_requests_and_missing_repetitions_leave_holes_that_do_not_count() -> None:
    records = list(records_of(DFLASH, single(256, 3), 1))
    records[0] = replace(records[0], outcome=RequestOutcome.FAILED)
    launches: dict[int, list[Sequence[RequestRecord]]] = {1: [records]}
    launches |= {number: [records_of(DFLASH, single(256, 2), number)] for number in (2, 3)}
    found = observe(launches, output_rate)
    assert found is not None
    assert found.values.shape == (3, 3, 5)
    assert len(found.known()) == 14 + 10 + 10
    estimate = median_estimate(found)
    assert estimate is not None
    assert estimate.low is not None
    assert estimate.high is not None
    assert estimate.low < estimate.value < estimate.high


def test_the_same_data_give_the_same_interval() -> None:
    assert median_estimate(observed(DFLASH, 3)) == median_estimate(observed(DFLASH, 3))


@pytest.mark.parametrize(("fraction", "floor"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662)])
def test_percentiles_need_their_sample(fraction: float, floor: int) -> None:
    assert certified_percentile([1.0] * (floor - 1), fraction) is None
    assert certified_percentile([1.0] * floor, fraction) == 1.0


def test_overlap() -> None:
    assert Estimate(1.0, 0.9, 1.1).overlaps(Estimate(1.2, 1.05, 1.3))
    assert not Estimate(1.0, 0.9, 1.1).overlaps(Estimate(1.2, 1.15, 1.3))
    assert Estimate(1.0).overlaps(Estimate(1.1, 0.9, 1.2))
