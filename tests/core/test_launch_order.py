"""The order of launches and cells that a plan asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from journals import cell, created, deployment, entries

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import cells_of_launch, next_launch
from ddconsole.core.sweep import to_json


def sweep(lengths: Mapping[str, Sequence[int]], rounds: int = 1, **protocol: Any) -> RunState:
    """A deployment for each method with a cell for each length, the first one the baseline `ar`."""
    start: list[ev.Event] = [replace(created(), protocol={"retries": 2, **protocol})]
    number = 0
    for place, (method, tokens) in enumerate(lengths.items(), 1):
        start.append(ev.DeploymentAdded(to_json(deployment(f"d0{place}", method))))
        for length in tokens:
            number += 1
            start.append(ev.CellAdded(to_json(cell(f"c{number:03}", f"d0{place}", rounds, max_tokens=length))))
    return fold(entries(start))


def after(state: RunState, *events: ev.Event) -> RunState:
    return fold(entries(events, state.seq + 1, state.at), state)


def measured(state: RunState, rates: Mapping[str, float] | None = None) -> tuple[RunState, list[str]]:
    """Conduct the run to its end; the launches and cells as they came: `d01 c001 c002`."""
    said = []
    while (due := next_launch(state)) is not None:
        launch = due.number
        state = after(state, ev.LaunchPlanned(launch, due.deployment, due.round))
        state = after(state, ev.LaunchStarting(launch, "load"), ev.LaunchReady(launch))
        names = []
        for wanted in cells_of_launch(state, state.launches[launch]):
            name = wanted.cell.id
            names.append(name)
            figures = {"output_rate": (rates or {}).get(name, 50.0)}
            state = after(
                state,
                ev.AttemptStarted(name, wanted.attempt, launch, wanted.round, 0),
                ev.AttemptDone(name, wanted.attempt, launch, "0" * 64, "f", figures),
            )
        state = after(state, ev.LaunchStopping(launch, "asked", 0.0), ev.LaunchGone(launch))
        said.append(f"{due.deployment} {' '.join(names)}")
    assert all(isinstance(row.state, st.Done) for row in state.cells.values())
    return state, said


TWO = {"ar": (64, 128), "tree": (64, 128)}


def test_without_a_word_rounds_come_one_after_the_other_in_the_order_of_the_table() -> None:
    _, said = measured(sweep(TWO, rounds=2))
    assert said == ["d01 c001 c002", "d02 c003 c004", "d01 c001 c002", "d02 c003 c004"]


def test_abba_goes_backwards_every_second_round() -> None:
    _, said = measured(sweep(TWO, rounds=3, order="abba"))
    forwards = ["d01 c001 c002", "d02 c003 c004"]
    assert said == [*forwards, "d02 c004 c003", "d01 c002 c001", *forwards]


def test_abba_gives_every_deployment_the_same_mean_place() -> None:
    """What falls by the same amount with each launch falls on all alike."""
    three = {"ar": (64,), "dflash": (64,), "tree": (64,)}
    _, said = measured(sweep(three, rounds=4, order="abba"))
    places = {name: [place for place, one in enumerate(said) if one.startswith(name)] for name in ("d01", "d02", "d03")}
    assert {name: sum(found) for name, found in places.items()} == {"d01": 22, "d02": 22, "d03": 22}


def test_information_measures_the_baseline_and_then_what_is_known_soonest_for_each_cell() -> None:
    """Starts take 11 s by the defaults of llama.cpp. Long: 1 cell of 5 x 4096 tokens. Short: 2 cells of 5 x 64."""
    methods = {"ar": (64,), "long": (4096,), "short": (64, 128)}
    _, plain = measured(sweep(methods))
    assert [one.split()[0] for one in plain] == ["d01", "d02", "d03"]
    _, said = measured(sweep(methods, order="information"))
    assert [one.split()[0] for one in said] == ["d01", "d03", "d02"]


def test_information_measures_every_method_once_before_any_at_a_second_size() -> None:
    """Four GPUs are faster, so the baseline comes there first, then the methods there; then one GPU, baseline first."""
    state = sweep({"ar": (64,), "tree": (64,), "flash": (64,)}, order="information")
    more: list[ev.Event] = []
    for number, method in enumerate(("ar", "tree", "flash"), 4):
        more.append(ev.DeploymentAdded(to_json(deployment(f"d0{number}", method, 4))))
        more.append(ev.CellAdded(to_json(cell(f"c00{number}", f"d0{number}"))))
    _, said = measured(after(state, *more))
    assert [one.split()[0] for one in said] == ["d04", "d05", "d06", "d01", "d02", "d03"]


def test_information_measures_contenders_again_before_those_that_are_far_behind() -> None:
    rates = {"c001": 50.0, "c002": 60.0, "c003": 100.0, "c004": 98.0}
    state = sweep({"ar": (64,), "slow": (64,), "fast": (64,), "near": (64,)}, rounds=2, order="information")
    _, said = measured(state, rates)
    assert [one.split()[0] for one in said][:1] == ["d01"]
    assert {one.split()[0] for one in said[4:6]} == {"d03", "d04"}
    assert {one.split()[0] for one in said[6:]} == {"d01", "d02"}


def test_what_the_operator_told_to_come_next_comes_before_any_order() -> None:
    state = after(sweep(TWO, order="information"), ev.CellsMovedFirst(("c004",), "me"))
    _, said = measured(state)
    assert said[0] == "d02 c004 c003"
