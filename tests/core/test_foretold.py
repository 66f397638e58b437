"""What a run will still take: rounds, starts, and the pace of what was not measured yet."""

import math
import statistics
from dataclasses import replace
from typing import Any

import pytest
from journals import cell, created, deployment, entries

from ddconsole.core import events as ev
from ddconsole.core.duration import estimates_for, remaining
from ddconsole.core.fold import fold
from ddconsole.core.foretold_rounds import (
    drift_checks_left,
    expected,
    expected_most,
    games,
    rounds_foretold,
    starts_for_canaries,
)
from ddconsole.core.pace import Seen, fit_pace
from ddconsole.core.repeating import half_width
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Speculative, to_json


def sweep(*events: ev.Event, rounds: int = 1, **protocol: Any) -> RunState:
    """The baseline and two methods with two cells each: c001 to c006, one second an entry."""
    start: list[ev.Event] = [replace(created(), protocol={"retries": 2, **protocol})]
    for number, name in enumerate(("ar", "dflash", "tree"), 1):
        one = deployment(f"d0{number}", name)
        one = one if name == "ar" else replace(one, speculative=Speculative(name, block_size=16))
        start.append(ev.DeploymentAdded(to_json(one)))
        names = [f"c00{2 * number - 2 + place}" for place in (1, 2)]
        start += [
            ev.CellAdded(to_json(cell(name, one.id, rounds, max_tokens=n)))
            for name, n in zip(names, (32, 64), strict=True)
        ]
    return after(fold(entries(start)), *events)


def after(state: RunState, *events: ev.Event, at: float | None = None) -> RunState:
    return fold(entries(events, state.seq + 1, state.at + 1 if at is None else at), state)


def launch(state: RunState, deployment_id: str, rates: dict[str, float], seconds: float = 10.0) -> RunState:
    """A launch that takes 20 s to start, these cells at so many seconds each, and 4 s to go."""
    number = len(state.launches) + 1
    state = after(state, ev.LaunchPlanned(number, deployment_id, 1))
    state = after(state, ev.LaunchStarting(number, "load weights"), at=state.at)
    state = after(state, ev.LaunchReady(number, start_seconds=20.0), at=state.at + 20)
    for name, rate in rates.items():
        attempt = len(state.cells[name].attempts) + 1
        state = after(state, ev.AttemptStarted(name, attempt, number, attempt, 0), at=state.at)
        done = ev.AttemptDone(name, attempt, number, "", "f", {"output_rate": rate})
        state = after(state, done, at=state.at + seconds)
    state = after(state, ev.LaunchStopping(number, "asked", 0.0), at=state.at)
    return after(state, ev.LaunchGone(number), at=state.at + 4)


def test_rounds_that_a_narrow_interval_needs_are_those_that_the_rule_took_when_played() -> None:
    """Half the interval is sinh(t s / sqrt n) on the mean: a quarter of the noise asked for needs ten, a tenth more."""
    quiet, middle, loud = (statistics.fmean(games(noise, 10)) for noise in (0.1, 0.8, 4.0))
    assert quiet == 3.0, "3 launches give 0.25 of what is asked"
    assert 3.5 < middle < 7
    assert loud > 9
    assert games(0.8, 10) == games(0.8, 10)
    assert half_width([math.exp(one) for one in (-0.01, 0.0, 0.01)]) == pytest.approx(0.02484, abs=1e-5)


def test_rounds_are_foretold_by_the_noise_and_by_what_is_done() -> None:
    repeat = {"until": 0.03, "most": 8}
    begun = sweep(repeat=repeat)
    assert set(rounds_foretold(begun).values()) == {(1.0, 1.0, 1.0)}
    noisy = launch(launch(sweep(rounds=3, repeat=repeat), "d01", {"c001": 50.0, "c002": 50.0}), "d01", {"c001": 51.5})
    told = {name: expected(chances) for name, chances in rounds_foretold(noisy).items()}
    # Two rates 3 % apart: stdev 2.1 %, 0.7 of what is asked for. c001 has two launches, c002 one, the others none.
    assert told["c003"] == pytest.approx(statistics.fmean(games(math.exp(round(math.log(0.6967) * 8) / 8), 8)))
    assert told["c001"] == pytest.approx(told["c003"] - 2)
    assert told["c002"] == pytest.approx(told["c003"] - 1)
    assert rounds_foretold(sweep(rounds=2)) == dict.fromkeys(begun.cells, (1.0, 1.0))


def test_a_server_starts_as_often_as_its_cell_with_most_rounds() -> None:
    """Two cells, each with a second round by even chances: three times in four one of them at least has one."""
    assert expected_most([(1.0, 0.5), (1.0, 0.5)]) == pytest.approx(1.75)
    assert expected_most([(1.0,), (1.0, 1.0, 0.5)]) == pytest.approx(2.5)
    assert expected_most([]) == 0


def test_canaries_cost_one_more_start_but_the_last_of_a_size() -> None:
    state = sweep(prune={"below": 0.8})
    assert starts_for_canaries(state) in ({"d02": 1}, {"d03": 1})
    assert starts_for_canaries(sweep()) == {}


def test_drift_checks_that_are_still_to_come_are_counted() -> None:
    state = sweep(baseline_every=2)
    assert drift_checks_left(state, rounds_foretold(state)) == {"c001": 2}
    assert drift_checks_left(sweep(), {}) == {}


def test_what_goes_by_between_launches_is_learned() -> None:
    """A start of 20 s, two cells of 10 s, 4 s until it is gone and 1 s until the next is planned: 5 s around cells."""
    state = launch(launch(sweep(), "d01", {"c001": 50.0, "c002": 50.0}), "d02", {"c003": 90.0, "c004": 90.0})
    estimates = estimates_for(state)
    assert estimates.around_cells == pytest.approx(5, abs=1)
    assert estimates.launch_seconds(state.deployments["d03"]) == pytest.approx(25, abs=1)
    left = remaining(state, estimates).total
    # Both cells of the last method took 10 s with the others.
    assert left == pytest.approx(20 + 25, abs=1.5)


def seen(method: str, size: int, place: str, rate: float) -> Seen:
    return Seen(method, 1.0 if method == "ar" else 2.5, size, place, math.log(rate))


def test_the_pace_of_what_was_not_measured_is_what_the_method_gained_elsewhere_and_the_others_here() -> None:
    """`tree` is 3 times as fast as `ar` at one size; at the other `ar` is twice as fast: 6 is foretold."""
    found = [seen("ar", 1, p, 1.0) for p in "ab"] + [seen("tree", 1, p, 3.0) for p in "ab"]
    found += [seen("ar", 4, p, 2.0) for p in "ab"]
    pace = fit_pace(found)
    told = math.exp(pace.beyond("tree", 4, "a", 2.5))
    assert told == pytest.approx(6.0, rel=0.1)
    unseen = math.exp(pace.beyond("new", 1, "a", 2.5))
    assert unseen == pytest.approx(3.0, rel=0.1), "as fast as the speculative methods that were seen"
    assert math.exp(fit_pace([]).beyond("tree", 1, "a", 2.5)) == pytest.approx(2.5)


def test_a_slow_place_is_slow_for_every_method() -> None:
    found = [seen("ar", 1, "short", 1.0), seen("ar", 1, "long", 0.5), seen("tree", 1, "short", 2.5)]
    told = math.exp(fit_pace(found).beyond("tree", 1, "long", 2.5))
    assert told == pytest.approx(1.25, rel=0.2), "drawn a little towards what was assumed"
