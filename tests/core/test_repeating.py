"""A cell is measured on further launches until its interval is narrow enough, or the launches are used up."""

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
from journals import cell, created, deployment, entries, launched

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.pruning import prunings
from ddconsole.core.repeating import MOST_LAUNCHES, half_width, repetitions
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import next_launch
from ddconsole.core.sweep import to_json
from ddconsole.report.launch_interval import interval_of


def sweep(rates: Sequence[float], repeat: object = None, rounds: int = 1) -> RunState:
    """One cell, measured at these rates on a launch each."""
    protocol = {"retries": 2, "repeat": repeat or {"until": 0.03, "most": 5}}
    state = fold(
        entries(
            [
                replace(created(), protocol=protocol),
                ev.DeploymentAdded(to_json(deployment())),
                ev.CellAdded(to_json(cell(rounds=rounds))),
            ]
        )
    )
    return measure(state, rates)


def measure(state: RunState, rates: Sequence[float]) -> RunState:
    for rate in rates:
        number = len(state.launches) + 1
        state = after(
            state,
            *launched(number),
            ev.AttemptStarted("c001", number, number, number, 0),
            ev.AttemptDone("c001", number, number, "0" * 64, "f", {"output_rate": rate}),
            ev.LaunchStopping(number, "asked", 0.0),
            ev.LaunchGone(number),
        )
        state = after(state, *repetitions(state))
    return state


def after(state: RunState, *events: ev.Event) -> RunState:
    return fold(entries(events, state.seq + 1), state)


@pytest.mark.parametrize("number", range(3, MOST_LAUNCHES + 1))
def test_the_interval_is_the_one_of_the_report(number: int) -> None:
    rates = [50.0 + 1.7 * ((7 * n) % 5) for n in range(number)]
    low, high = interval_of(rates)
    centre = math.exp(math.log(low * high) / 2)
    width = half_width(rates)
    assert width is not None
    assert width == pytest.approx((high - low) / 2 / centre, rel=1e-4)


def test_fewer_than_three_launches_have_no_interval() -> None:
    assert half_width([50.0, 50.1]) is None


def test_one_launch_becomes_three_and_stops_there_when_they_agree() -> None:
    one = sweep([50.0])
    assert isinstance(one.cells["c001"].state, st.Pending)
    due = next_launch(one)
    assert due is not None
    assert (due.round, due.number) == (2, 2)
    three = measure(one, [50.1, 50.2])
    assert isinstance(three.cells["c001"].state, st.Done)
    assert next_launch(three) is None


def test_noise_goes_on_to_the_most_and_says_why() -> None:
    noisy = sweep([50.0, 55.0, 45.0])
    assert isinstance(noisy.cells["c001"].state, st.Pending)
    ended = measure(noisy, [60.0, 40.0])
    assert isinstance(ended.cells["c001"].state, st.Done)
    assert len(ended.cells["c001"].done_attempts()) == 5
    done = fold(entries([ev.RunPaused("me", "")], noisy.seq + 1), noisy)
    assert repetitions(done) == []
    state = sweep([50.0, 55.0], rounds=3)
    number = 3
    state = after(
        state,
        *launched(number),
        ev.AttemptStarted("c001", 3, 3, 3, 0),
        ev.AttemptDone("c001", 3, 3, "0" * 64, "f", {"output_rate": 45.0}),
    )
    width = half_width([50.0, 55.0, 45.0])
    assert repetitions(state) == [
        ev.CellsRepeated(("c001",), f"its interval is ±{width:.1%} over 3 launches, asked is ±3.0% (at most 5)")
    ]


def test_without_the_protocol_and_without_a_rate_nothing_is_repeated() -> None:
    assert repetitions(sweep([50.0], repeat="no")) == []
    assert isinstance(sweep([0.0]).cells["c001"].state, st.Done)
    assert prunings(sweep([50.0])) == []
