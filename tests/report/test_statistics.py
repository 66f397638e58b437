import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter

import pytest

from ddconsole.core.figures import output_rate
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.sweep import Deployment, Placement
from ddconsole.report.launch_interval import interval_of_ratio, t_quantile
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
from tests.report.synthetic_launches import (
    Noise,
    experiments,
    naive_rate_bounds,
    naive_speed_up_bounds,
    rate_bounds,
    share_that_holds,
    speed_up_bounds,
)

AR = Deployment("d01", "ar", 1, 1, {}, {}, Placement())
DFLASH = replace(AR, id="d02", method="dflash")


def observed(deployment: Deployment, launches: int) -> Observations:
    records = {number: [records_of(deployment, single(256, 3), number)] for number in range(1, launches + 1)}
    found = observe(records, output_rate)
    assert found is not None
    return found


def test_four_launches_give_the_t_interval_of_their_medians() -> None:
    found = observed(DFLASH, 4)
    estimate = median_estimate(found)
    assert estimate is not None
    assert estimate.sureness is Sureness.INTERVAL
    assert estimate.value == statistics.median(found.known())
    logarithms = [math.log(statistics.median(launch.ravel().tolist())) for launch in found.values]
    centre, reach = statistics.fmean(logarithms), 3.18245 * statistics.stdev(logarithms) / math.sqrt(4)
    assert estimate.low == pytest.approx(math.exp(centre - reach))
    assert estimate.high == pytest.approx(math.exp(centre + reach))


@pytest.mark.parametrize(
    ("freedom", "published"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (10, 2.22814), (120, 1.97993)]
)
def test_quantiles_of_t_are_the_published_ones(freedom: float, published: float) -> None:
    assert t_quantile(freedom) == pytest.approx(published, rel=2e-6)


def test_a_ratio_has_the_degrees_of_freedom_of_welch_and_satterthwaite() -> None:
    """Logarithms (1, 2, 3) and (0, 0, 0): all noise is of one side, so two degrees of freedom and an error of 0.57735.

    With (0, 2, 4) in place of the zeros: variances 1/3 and 4/3, (5/3)^2 / (1/18 + 16/18) = 2.9412 degrees of freedom.
    """
    above = [math.exp(one) for one in (1.0, 2.0, 3.0)]
    low, high = interval_of_ratio(above, [1.0, 1.0, 1.0])
    assert (math.log(low), math.log(high)) == pytest.approx((2 - 4.30265 * 0.57735, 2 + 4.30265 * 0.57735), abs=1e-4)
    low, high = interval_of_ratio(above, [math.exp(one) for one in (0.0, 2.0, 4.0)])
    reach = t_quantile(50 / 17) * math.sqrt(5 / 3)
    assert (math.log(low), math.log(high)) == pytest.approx((-reach, reach), abs=1e-3)
    assert interval_of_ratio([2.0] * 3, [1.0] * 3) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize("shape", [(3, 3, 3), (5, 1, 3, 2, 4)])
def test_intervals_hold_the_truth_as_often_as_they_say(shape: tuple[int, ...]) -> None:
    """93 to 97 %, and three standard errors of so many experiments; requests taken as independent hold it far less."""
    number = 300
    noise = Noise("launches 3 %, requests 2 %", launch=0.03, repetition=0.01, request=0.02)
    found = list(experiments(shape, noise, number))
    doubt = 3 * math.sqrt(0.95 * 0.05 / number)
    for bounds, truth in ((rate_bounds, "rate"), (speed_up_bounds, "speed_up")):
        assert 0.93 - doubt <= share_that_holds(found, bounds, attrgetter(truth)) <= 0.97 + doubt
    for bounds, truth in ((naive_rate_bounds, "rate"), (naive_speed_up_bounds, "speed_up")):
        assert share_that_holds(found[:100], bounds, attrgetter(truth)) < 0.93 - doubt


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
