"""Warming up: once, or until two passes in a row are as fast."""

import asyncio
from collections.abc import Sequence

import pytest
from answers import answer

from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.runner.warm_up import WarmUp, agree, rate_of, warm_up


def passes(rates: Sequence[float | None], until: dict[str, float] | None, stop_after: int = 99) -> WarmUp:
    left = [[] if rate is None else [answer(rate)] for rate in rates]
    sent = 0

    async def one_pass() -> Sequence[RequestRecord]:
        nonlocal sent
        sent += 1
        return left[sent - 1]

    return asyncio.run(warm_up(one_pass, until, lambda: sent >= stop_after))


def test_one_pass_where_nothing_else_is_asked_for() -> None:
    found = passes([606.0], None)
    assert found.rates == pytest.approx((606.0,))
    assert (found.agreed, found.flags()) == (None, ())


def test_passes_go_on_until_two_in_a_row_are_as_fast() -> None:
    """[2.9.10, 5.14: sglang#4773: 1187, 7653 and 10996 tok/s on successive runs; then 10996 and 11300 agree]"""
    found = passes([1187.0, 7653.0, 10996.0, 11300.0], {"agree": 0.05, "most": 5})
    assert found.rates == pytest.approx((1187.0, 7653.0, 10996.0, 11300.0))
    assert found.agreed is True
    assert found.flags() == ()
    assert found.to_json() == {"rates": list(found.rates), "agreed": True}


def test_a_server_that_does_not_settle_is_given_up_and_flagged() -> None:
    found = passes([50.0, 80.0, 60.0], {"agree": 0.05, "most": 3})
    assert found.agreed is False
    assert found.flags() == ("still warming up: after 3 passes the last two gave 80.0 and 60.0 tok/s",)
    silent = passes([None, None], {"agree": 0.05, "most": 2})
    assert silent.flags() == ("still warming up: after 2 passes the last two gave none and none tok/s",)


def test_a_cell_that_is_not_wanted_any_more_ends_it_without_a_flag() -> None:
    assert passes([50.0, 80.0], {"agree": 0.01, "most": 9}, stop_after=2).flags() == ()
    assert passes([], {"agree": 0.01, "most": 9}, stop_after=0).to_json() == {}


def test_the_bound_is_a_share_of_the_faster_pass() -> None:
    assert agree(95.0, 100.0, 0.05)
    assert not agree(94.9, 100.0, 0.05)
    assert not agree(None, 100.0, 1.0)


def test_failed_requests_have_no_rate_and_short_ones_do() -> None:
    records = [answer(50.0), answer(70.0, RequestOutcome.SHORT), answer(9.0, RequestOutcome.FAILED)]
    assert rate_of(records) == pytest.approx(60.0)
