"""The baseline is measured again as the sweep goes on, and what that says of the machine."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from journals import cell, created, deployment, entries

from ddconsole.commands.cells import drift_lines
from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.cell_notes import doubts, measurement_lines
from ddconsole.core.drift import baseline_drift, drift_checks, drift_in_words
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import cells_of_launch, next_launch
from ddconsole.core.student_t import t_95
from ddconsole.core.sweep import to_json
from ddconsole.report.launch_interval import t_quantile


def sweep(cells: int, rounds: int = 1, **protocol: Any) -> RunState:
    """The baseline with two cells, c001 and c002, and another method with so many."""
    start: list[ev.Event] = [
        replace(created(), protocol={"retries": 2, **protocol}),
        ev.DeploymentAdded(to_json(deployment("d01", "ar"))),
        ev.DeploymentAdded(to_json(deployment("d02", "tree"))),
        ev.CellAdded(to_json(cell("c001", "d01", rounds))),
        ev.CellAdded(to_json(cell("c002", "d01", rounds, max_tokens=128))),
        *(ev.CellAdded(to_json(cell(f"c{n:03}", "d02", rounds, max_tokens=n))) for n in range(3, 3 + cells)),
    ]
    return fold(entries(start))


def after(state: RunState, *events: ev.Event, hours: float = 0.0) -> RunState:
    return fold(entries(events, state.seq + 1, state.at + 1 + hours * 3600), state)


def launch(state: RunState, rate: float = 50.0, hours: float = 0.0) -> tuple[RunState, str]:
    """The launch that is due, with all its cells; what was measured: `d01 c001 c002`."""
    due = next_launch(state)
    assert due is not None
    state = after(state, ev.LaunchPlanned(due.number, due.deployment, due.round), hours=hours)
    state = after(state, ev.LaunchStarting(due.number, "load"), ev.LaunchReady(due.number))
    names = []
    for wanted in cells_of_launch(state, state.launches[due.number]):
        names.append(wanted.cell.id)
        figures = {"output_rate": rate}
        state = after(
            state,
            ev.AttemptStarted(wanted.cell.id, wanted.attempt, due.number, wanted.round, 0),
            ev.AttemptDone(wanted.cell.id, wanted.attempt, due.number, "0" * 64, "f", figures),
        )
        state = after(state, *drift_checks(state))
    return after(state, ev.LaunchStopping(due.number, "asked", 0.0), ev.LaunchGone(due.number)), " ".join(names)


def test_after_so_many_cells_the_baselines_first_cell_comes_again_at_the_next_change_of_servers() -> None:
    state = sweep(4, baseline_every=2)
    said = []
    while next_launch(state) is not None:
        state, names = launch(state)
        said.append(names)
    assert said == ["c001 c002", "c003 c004 c005 c006", "c001"], "no server is stopped for it"
    assert len(state.cells["c001"].done_attempts()) == 2
    assert all(isinstance(row.state, st.Done) for row in state.cells.values())


def test_fewer_cells_are_no_reason_and_nor_is_a_plan_that_does_not_ask() -> None:
    for state in (sweep(4, baseline_every=5), sweep(4)):
        after_all, _ = launch(launch(state)[0])
        assert next_launch(after_all) is None


def test_a_round_that_is_still_to_come_is_brought_forward_and_none_is_added() -> None:
    state = sweep(2, rounds=2, baseline_every=1)
    said = []
    while next_launch(state) is not None:
        state, names = launch(state)
        said.append(names)
    assert said == ["c001 c002", "c003 c004", "c001 c002", "c003 c004", "c001"]
    assert state.cells["c002"].cell.rounds == 2
    assert state.cells["c001"].cell.rounds == 3


def test_a_check_says_why() -> None:
    state, _ = launch(sweep(3, baseline_every=2))
    due = next_launch(state)
    assert due is not None
    state = after(state, ev.LaunchPlanned(2, "d02", 1), ev.LaunchStarting(2, "load"), ev.LaunchReady(2))
    for number, name in enumerate(("c003", "c004")):
        assert drift_checks(state) == [], number
        state = after(state, ev.AttemptStarted(name, 1, 2, 1, 0), ev.AttemptDone(name, 1, 2, "", "f", {}))
    because = "2 cells of other methods since it was measured last: to see drift"
    (check,) = drift_checks(state)
    assert check == ev.CellsRepeated(("c001",), because, sooner=True)
    assert drift_checks(after(state, check)) == [], "it is asked for once"
    assert drift_checks(after(state, ev.RunPaused("me", ""))) == []


def drifting(rates: Sequence[float], every: float = 1.0) -> RunState:
    """The baseline alone, one launch every so many hours."""
    state = sweep(0, rounds=len(rates))
    for rate in rates:
        state, _ = launch(state, rate, every)
    return state


def test_the_drift_is_the_line_and_its_interval_that_of_the_slope() -> None:
    """By hand: logarithms 4.00, 3.99, 3.97, 3.96 at 0, 1, 2, 3 h.

    Mean time 1.5, sum of squares 5; slope = (-1.5 * 4.00 - 0.5 * 3.99 + 0.5 * 3.97 + 1.5 * 3.96) / 5 = -0.014 an hour,
    so -0.042 over three hours. Residuals of 3.98 + -0.014 (t - 1.5): -0.001, 0.003, -0.003, 0.001: squares 2.0e-5;
    over two degrees of freedom 1.0e-5; error of the slope sqrt(1.0e-5 / 5) = 0.0014142; t(2) = 4.30265: 0.0060849 an
    hour, 0.018255 over three.
    """
    state = drifting([math.exp(4.00), math.exp(3.99), math.exp(3.97), math.exp(3.96)])
    drift = baseline_drift(state)[0]
    assert drift.cell == "c001"
    assert drift.hours == pytest.approx(3, abs=0.02)
    assert drift.change == pytest.approx(math.expm1(-0.042), abs=1e-4)
    assert drift.low == pytest.approx(math.expm1(-0.042 - 0.018255), abs=2e-4)
    assert drift.high == pytest.approx(math.expm1(-0.042 + 0.018255), abs=2e-4)
    assert drift.beyond
    assert "-4.1% (95 % interval -5.8% to -2.3%): more than noise between launches" in drift_in_words(drift)


def test_noise_without_a_trend_two_launches_and_a_sure_but_tiny_change_are_no_drift() -> None:
    assert not baseline_drift(drifting([50.0, 51.0, 49.5, 50.4]))[0].beyond
    two = baseline_drift(drifting([50.0, 40.0]))[0]
    assert (two.low, two.high, two.beyond) == (None, None, False)
    assert drift_in_words(two).endswith("-20.0% (two launches tell no interval)")
    assert not baseline_drift(drifting([50.0, 50.1, 50.2, 50.3, 50.4]))[0].beyond
    assert baseline_drift(drifting([50.0])) == ()


def test_every_cell_of_that_size_says_that_the_baseline_drifted() -> None:
    state = drifting([50.0, 49.0, 48.1, 47.0])
    row = state.cells["c002"]
    (doubt, other) = doubts(row, state, {})
    assert doubt.startswith("the baseline drifted: ar TP1 c001 50.0 to 47.0 tok/s over 4 launches")
    assert "c002" in other
    assert dict(measurement_lines(row, state))["drift"].startswith("50.0 to 47.0 tok/s over 4 launches")
    assert [line.split(":")[0] for line in drift_lines(state)] == ["drift of ar TP1 c001", "drift of ar TP1 c002"]


def test_drift_is_found_and_not_invented() -> None:
    """2,000 sweeps of six launches with noise of 1 %: without drift 1 in 20 is flagged; with 8 %, nearly all."""
    dice = np.random.default_rng(5)
    found = {0.0: 0, 0.08: 0}
    hours = np.arange(6.0)
    for drift in found:
        for _ in range(2000):
            values = 4.0 + math.log1p(drift) * hours / 5 + dice.normal(0, 0.01, 6)
            slope, intercept = np.polyfit(hours, values, 1)
            error = math.sqrt(float(((values - intercept - slope * hours) ** 2).sum()) / 4 / 17.5)
            found[drift] += abs(slope) > t_95(4) * error
    assert 0.035 < found[0.0] / 2000 < 0.065
    assert found[0.08] / 2000 > 0.95


@pytest.mark.parametrize("freedom", [1, 2, 5, 9, 10, 11, 20, 60, 500])
def test_quantiles_are_those_of_the_report(freedom: int) -> None:
    assert t_95(freedom) == pytest.approx(t_quantile(freedom), rel=1e-4)
