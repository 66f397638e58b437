"""A method stops where its canary is far below the best; the operator has the last word."""

from dataclasses import replace

from journals import cell, created, deployment, entries, launched, small_run, started

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.commands import decide
from ddconsole.core.control import Ending
from ddconsole.core.fold import fold
from ddconsole.core.pruning import prunings
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import control_for, next_launch
from ddconsole.core.sweep import to_json
from ddconsole.core.wire import Command


def sweep(*events: ev.Event, below: float | None = 0.8, rounds: int = 1) -> RunState:
    """Three methods at TP1 with two cells each, c001 to c006, and the baseline at TP4 with c007."""
    protocol = {"retries": 2, "prune": {"below": below} if below else None}
    start: list[ev.Event] = [
        replace(created(), protocol=protocol),
        ev.EpochBegan("created", "boot", 1, "0.1"),
        *(ev.DeploymentAdded(to_json(deployment(f"d0{n}", name))) for n, name in enumerate(("ar", "slow", "fast"), 1)),
        ev.DeploymentAdded(to_json(deployment("d04", "ar", 4))),
        *(ev.CellAdded(to_json(cell(f"c00{2 * n - 1 + k}", f"d0{n}", rounds, max_tokens=64 * (k + 1))))
          for n in (1, 2, 3) for k in (0, 1)),
        ev.CellAdded(to_json(cell("c007", "d04", rounds))),
    ]  # fmt: skip
    return after(fold(entries(start)), *events)


def after(state: RunState, *events: ev.Event) -> RunState:
    return fold(entries(events, state.seq + 1), state)


def measured(name: str, rate: float, launch: int, attempt: int = 1) -> tuple[ev.Event, ...]:
    return started(name, attempt, launch), ev.AttemptDone(name, attempt, launch, "0" * 64, "f", {"output_rate": rate})


def gone(number: int) -> tuple[ev.Event, ...]:
    return ev.LaunchStopping(number, "asked", 0.0), ev.LaunchGone(number)


def wanted(state: RunState) -> tuple[list[str], Ending]:
    live = state.live_launch()
    assert live is not None
    control = control_for(state, live, 1, 1)
    return [one.cell.id for one in control.cells], control.ending


def due(state: RunState) -> str:
    found = next_launch(state)
    assert found is not None
    return found.deployment


BASELINE = (*launched(), *measured("c001", 50.0, 1), *measured("c002", 48.0, 1), *gone(1))
SLOW = (*launched(2, "d02"), *measured("c003", 70.0, 2), *gone(2))
FAST = (*launched(3, "d03"), *measured("c005", 100.0, 3))


def test_the_baseline_comes_whole_and_then_each_methods_first_cell() -> None:
    assert wanted(sweep(*launched())) == (["c001", "c002"], Ending.FINISH)
    assert due(sweep(*BASELINE)) == "d02"
    assert wanted(sweep(*BASELINE, *launched(2, "d02"))) == (["c003"], Ending.FINISH)
    assert due(sweep(*BASELINE, *SLOW)) == "d03"
    assert wanted(sweep(*BASELINE, *SLOW, *launched(3, "d03"))) == (["c005"], Ending.WAIT)
    assert wanted(sweep(*BASELINE, *SLOW, *FAST)) == (["c006"], Ending.FINISH)


def test_without_pruning_a_launch_measures_all_its_cells() -> None:
    assert wanted(sweep(*BASELINE, *launched(2, "d02"), below=None)) == (["c003", "c004"], Ending.FINISH)
    assert prunings(sweep(*BASELINE, *SLOW, *FAST, below=None)) == []


def test_a_canary_below_the_limit_stops_its_method_with_the_numbers() -> None:
    assert prunings(sweep(*BASELINE, *SLOW)) == []
    state = sweep(*BASELINE, *SLOW, *FAST)
    because = "its canary c003 gave 70.0 tok/s, 0.70 of fast's 100.0 at TP1 generate c1 64 tokens: below 0.8"
    assert prunings(state) == [ev.CellsPruned(("c004",), because)]
    pruned = after(state, *prunings(state))
    assert pruned.cells["c004"].state == st.Pruned(because)
    assert prunings(pruned) == []
    assert due(after(pruned, *measured("c006", 90.0, 3), *gone(3))) == "d04"


