"""How long things take: defaults, then history, then this run."""

from dataclasses import replace

import pytest

from ddconsole.core import events as ev
from ddconsole.core.duration import (
    Defaults,
    Estimates,
    defaults_for,
    estimate_of_expansion,
    estimates_for,
    learned,
    predict,
    remaining,
    remaining_of_run,
    stream_tokens,
    waiting,
)
from ddconsole.core.expansion import expand
from ddconsole.core.fold import fold
from ddconsole.core.history import History, Observation, history_from_json, history_to_json
from ddconsole.core.plan import Plan
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Cell, Deployment, Placement, Sampling, Speculative, WorkloadPoint, to_json

SINGLE = WorkloadPoint("generate", "single", "five", 1, 100, 2, 5, Sampling())
LOAD = WorkloadPoint("load", "closed-loop", "five", 4, 100, 1, 18, Sampling())
TALK = WorkloadPoint("talk", "conversation", "calculator", 2, 100, 1, 5, Sampling())
AR = Deployment("d01", "ar", 1, 4, {}, {}, Placement())
TREE = Deployment("d02", "tree", 1, 4, {}, {}, Placement(), Speculative("ddtree", budget=16))
WIDE = Deployment("d03", "ar", 4, 4, {}, {}, Placement())


def test_tokens_of_the_longest_stream() -> None:
    assert stream_tokens(SINGLE) == 2 * 5 * 100
    assert stream_tokens(LOAD) == 5 * 100  # 18 requests in 4 streams
    assert stream_tokens(TALK) == 5 * 100


def test_defaults_know_methods_sizes_and_concurrency() -> None:
    guess = Estimates(Defaults())
    assert guess.cell_seconds(AR, SINGLE) == pytest.approx(1000 / 30)
    assert guess.cell_seconds(TREE, SINGLE) == pytest.approx(1000 / (30 * 4.2))
    draft = replace(TREE, speculative=Speculative("draft"))
    assert guess.cell_seconds(draft, SINGLE) == pytest.approx(1000 / (30 * 2.5))
    assert guess.cell_seconds(WIDE, SINGLE) == pytest.approx(1000 / 60)
    assert guess.cell_seconds(AR, LOAD) > 500 / 30
    assert guess.launch_seconds(AR) == 130
    assert defaults_for("llamacpp").start_seconds == 10
    assert defaults_for("unheard-of") == Defaults()


def test_what_was_measured_comes_before_what_was_measured_elsewhere_and_defaults() -> None:
    earlier = History({"ar TP1": 80.0}, (Observation("ar", 1, "single", 1, 50.0),))
    now = (Observation("ar", 1, "single", 1, 25.0),)
    assert Estimates(history=earlier).cell_seconds(AR, SINGLE) == 20
    assert Estimates(history=earlier, observations=now).cell_seconds(AR, SINGLE) == 40
    assert Estimates(history=earlier).start_seconds(AR) == 80
    assert Estimates(history=earlier, starts={"ar TP1": 60.0}).start_seconds(AR) == 60


def test_the_same_kind_of_workload_and_the_nearest_concurrency_are_taken() -> None:
    told = (
        Observation("ar", 1, "single", 1, 50.0),
        Observation("ar", 1, "closed-loop", 2, 40.0),
        Observation("ar", 1, "closed-loop", 8, 20.0),
    )
    estimates = Estimates(observations=told)
    assert estimates.cell_seconds(AR, LOAD) == pytest.approx(500 / 30)  # 2 and 8 are as near to 4
    assert estimates.cell_seconds(AR, replace(LOAD, concurrency=16, requests=80)) == 500 / 20
    # No conversation was measured yet: of the others, that with two requests in flight.
    assert estimates.cell_seconds(AR, TALK) == 500 / 40


def test_a_method_without_a_measurement_is_scaled_by_how_the_others_went() -> None:
    slow = Estimates(observations=(Observation("ar", 1, "single", 1, 15.0),))
    assert slow.cell_seconds(TREE, SINGLE) == pytest.approx(2 * Estimates().cell_seconds(TREE, SINGLE))


def test_starts_are_taken_from_the_same_number_of_gpus_first() -> None:
    estimates = Estimates(starts={"ar TP1": 50.0, "dflash TP1": 70.0, "ar TP8": 400.0})
    assert estimates.start_seconds(TREE) == 60
    assert estimates.start_seconds(replace(TREE, tensor_parallel=4)) == pytest.approx(520 / 3)


# --- a run


def run_of(*events: tuple[float, ev.Event]) -> RunState:
    created: list[tuple[float, ev.Event]] = [
        (0, ev.RunCreated("r", "p", "", "local", "ar", simulated=False, version="1", engine="sglang")),
        (0, ev.DeploymentAdded(to_json(AR))),
        (0, ev.DeploymentAdded(to_json(TREE))),
        (0, ev.CellAdded(to_json(Cell("c001", "d01", SINGLE)))),
        (0, ev.CellAdded(to_json(Cell("c002", "d01", SINGLE, rounds=2)))),
        (0, ev.CellAdded(to_json(Cell("c003", "d02", SINGLE)))),
    ]
    return fold(ev.Entry(1, number, at, event) for number, (at, event) in enumerate([*created, *events], start=1))


