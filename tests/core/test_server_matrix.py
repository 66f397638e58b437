"""What compared servers run with, beside what the plan says should differ."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from journals import cell, created, deployment, entries

from ddconsole.core import events as ev
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.server_matrix import NOT_TOLD, Difference, matrix_lines, matrix_notes, server_matrices
from ddconsole.core.sweep import Deployment, EngineArgument, to_json

AR, TREE = deployment("d01", "ar"), deployment("d02", "tree")
SERVER: Mapping[str, Any] = {
    "disable_radix_cache": False,
    "disable_overlap_schedule": False,
    "disable_cuda_graph": False,
    "attention_backend": "triton",
    "mem_fraction_static": 0.85,
    "max_running_requests": 128,
    "random_seed": 1,
    "port": 30000,
}


def run(*servers: tuple[Deployment, Mapping[str, Any]]) -> RunState:
    """Each deployment's server was ready, and told this."""
    start: list[ev.Event] = [created()]
    for number, (one, _) in enumerate(servers, 1):
        start += [ev.DeploymentAdded(to_json(one)), ev.CellAdded(to_json(cell(f"c{number:03}", one.id)))]
    for number, (one, effective) in enumerate(servers, 1):
        start += [ev.LaunchPlanned(number, one.id, 1), ev.LaunchStarting(number, "load")]
        start.append(ev.LaunchReady(number, effective=dict(effective)))
        start += [ev.LaunchStopping(number, "asked", 0.0), ev.LaunchGone(number)]
    return fold(entries(start))


def found(state: RunState) -> dict[str, Difference]:
    (matrix,) = server_matrices(state)
    return {row.argument: row.difference for row in matrix.rows if row.difference is not Difference.NONE}


def test_the_trap_of_sglang_is_flagged() -> None:
    """[0.5, 5.19] Speculation without `max-running-requests`: 48 requests, and no overlap scheduler; one warning."""
    tree = {**SERVER, "max_running_requests": 48, "disable_overlap_schedule": True, "speculative_algorithm": "DDTREE"}
    state = run((AR, SERVER), (TREE, tree))
    assert found(state) == {
        "disable_overlap_schedule": Difference.UNPLANNED,
        "max_running_requests": Difference.UNPLANNED,
        "speculative_algorithm": Difference.PLANNED,
    }
    assert matrix_notes(state, "d02") == [
        "server runs with disable_overlap_schedule true, ar with false: the plan does not say so",
        "server runs with max_running_requests 48, ar with 128: the plan does not say so",
    ]
    assert matrix_notes(state, "d01")[1].endswith("max_running_requests 128, tree with 48: the plan does not say so")


def test_servers_that_run_alike_say_nothing_and_what_belongs_to_a_launch_is_left_out() -> None:
    state = run((AR, SERVER), (TREE, {**SERVER, "random_seed": 2, "port": 30001}))
    assert found(state) == {}
    (matrix,) = server_matrices(state)
    assert "port" not in {row.argument for row in matrix.rows}


def test_what_the_plan_gives_different_values_may_differ() -> None:
    tree = replace(TREE, args={"disable-overlap-schedule": True})
    assert found(run((AR, SERVER), (tree, {**SERVER, "disable_overlap_schedule": True}))) == {
        "disable_overlap_schedule": Difference.PLANNED
    }


def test_a_pin_that_a_server_does_not_heed_is_flagged_by_value_not_by_spelling() -> None:
    pinned: dict[str, EngineArgument] = {"attention-backend": "Triton", "mem-fraction-static": 0.850}
    both = [replace(one, args=pinned) for one in (AR, TREE)]
    assert found(run((both[0], SERVER), (both[1], SERVER))) == {}
    state = run((both[0], SERVER), (both[1], {**SERVER, "attention_backend": "flashinfer"}))
    assert found(state) == {"attention_backend": Difference.UNHEEDED}
    assert matrix_notes(state, "d01") == []
    assert matrix_notes(state, "d02") == ["server runs with attention_backend flashinfer, the plan says Triton"]


def test_capacity_and_size_follow_from_what_is_planned() -> None:
    tree = replace(TREE, size=2)
    state = run(
        (AR, {**SERVER, "max_total_num_tokens": 90_000}),
        (tree, {**SERVER, "max_running_requests": 2, "max_total_num_tokens": 50_000}),
    )
    assert found(state) == {"max_running_requests": Difference.FOLLOWS, "max_total_num_tokens": Difference.FOLLOWS}
    assert matrix_notes(state, "d02") == []


def test_launches_of_one_deployment_that_do_not_agree_are_flagged() -> None:
    state = run((AR, SERVER), (AR, {**SERVER, "max_running_requests": 96}))
    (matrix,) = server_matrices(state)
    assert [(row.argument, row.values) for row in matrix.flagged()] == [("max_running_requests", ("128 / 96",))]


def test_sizes_are_matrices_of_their_own_and_what_a_server_does_not_tell_is_not_made_up() -> None:
    wide = replace(deployment("d03", "tree", 4), size=4)
    state = run((AR, SERVER), (TREE, {"attention_backend": "triton"}), (wide, SERVER))
    small, large = server_matrices(state)
    assert (small.tensor_parallel, small.labels, large.labels) == (1, ("ar", "tree"), ("tree",))
    values = {row.argument: row.values for row in small.rows}
    assert values["mem_fraction_static"] == ("0.85", NOT_TOLD)


def test_the_matrix_as_text() -> None:
    pinned = [replace(one, args={"attention-backend": "triton"}) for one in (AR, TREE)]
    state = run((pinned[0], SERVER), (pinned[1], {**SERVER, "max_running_requests": 48, "dtype": "bfloat16"}))
    (matrix,) = server_matrices(state)
    lines = matrix_lines(matrix)
    assert lines[0] == "TP1"
    assert [line.split() for line in lines[1:]] == [
        ["argument", "plan", "ar", "tree"],
        ["disable_radix_cache", "false", "false"],
        ["disable_overlap_schedule", "false", "false"],
        ["disable_cuda_graph", "false", "false"],
        ["attention_backend", "triton", "triton", "triton"],
        ["mem_fraction_static", "0.85", "0.85"],
        ["!", "max_running_requests", "unplanned", "128", "48"],
        ["!", "dtype", "unplanned", "not", "told", "bfloat16"],
    ]
