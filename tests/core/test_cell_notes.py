"""What is said beside figures: outputs, budgets, cache, passes, positions, outliers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from answers import answer
from journals import cell, created, deployment, entries

from ddconsole.core import events as ev
from ddconsole.core.cell_notes import doubts, measurement_lines
from ddconsole.core.fold import fold
from ddconsole.core.leakage import falling_acceptance
from ddconsole.core.outliers import outliers, outlying_requests
from ddconsole.core.outputs import MOST_PROMPTS, equal_outputs, outputs_of
from ddconsole.core.records import RequestOutcome
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Sampling, Speculative, WorkloadPoint, to_json

POINT = WorkloadPoint("generate", "single", "five", 1, 64, 1, 5, Sampling())


def run(*methods: tuple[str, int | None, Mapping[str, Any]]) -> RunState:
    """A method (name, budget) each with one cell that gave these figures: c001, c002, ..."""
    start: list[ev.Event] = [created()]
    for number, (name, budget, _) in enumerate(methods, 1):
        one = deployment(f"d0{number}", name)
        if budget is not None:
            one = replace(one, speculative=Speculative("ddtree", budget=budget, block_size=16))
        start += [ev.DeploymentAdded(to_json(one)), ev.CellAdded(to_json(cell(f"c00{number}", one.id)))]
    for number, (_, _, figures) in enumerate(methods, 1):
        start += [
            ev.LaunchPlanned(number, f"d0{number}", 1),
            ev.LaunchStarting(number, "load"),
            ev.LaunchReady(number),
            ev.AttemptStarted(f"c00{number}", 1, number, 1, 0),
            ev.AttemptDone(f"c00{number}", 1, number, "", "f", {"output_rate": 50.0, **figures}, ()),
        ]
    return fold(entries(start))


def accepted(length: float) -> dict[str, Any]:
    return {"acceptance": {"tokens": round(length * 1000), "steps": 1000, "source": "request"}}


def test_outputs_of_an_attempt_are_kept_by_prompt_where_they_can_be_compared() -> None:
    records = [
        replace(answer(50.0), prompt="a", text_sha256="1" * 64),
        replace(answer(50.0), prompt="a", text_sha256="1" * 64),
        replace(answer(50.0), prompt="b", text_sha256="2" * 64),
        replace(answer(50.0, RequestOutcome.FAILED), prompt="c", text_sha256="3" * 64),
    ]
    assert outputs_of(POINT, records) == {"a": ["1" * 12], "b": ["2" * 12]}
    assert outputs_of(replace(POINT, sampling=Sampling(temperature=0.7)), records) == {}
    assert outputs_of(replace(POINT, turns="live"), records) == {}
    many = [replace(answer(50.0), prompt=str(n), text_sha256="1" * 64) for n in range(MOST_PROMPTS + 1)]
    assert outputs_of(POINT, many) == {}


def test_a_method_that_changes_the_text_is_flagged_with_the_share() -> None:
    """Of three prompts that both have, `b` differs; of `a` the baseline gave both variants; `d` has no counterpart."""
    ar = {"outputs": {"a": ["1", "2"], "b": ["3"], "c": ["4"]}}
    tree = {"outputs": {"a": ["2"], "b": ["9"], "c": ["4"], "d": ["5"]}}
    state = run(("ar", None, ar), ("tree", 16, tree), ("same", 16, ar), ("old", 16, {}))
    rows = list(state.cells.values())
    assert [equal_outputs(row, state) for row in rows] == [None, (2, 3), (3, 3), None]
    assert "2 of 3 prompts give ar's text under greedy decoding" in doubts(rows[1], state, {})
    assert doubts(rows[2], state, {}) == []
    assert dict(measurement_lines(rows[2], state))["outputs"] == "3 of 3 prompts give the baseline's text"


def test_acceptance_that_falls_as_the_budget_grows_is_flagged_at_the_larger_one() -> None:
    state = run(
        ("ar", None, {}), ("b8", 8, accepted(4.0)), ("b16", 16, accepted(5.0)), ("b32", 32, accepted(4.4)),
        ("b64", 64, accepted(4.38)),
    )  # fmt: skip
    rows = list(state.cells.values())
    text = "acceptance falls from 5.00 to 4.40 as the budget grows from 16 to 32"
    assert [falling_acceptance(row, state) for row in rows] == ["", "", "", text, ""]
    assert text in doubts(rows[3], state, {})
    told = dict(measurement_lines(rows[4], state))
    assert told["budgets"] == "acceptance by budget 8: 4.00, 16: 5.00, 32: 4.40, 64: 4.38"


def test_cache_passes_positions_and_outliers_stand_beside_the_figures() -> None:
    figures = {
        "prompt_tokens": 400,
        "cached_tokens": 100,
        "warm_up": {"rates": [10.0, 50.0, 51.0], "agreed": True},
        "acceptance": {"tokens": 300, "steps": 100, "source": "request", "accepted_at": [80, 60, 40, 20]},
        "outliers": [3, 7],
    }
    state = run(("tree", 16, figures))
    assert dict(measurement_lines(state.cells["c001"], state)) == {
        "cache": "25% of the prompt tokens came from the prefix cache",
        "warm-up": "3 passes until two in a row were as fast",
        "depth": "accepted by position 0.80 0.60 0.40 0.20",
        "outlier": "2 requests far from the rest: marked, and counted like the others",
    }


def test_figures_of_an_older_run_say_nothing_more() -> None:
    state = run(("ar", None, {}))
    assert measurement_lines(state.cells["c001"], state) == []
    assert doubts(state.cells["c001"], state, {}) == []


def test_outliers_lie_beyond_tukeys_outer_fences_and_are_not_just_the_spread() -> None:
    """Nine values around 100 with quartiles near 99 and 101: the fence is about 93 to 107; 60 is beyond."""
    values = [98.0, 99.0, 99.0, 100.0, 100.0, 101.0, 101.0, 102.0, 60.0]
    assert outliers(values) == (8,)
    assert outliers(values[:-1]) == ()
    assert outliers([100.0] * 7 + [60.0]) == (7,)
    assert outliers([100.0] * 7 + [97.0]) == (), "less than 5 % away is no outlier, however close the others are"
    assert outliers(values[2:]) == (), "seven values are too few to tell"


def test_a_prompts_own_pace_is_no_outlier() -> None:
    """[5: tokenspeed#1355: bimodal] `fast` is twice as fast as `slow` throughout; one request of `fast` is not."""
    rates = {"fast": [100.0, 101.0, 99.0, 100.0, 50.0], "slow": [50.0, 50.5, 49.5, 50.0, 50.0]}
    records = [
        replace(answer(rate), index=number, prompt=prompt)
        for number, (prompt, rate) in enumerate((prompt, rate) for prompt, own in rates.items() for rate in own)
    ]
    assert outlying_requests(records) == (4,)
    assert len(records) == 10


def test_a_launch_of_another_mode_is_named() -> None:
    """[2.9.12: tokenspeed#1355: 33 runs near 20,200 tok/s, 3 near 12,900, and the medians unchanged]"""
    rates = [20_200.0, 20_250.0, 20_150.0, 20_220.0, 20_180.0, 20_210.0, 12_900.0, 20_190.0, 20_230.0]
    start: list[ev.Event] = [
        created(),
        ev.DeploymentAdded(to_json(deployment())),
        ev.CellAdded(to_json(cell(rounds=len(rates)))),
    ]
    for number, rate in enumerate(rates, 1):
        start += [
            ev.LaunchPlanned(number, "d01", number),
            ev.AttemptStarted("c001", number, number, number, 0),
            ev.AttemptDone("c001", number, number, "", "f", {"output_rate": rate}),
            ev.LaunchGone(number),
        ]
    state = fold(entries(start))
    told = dict(measurement_lines(state.cells["c001"], state))
    assert told["outlier"] == "launch 7 far from the rest: marked, and counted like the others"


@pytest.mark.parametrize("values", [[], [0.0] * 9, [1.0]])
def test_nothing_is_an_outlier_of_nothing(values: list[float]) -> None:
    assert outliers(values) == ()
