"""Edits of a cell: what a field takes, what it refuses and how it says so, and which server the cell then needs."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as s

from ddconsole.core.editing import (
    EDITABLE_FIELDS,
    EditProblem,
    edit_cell,
    editable_fields,
    edited_deployment,
    edited_point,
    flag_value,
    parse_field,
)
from ddconsole.core.sweep import Cell, Deployment, EngineArgument, Placement, Sampling, WorkloadPoint

LOAD = WorkloadPoint("load", "closed-loop", "five", 4, 256, 1, 16, Sampling())
SINGLE = WorkloadPoint("generate", "single", "five", 1, 256, 5, 5, Sampling())
TALK = WorkloadPoint("talk", "conversation", "calculator", 1, 256, 1, 5, Sampling())
SERVER = Deployment("d01", "ar", 1, 4, {"attention-backend": "triton"}, {}, Placement(), context_tokens=4096)


def edited(point: WorkloadPoint, changes: dict[str, Any]) -> tuple[WorkloadPoint, Deployment]:
    return edit_cell(Cell("c001", "d01", point), SERVER, changes)


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("concurrency", "8", 8),
        ("concurrency", " 8 ", 8),
        ("max_tokens", "1024", 1024),
        ("repetitions", "3", 3),
        ("requests", "32", 32),
        ("request_timeout", "90s", 90.0),
        ("request_timeout", "1h30m", 5400.0),
        ("stall_timeout", "45", 45.0),
    ],
)
def test_fields_of_what_the_client_does(field: str, text: str, value: Any) -> None:
    assert edited_point(LOAD, {field: text}) == replace(LOAD, **{field: value})


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("temperature", "1", 1.0),
        ("seed", "none", None),
        ("seed", "11", 11),
        ("top_p", ".9", 0.9),
        ("top_k", "40", 40),
        ("ignore_eos", "false", False),
        ("thinking", "true", True),
        ("thinking", "none", None),
    ],
)
def test_fields_of_the_sampling(field: str, text: str, value: Any) -> None:
    assert edited_point(LOAD, {field: text}).sampling == replace(Sampling(), **{field: value})


def test_the_turns_of_a_conversation_can_be_live() -> None:
    assert edited_point(TALK, {"turns": "live", "concurrency": "2"}) == replace(TALK, turns="live", concurrency=2)


@pytest.mark.parametrize(
    ("point", "changes", "told"),
    [
        (LOAD, {"concurrency": "0"}, 'concurrency: must be a whole number 1…65536, got "0"'),
        (LOAD, {"concurrency": "8.0"}, 'concurrency: must be a whole number 1…65536, got "8.0"'),
        (LOAD, {"concurrency": "true"}, 'concurrency: must be a whole number 1…65536, got "true"'),
        (LOAD, {"concurrency": "٣"}, 'concurrency: must be a whole number 1…65536, got "٣"'),
        (LOAD, {"max_tokens": ""}, 'max_tokens: must be a whole number 1…1048576, got ""'),
        (LOAD, {"request_timeout": "soon"}, 'request_timeout: "soon" is not a duration, got "soon"'),
        (LOAD, {"request_timeout": "0s"}, 'request_timeout: must be longer than nothing, got "0s"'),
        (LOAD, {"temperature": "hot"}, 'temperature: must be a number 0…100, got "hot"'),
        (LOAD, {"temperature": "nan"}, 'temperature: must be a number 0…100, got "nan"'),
        (LOAD, {"top_p": "0"}, 'top_p: must be a number above 0, at most 1, or none, got "0"'),
        (LOAD, {"ignore_eos": "yes"}, 'ignore_eos: must be true or false, got "yes"'),
        (TALK, {"turns": "alive"}, 'turns: must be replay or live, got "alive"'),
        (LOAD, {"concurency": "1"}, "concurency: is no field that can be edited (did you mean concurrency?)"),
        (SINGLE, {"concurrency": "2"}, "concurrency: means nothing for a single workload"),
        (TALK, {"requests": "2"}, "requests: means nothing for a conversation workload"),
        (
            LOAD,
            {"concurrency": "32"},
            "concurrency: 16 requests can never be 32 in flight (set requests to 32 at least)",
        ),
        (LOAD, {"requests": "3"}, "requests: 3 requests can never be 4 in flight (set requests to 4 at least)"),
    ],
)
def test_what_a_field_refuses(point: WorkloadPoint, changes: dict[str, str], told: str) -> None:
    with pytest.raises(EditProblem) as refused:
        edited_point(point, changes)
    assert str(refused.value) == told
    assert refused.value.field == next(iter(changes))


def test_several_fields_at_once_are_judged_together() -> None:
    assert edited_point(LOAD, {"concurrency": "32", "requests": "64"}).concurrency == 32


@pytest.mark.parametrize("point", [LOAD, SINGLE, TALK], ids=lambda point: point.kind)
def test_what_is_shown_can_be_typed_back_without_a_change(point: WorkloadPoint) -> None:
    shown = {field.name: field.show(point) for field in editable_fields(point)}
    assert edited_point(point, shown) == point


def test_every_field_has_words_for_the_editor() -> None:
    assert list(EDITABLE_FIELDS)[:4] == ["concurrency", "max_tokens", "repetitions", "requests"]
    assert all(field.label and field.help for field in EDITABLE_FIELDS.values())
    assert [field.name for field in editable_fields(SINGLE)][:2] == ["max_tokens", "repetitions"]


@given(field=s.sampled_from(sorted(EDITABLE_FIELDS)), text=s.text(max_size=12))
def test_any_text_gives_a_value_or_an_edit_problem(field: str, text: str) -> None:
    for point in (LOAD, SINGLE, TALK):
        try:
            value = parse_field(point, field, text)
        except EditProblem as problem:
            value = problem.field
        assert value is None or isinstance(value, bool | int | float | str)


# --- flags of the server


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("false", False),
        ("8", 8),
        ("-1", -1),
        ("0.85", 0.85),
        ("triton", "triton"),
        ("010", "010"),
        ("1e9", "1e9"),
        ("[1, 2]", (1, 2)),
        ("[a", "[a"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_what_a_typed_flag_stands_for(text: str, value: EngineArgument) -> None:
    found = flag_value(text)
    assert found == value
    assert type(found) is type(value)


def test_flags_are_set_changed_and_taken_away() -> None:
    _, server = edited(LOAD, {"flag:--page-size": "16", "flag:attention-backend": None})
    assert server == replace(SERVER, args={"page-size": 16})
    _, server = edited(LOAD, {"flag:--attention-backend": "flashinfer", "flag:--x": [1, 2], "flag:--y": True})
    assert server.args == {"attention-backend": "flashinfer", "x": (1, 2), "y": True}
    assert server.id == SERVER.id


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"flag:--host": "0.0.0.0"}, "--host: the plan may not set --host (owned by ddconsole)"),
        ({"flag:--x y": "1"}, '--x y: "x y" is not the name of a flag (give its value after the colon)'),
        ({"flag:--x": "--port=1"}, "--x: the plan may not set --port (owned by ddconsole)"),
        ({"flag:--x": ""}, "--x: is empty: true is a bare flag, false leaves it out"),
        ({"flag:--atention-backend": None}, "--atention-backend: is not set (did you mean attention-backend?)"),
        ({"flag:--hf-token": "abc"}, "--hf-token: hf-token names a secret (a plan is stored and published: "),
    ],
)
def test_flags_that_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(EditProblem) as refused:
        edited(LOAD, changes)
    assert str(refused.value).startswith(told)


def test_an_engines_own_flags_can_be_refused_too() -> None:
    with pytest.raises(EditProblem, match="nccl-port"):
        edited_deployment(SERVER, {"--nccl-port": 1}, frozenset({"nccl-port"}))


# --- which server the cell then needs


def test_what_only_the_client_does_leaves_the_server_alone() -> None:
    point, server = edited(LOAD, {"max_tokens": "128", "temperature": "1", "request_timeout": "5m"})
    assert server is SERVER
    assert (point.max_tokens, point.sampling.temperature, point.request_timeout) == (128, 1.0, 300.0)


def test_more_requests_than_the_server_is_sized_for_need_a_larger_one() -> None:
    _, server = edited(LOAD, {"concurrency": "8"})
    assert server == replace(SERVER, size=8)


def test_a_longer_output_that_still_fits_needs_no_other_server() -> None:
    assert edited(SINGLE, {"max_tokens": "3072"})[1] is SERVER
    assert edited(TALK, {"max_tokens": "200"})[1] is SERVER


def test_a_longer_output_that_may_not_fit_needs_a_longer_context() -> None:
    assert edited(SINGLE, {"max_tokens": "4000"})[1].context_tokens == 5024
    assert edited(TALK, {"max_tokens": "300"})[1].context_tokens == 4096 + 44
    assert edited(TALK, {"turns": "live"})[1].context_tokens == 4096 + 4 * 256


def test_a_server_that_sizes_its_context_itself_is_left_alone() -> None:
    free = replace(SERVER, context_tokens=0)
    assert edit_cell(Cell("c001", "d01", TALK), free, {"max_tokens": "9999"})[1] is free