STARTED: list[tuple[float, ev.Event]] = [
    (10, ev.LaunchPlanned(1, "d01", 1)),
    (10, ev.LaunchStarting(1, "load weights")),
    (70, ev.LaunchReady(1, start_seconds=60.0)),
    (70, ev.AttemptStarted("c001", 1, 1, 1, 0)),
]
DONE = (90.0, ev.AttemptDone("c001", 1, 1, "", "", {}))


def test_a_run_that_has_not_begun() -> None:
    left = remaining(run_of(), Estimates())
    cell = 1000 / 30
    assert left.cells == {
        "c001": pytest.approx(cell),
        "c002": pytest.approx(2 * cell),
        "c003": pytest.approx(1000 / 126),
    }
    # Two launches of the first deployment, for its second round, and one of the other.
    assert left.total == pytest.approx(3 * cell + 1000 / 126 + 3 * 130)


def test_a_run_teaches_itself() -> None:
    state = run_of(*STARTED, DONE)
    estimates = estimates_for(state)
    assert estimates.cell_seconds(AR, SINGLE) == 20
    assert estimates.start_seconds(AR) == 60
    left = remaining(state, estimates)
    assert left.cells["c001"] is None
    assert left.cells["c002"] == 40
    tree = estimates.cell_seconds(TREE, SINGLE)
    # The live server stops, the first deployment starts once more, the other starts.
    assert left.total == pytest.approx(40 + tree + 10 + 70 + 70)
    assert remaining_of_run(state) == left.total


def test_a_running_cell_has_less_left_the_longer_it_runs_but_never_less_than_nothing() -> None:
    state = run_of(*STARTED)
    left = [remaining(state, Estimates(), now=70 + gone).cells["c001"] for gone in (0, 10, 1000)]
    assert left == [pytest.approx(1000 / 30), pytest.approx(1000 / 30 - 10), 0.0]


def test_a_launch_that_is_starting_has_less_left_the_longer_it_starts() -> None:
    state = run_of(*STARTED[:2])
    whole, later = (remaining(state, Estimates(), now=at).total for at in (10, 50))
    assert whole is not None
    assert later == pytest.approx(whole - 40)


def test_nothing_is_left_of_a_run_whose_cells_are_all_in_an_end_state() -> None:
    skipped = (100.0, ev.CellsSkipped(("c001", "c002", "c003"), "plan", "x"))
    assert remaining(run_of(skipped), Estimates()).total is None
    assert remaining_of_run(run_of(skipped)) is None
    assert remaining_of_run(run_of((100, ev.RunEnded("stopped")))) is None


def test_a_history_learns_from_a_run_and_survives_json() -> None:
    before = History(
        {"ar TP1": 99.0, "ar TP8": 300.0},
        (Observation("ar", 1, "single", 1, 7.0), Observation("ar", 8, "single", 1, 90.0)),
    )
    after = learned(before, run_of(*STARTED, DONE))
    assert after.starts == {"ar TP1": 60.0, "ar TP8": 300.0}
    told = Observation("ar", 1, "single", 1, 50.0, 100, "five")
    assert set(after.observations) == {told, Observation("ar", 8, "single", 1, 90.0)}
    assert history_from_json(history_to_json(after)) == after


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": 2, "starts": {"ar TP1": 1.0}},
        {"format": 1, "starts": {"ar TP1": "soon", "x": -1}, "observations": [[], ["a"], None, ["a", 1, "b", 1, 0.0]]},
    ],
)
def test_a_history_that_cannot_be_used_is_empty(data: dict[str, object]) -> None:
    assert history_from_json(data) == History()


def test_a_plan_is_foretold(small: Plan) -> None:
    expansion = expand(small)
    prediction = predict(expansion, Estimates())
    assert set(prediction.cells) == {cell.id for cell in expansion.measured}
    assert sum(prediction.launches.values()) == pytest.approx(expansion.launches * 130)
    assert prediction.total == pytest.approx(estimate_of_expansion(expansion))
    other = predict(expansion, Estimates(defaults_for("llamacpp"))).total
    assert estimate_of_expansion(expansion, "llamacpp") == pytest.approx(other)
    assert other != pytest.approx(prediction.total)


def test_however_long_a_cell_overruns_what_waits_is_left() -> None:
    state = run_of(*STARTED)
    guess = Estimates()
    waits = waiting(state, guess)
    assert waits is not None
    cell, tree = guess.cell_seconds(AR, SINGLE), guess.cell_seconds(TREE, SINGLE)
    launch, stop = guess.launch_seconds(AR), guess.defaults.stop_seconds
    # Two rounds of c002 and one of c003; one more launch of the first deployment, and one of the other.
    assert waits == pytest.approx(2 * cell + tree + 2 * launch)
    for gone in (0, 40, 5000):
        total = remaining(state, Estimates(), now=70 + gone).total
        assert total == pytest.approx(waits + stop + max(0.0, cell - gone))


def test_it_is_told_what_times_are_taken_from() -> None:
    known = (Observation("ar", 1, "single", 1, 25.0),)
    assert Estimates().basis == "a guess: nothing was measured yet"
    assert Estimates(history=History({}, known)).basis == "by earlier runs on this host"
    assert estimates_for(run_of(*STARTED, DONE)).basis == "by what was measured so far"
