"""Each way in which a plan can be wrong, with the error that the operator sees."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as s

from ddconsole.core.plan import Plan
from ddconsole.core.plan_problem import CODES, PlanError
from ddconsole.planfile.plan_file import parse_plan
from ddconsole.planfile.yaml_nodes import read_yaml

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plans"
ENGINES = {"sglang": frozenset({"--model-path", "--nccl-port"}), "llamacpp": frozenset({"-np"})}


def problems_of(text: str) -> list[str]:
    with pytest.raises(PlanError) as refused:
        parse_plan(text, "plan.yaml", ENGINES)
    for problem in refused.value.problems:
        assert problem.code in CODES
    return [str(one) for one in refused.value.problems]


def _cases() -> list[tuple[str, str, list[str]]]:
    blocks = (FIXTURES / "errors.txt").read_text().split("\n\n")
    cases = []
    for block in blocks:
        lines = [line.replace("␤", "\n") for line in block.splitlines() if line[:2] in {"- ", "+ ", "= ", "+"}]
        if lines:
            cases.append((lines[0][2:], lines[1][2:], [line[2:] for line in lines[2:]]))
    return cases


CASES = _cases()


def test_there_are_cases_of_every_code() -> None:
    told = {error.split()[0] for _, _, errors in CASES for error in errors}
    assert told == set(CODES) - {"E100", "E110", "E111", "E112", "E211"}


@pytest.mark.parametrize(("old", "new", "expected"), CASES, ids=[f"{new[:40]!r}" for _, new, _ in CASES])
def test_what_the_operator_is_told(small_text: str, old: str, new: str, expected: list[str]) -> None:
    assert small_text.count(old) == 1
    wrong = small_text.replace(old, new)
    line = small_text[: small_text.index(old)].count("\n") + 1
    assert problems_of(wrong) == [one.replace("plan.yaml:@", f"plan.yaml:{line}") for one in expected]


def test_all_problems_are_told_at_once_in_the_order_of_their_lines(small_text: str) -> None:
    wrong = small_text.replace("host: box", "host: a b").replace("repetitions: 2", "repetitions: x")
    assert [one.split(":")[1] for one in problems_of(wrong)] == ["2", "22"]


def test_a_plan_is_a_mapping() -> None:
    assert problems_of("- a\n") == [
        "E113 plan.yaml:1: a plan is a mapping of keys, this is a list (begin with name: and host:)"
    ]


def test_a_plan_that_expands_to_millions_is_refused_without_being_expanded(small_text: str) -> None:
    numbers = list(range(1, 2001))
    wrong = small_text.replace("max_tokens: [64, 128]", f"max_tokens: {numbers}")
    wrong = wrong.replace("budget: [8, 16]", f"budget: {numbers}, other: {numbers}")
    assert problems_of(wrong) == ["E211 plan.yaml:1: plan expands to 16 024 004 006 cells (limit 10 000)"]


def test_token_in_the_middle_of_a_flag_is_no_secret(small_text: str) -> None:
    ok = small_text.replace("attention-backend: triton", "max-total-tokens: 9, speculative-token-map: m.pt")
    assert parse_plan(ok, "plan.yaml").engine.args["max-total-tokens"] == 9


PLAN_DATA = json.dumps(
    {
        "name": "x",
        "host": "local",
        "model": {"path": "/m"},
        "engine": {"kind": "sglang", "args": {"a": 1}},
        "methods": {"ar": {}, "b": {"for": {"n": [1, 2]}, "name": "b{n}"}},
        "baseline": "ar",
        "workloads": {"w": {"kind": "closed-loop", "prompts": "p", "max_tokens": 3, "concurrency": [1]}},
        "placement": {"bind": "numa"},
        "skip": [{"n": 1}],
        "protocol": {"until": "07:00"},
    }
)
VALUES = s.recursive(
    s.none() | s.booleans() | s.integers() | s.floats(allow_nan=False) | s.text(max_size=8) | s.just("{n}"),
    lambda inner: s.lists(inner, max_size=3) | s.dictionaries(s.text(max_size=6), inner, max_size=3),
    max_leaves=5,
)


def _paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(one for key, value in inner for one in _paths(value, (*path, key)))]


@given(path=s.sampled_from(_paths(json.loads(PLAN_DATA))[1:]), value=VALUES, key=s.none() | s.text(max_size=8))
def test_any_value_anywhere_gives_a_plan_or_a_plan_error(path: tuple[Any, ...], value: Any, key: str | None) -> None:
    data = json.loads(PLAN_DATA)
    where = data
    for part in path[:-1]:
        where = where[part]
    where[path[-1]] = value
    if key is not None and isinstance(where, dict):
        where[key] = value
    # JSON is YAML, except that dumped floats and escapes may not be what a plan may hold.
    with contextlib.suppress(PlanError):
        plan = parse_plan(json.dumps(data, ensure_ascii=True), "plan.yaml", ENGINES)
        assert isinstance(plan, Plan)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=s.integers(0, 1600), length=s.integers(0, 60), text=s.text(max_size=12))
def test_a_plan_with_any_piece_replaced_gives_a_plan_or_a_plan_error(
    small_text: str, start: int, length: int, text: str
) -> None:
    with contextlib.suppress(PlanError):
        plan = parse_plan(small_text[:start] + text + small_text[start + length :], "plan.yaml", ENGINES)
        assert isinstance(plan, Plan)


def test_the_small_plan_uses_every_key_of_the_schema(small_text: str) -> None:
    data = read_yaml(small_text, "small.yaml").data
    unused = set(Plan.model_fields) - set(data)
    assert unused == set()