def test_exactly_at_the_limit_goes_on_and_the_baseline_always_does() -> None:
    at_limit = (*launched(2, "d02"), *measured("c003", 80.0, 2), *gone(2))
    assert prunings(sweep(*BASELINE, *at_limit, *FAST)) == []
    twice = sweep(*launched(), *measured("c001", 50.0, 1), *gone(1), *SLOW, *FAST)
    assert [one.cells for one in prunings(twice)] == [("c004",)]


def test_further_rounds_of_the_canary_are_pruned_too_and_its_figures_stay() -> None:
    state = sweep(*BASELINE, *SLOW, *FAST, rounds=2)
    assert [one.cells for one in prunings(state)] == [("c003", "c004")]
    assert len(after(state, *prunings(state)).cells["c003"].done_attempts()) == 1


def test_what_the_operator_asks_for_is_not_pruned_again() -> None:
    state = sweep(*BASELINE, *SLOW, *FAST, *measured("c006", 90.0, 3), *gone(3), rounds=2)
    retried = after(state, *prunings(state), ev.CellsRetried(("c004",), "me"))
    assert prunings(retried) == []
    once = after(retried, *launched(4, "d02"), *measured("c004", 60.0, 4), *gone(4))
    assert isinstance(once.cells["c004"].state, st.Pending)
    assert prunings(once) == []
    assert prunings(after(state, ev.CellsMovedFirst(("c003", "c004"), "me"))) == []


def test_a_canary_that_cannot_be_measured_hands_over_or_lets_the_others_go_on() -> None:
    skipped = after(sweep(*BASELINE), ev.CellsSkipped(("c003",), "me", "not now"))
    assert wanted(after(skipped, *launched(2, "d02"))) == (["c004"], Ending.FINISH)
    blocked = after(sweep(*BASELINE), ev.LaunchPlanned(2, "d02", 1), ev.LaunchFailed(2, "X", "broken"))
    assert wanted(after(blocked, *launched(3, "d03"))) == (["c005"], Ending.WAIT)


def test_other_sizes_and_other_engines_are_not_compared() -> None:
    faster = (*launched(4, "d04"), *measured("c007", 500.0, 4), *gone(4))
    assert prunings(sweep(*BASELINE, *SLOW, *faster)) == []
    changed = ev.EngineSeen({"build": "2"}, ("build 1 → 2",))
    assert prunings(sweep(*BASELINE, *SLOW, changed, *FAST)) == []


def test_no_new_launches_lets_the_running_server_do_its_cells() -> None:
    state = sweep(*BASELINE, *launched(2, "d02"), ev.RunDraining("me"))
    assert wanted(state) == (["c003", "c004"], Ending.FINISH)


def test_a_run_of_before_pruning_prunes_nothing() -> None:
    assert prunings(small_run()) == []


def test_one_key_takes_back_all_that_was_pruned_together_and_nothing_else() -> None:
    state = sweep(*BASELINE, *SLOW, *FAST, *measured("c006", 90.0, 3), *gone(3), rounds=2)
    other = ev.CellsPruned(("c007",), "another reason")
    pruned = after(state, *prunings(state), other)
    assert [name for name, row in pruned.cells.items() if isinstance(row.state, st.Pruned)] == ["c003", "c004", "c007"]
    command = Command("k", "take-back", "me", cells=("c004",))
    decision = decide(pruned, command)
    assert decision.answer.text == "c003, c004 once more"
    back = after(pruned, *decision.events)
    assert isinstance(back.cells["c003"].state, st.Pending)
    assert isinstance(back.cells["c004"].state, st.Pending)
    assert isinstance(back.cells["c007"].state, st.Pruned)
    assert prunings(back) == []
    refused = decide(back, Command("k2", "take-back", "me", cells=("c004",))).answer
    assert not refused.taken
    assert "c004 is pending: take-back means nothing now" in refused.text
