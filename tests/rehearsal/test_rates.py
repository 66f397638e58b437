from itertools import pairwise

import pytest

from ddconsole.rehearsal.rates import Method, Speed

AR = Method("ar")
DFLASH = Method("dflash", 16)


def ddtree(budget: int) -> Method:
    return Method("ddtree", budget + 1)


def one_rank(method: Method) -> Speed:
    return Speed(method, 1, crosses_numa=False)


@pytest.mark.parametrize(
    ("method", "rate", "acceptance"), [(AR, 28.4, 1.0), (DFLASH, 100.1, 4.81), (ddtree(15), 124.2, 5.6)]
)
def test_one_rank_runs_at_what_the_operator_measured(method: Method, rate: float, acceptance: float) -> None:
    speed = one_rank(method)
    assert speed.request_rate() == pytest.approx(rate, rel=0.002)
    assert speed.acceptance_length == pytest.approx(acceptance, rel=0.002)


def test_small_budgets_are_somewhat_slower_and_16_is_near_15() -> None:
    best = one_rank(ddtree(15)).request_rate()
    assert 0.85 * best < one_rank(ddtree(8)).request_rate() < one_rank(ddtree(12)).request_rate() < best
    assert one_rank(ddtree(16)).request_rate() == pytest.approx(best, rel=0.02)


@pytest.mark.parametrize("budget", [32, 64])
def test_leaking_budgets_are_below_dflash_on_one_rank_only(budget: int) -> None:
    leaking = one_rank(ddtree(budget))
    assert leaking.request_rate() < one_rank(DFLASH).request_rate()
    assert leaking.acceptance_length < one_rank(DFLASH).acceptance_length
    assert Speed(ddtree(budget), 4, crosses_numa=False).acceptance_length > 5.6


@pytest.mark.parametrize("method", [AR, DFLASH, ddtree(8), ddtree(15), ddtree(64)])
def test_eight_ranks_on_two_domains_are_behind_four_on_one(method: Method) -> None:
    four = Speed(method, 4, crosses_numa=False)
    eight = Speed(method, 8, crosses_numa=True)
    assert one_rank(method).request_rate() < eight.request_rate() < four.request_rate()
    assert Speed(method, 4, crosses_numa=True).request_rate() < four.request_rate()


@pytest.mark.parametrize("method", [AR, DFLASH, ddtree(15)])
def test_more_requests_give_more_tokens_but_less_than_in_proportion(method: Method) -> None:
    totals = [running * one_rank(method).request_rate(running) for running in (1, 2, 4, 8)]
    assert all(more > less for less, more in pairwise(totals))
    assert all(more < 2 * less for less, more in pairwise(totals))


def test_a_longer_prompt_takes_longer_and_more_ranks_shorten_it() -> None:
    speed = one_rank(AR)
    assert speed.prefill_seconds(100) + speed.first_token_overhead == pytest.approx(0.061, abs=0.002)
    assert speed.prefill_seconds(8000) > 10 * speed.prefill_seconds(100)
    assert Speed(AR, 4, crosses_numa=False).prefill_seconds(8000) < speed.prefill_seconds(8000)
