"""Plans written out: the numbers of the CT200 sweep, sizes, skip rules, placeholders, stable order."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as s

from ddconsole.core.expansion import Expansion, expand, memory_of, size_of_prompts, size_of_script
from ddconsole.core.memory import MemoryModel, Verdict
from ddconsole.core.plan import Plan
from ddconsole.core.plan_problem import PlanError
from ddconsole.core.plan_workloads import TextSize, tokens_of
from ddconsole.core.sweep import (
    Cell,
    Deployment,
    Placement,
    Speculative,
    cell_from_json,
    cell_label,
    deployment_from_json,
    to_json,
)
from ddconsole.planfile.plan_file import find_plan, load_plan, parse_plan

TEXTS = {
    "five": TextSize(5, 600),
    "cli-calculator": TextSize(5, 7700),
    "data-pipeline": TextSize(5, 9300),
    "calculator": TextSize(3, 1000),
}


@pytest.fixture(scope="module")
def ct200_plan() -> Plan:
    return load_plan(find_plan("ct200-ddtree")).plan


@pytest.fixture(scope="module")
def ct200(ct200_plan: Plan) -> Expansion:
    return expand(ct200_plan, memory_of(ct200_plan), TEXTS)


def deployment_of(expansion: Expansion, cell: str) -> Deployment:
    by_id = {one.id: one for one in expansion.deployments}
    return by_id[next(one.deployment for one in expansion.cells if one.id == cell)]


def labels(expansion: Expansion, names: list[str]) -> list[str]:
    return [cell_label(one, deployment_of(expansion, one.id)) for one in expansion.cells if one.id in names]


# --- the CT200 sweep


def test_ct200_has_216_cells_of_which_36_are_skipped_and_3_cannot_fit(ct200: Expansion) -> None:
    assert len(ct200.cells) == 216
    assert len(ct200.skipped) == 36
    assert len(ct200.unfit) == 3
    assert len(ct200.measured) == 177


def test_ct200_has_eight_methods_with_nine_points_at_each_size(ct200: Expansion) -> None:
    by_id = {one.id: one for one in ct200.deployments}
    counted = Counter((by_id[one.deployment].method, by_id[one.deployment].tensor_parallel) for one in ct200.cells)
    methods = ["ar", "dflash", *(f"ddtree-b{budget}" for budget in (8, 12, 15, 16, 32, 64))]
    assert counted == {(method, size): 9 for method in methods for size in (1, 4, 8)}
    assert [one.point.label for one in ct200.cells[:9]] == [
        "generate c1 256 tokens",
        "generate c1 1024 tokens",
        "generate c1 2048 tokens",
        "concurrency c1 512 tokens",
        "concurrency c2 512 tokens",
        "concurrency c4 512 tokens",
        "concurrency c8 512 tokens",
        "calculator c1 1024 tokens",
        "pipeline c1 1024 tokens",
    ]


def test_ct200_skips_the_large_budgets_on_several_gpus(ct200: Expansion) -> None:
    skipped = [deployment_of(ct200, name) for name, _ in ct200.skipped]
    assert Counter(one.label for one in skipped) == {
        f"ddtree-b{budget} TP{size}": 9 for budget in (32, 64) for size in (4, 8)
    }
    assert {because for _, because in ct200.skipped} == {"recurrent-state leakage seen at TP1"}


def test_ct200_foretells_what_the_recurrent_state_rules_out(ct200: Expansion) -> None:
    assert labels(ct200, [name for name, _ in ct200.unfit]) == [
        "ddtree-b32 TP1 concurrency c8 512 tokens",
        "ddtree-b64 TP1 concurrency c4 512 tokens",
        "ddtree-b64 TP1 concurrency c8 512 tokens",
    ]
    assert [because for _, because in ct200.unfit] == [
        "recurrent state alone needs 39.0 GiB, 29.0 GiB are left",
        "recurrent state alone needs 37.9 GiB, 29.0 GiB are left",
        "recurrent state alone needs 75.7 GiB, 29.0 GiB are left",
    ]


def test_ct200_starts_twenty_servers_as_large_as_fits(ct200: Expansion) -> None:
    assert ct200.launches == 20
    measured = {one.deployment for one in ct200.measured}
    sizes = {one.label: one.size for one in ct200.deployments if one.id in measured}
    assert len(sizes) == 20
    assert {label: size for label, size in sizes.items() if size != 8} == {"ddtree-b32 TP1": 4, "ddtree-b64 TP1": 2}
    assert ct200.notes == (
        "ddtree-b32 TP1 is sized for 4 requests, ar TP1 for 8: more do not fit (c163 to c171, 8 cells)",
        "ddtree-b64 TP1 is sized for 2 requests, ar TP1 for 8: more do not fit (c190 to c198, 7 cells)",
    )


def test_an_unfit_cell_has_a_server_of_just_its_size_should_it_be_tried_all_the_same(ct200: Expansion) -> None:
    for name, _ in ct200.unfit:
        cell = next(one for one in ct200.cells if one.id == name)
        assert deployment_of(ct200, name).size == cell.point.concurrency


def test_ct200_places_servers_as_the_plan_says(ct200: Expansion) -> None:
    placements = {one.tensor_parallel: one.placement for one in ct200.deployments}
    assert placements == {
        1: Placement((7,), "numa"),
        4: Placement((4, 5, 6, 7), "numa"),
        8: Placement(tuple(range(8)), "numa"),
    }


def test_without_a_memory_model_everything_fits(ct200_plan: Plan) -> None:
    expansion = expand(ct200_plan, None, TEXTS)
    assert expansion.unfit == ()
    assert {one.size for one in expansion.deployments} == {8}
    assert len(expansion.deployments) == 24
    assert expansion.memory == {}


def test_the_host_may_know_the_memory_of_its_gpus_better_than_the_plan(ct200_plan: Plan) -> None:
    larger = expand(ct200_plan, memory_of(ct200_plan, gpu_gib=139.8), TEXTS)
    assert labels(larger, [name for name, _ in larger.unfit]) == ["ddtree-b64 TP1 concurrency c8 512 tokens"]


def test_memory_is_told_for_each_deployment(ct200: Expansion) -> None:
    assert set(ct200.memory) == {one.id for one in ct200.deployments}
    unfit = {deployment_of(ct200, name).id for name, _ in ct200.unfit}
    assert {name for name, fit in ct200.memory.items() if fit.verdict is Verdict.UNFIT} == unfit


# --- placeholders


def test_a_placeholder_that_is_the_whole_string_keeps_its_type(small: Plan) -> None:
    expansion = expand(small, None, TEXTS)
    tree = next(one for one in expansion.deployments if one.method == "tree-b8")
    assert tree.args == {"attention-backend": "triton", "mem-fraction-static": 0.85, "label": "b8", "raw": 8}
    assert tree.speculative == Speculative("ddtree", budget=8, block_size=16)
    assert tree.variables == {"budget": 8}
    assert tree.env == {"NCCL_P2P_LEVEL": "SYS", "OMP_NUM_THREADS": "8"}


def test_braces_that_are_no_placeholder_stay_as_they_are(small_text: str) -> None:
    text = small_text.replace('raw: "{budget}"', """raw: '{"tokens": {budget}, "x": []}'""")
    expansion = expand(parse_plan(text, "x.yaml"), None, TEXTS)
    raw = {one.method: one.args.get("raw") for one in expansion.deployments}
    assert raw["tree-b16"] == '{"tokens": 16, "x": []}'


# --- order and ids


def test_the_baseline_comes_first(small_text: str) -> None:
    expansion = expand(parse_plan(small_text.replace("baseline: ar", "baseline: tree-b16"), "x.yaml"), None, TEXTS)
    assert [one.label for one in expansion.deployments] == [
        "tree-b16 TP1",
        "tree-b16 TP2",
        "ar TP1",
        "ar TP2",
        "tree-b8 TP1",
        "tree-b8 TP2",
    ]


def test_ids_count_up_in_the_order_of_the_table(ct200: Expansion) -> None:
    assert [one.id for one in ct200.cells] == [f"c{number:03d}" for number in range(1, 217)]
    assert [one.id for one in ct200.deployments] == [
        f"d{number:02d}" for number in range(1, len(ct200.deployments) + 1)
    ]
    first_use = list(dict.fromkeys(one.deployment for one in ct200.cells))
    assert first_use == [one.id for one in ct200.deployments]


def test_an_expansion_survives_json(small: Plan) -> None:
    expansion = expand(small, None, TEXTS)
    again: list[Cell | Deployment] = []
    again += [deployment_from_json(json.loads(json.dumps(to_json(one)))) for one in expansion.deployments]
    again += [cell_from_json(json.loads(json.dumps(to_json(one)))) for one in expansion.cells]
    assert again == [*expansion.deployments, *expansion.cells]


def test_rounds_and_times_come_from_the_protocol(small: Plan) -> None:
    cells = expand(small, None, TEXTS).cells
    assert {one.rounds for one in cells} == {2}
    assert {(one.point.request_timeout, one.point.stall_timeout) for one in cells} == {(5400.0, 90.0)}
    assert expand(small, None, TEXTS).launches == 10


# --- points


def test_requests_of_each_kind(small: Plan) -> None:
    points = [one.point for one in expand(small, None, TEXTS).cells[:5]]
    assert [
        (one.kind, one.concurrency, one.max_tokens, one.repetitions, one.requests, one.turns) for one in points
    ] == [
        ("single", 1, 64, 2, 5, "replay"),
        ("single", 1, 128, 2, 5, "replay"),
        ("closed-loop", 1, 32, 1, 8, "replay"),
        ("closed-loop", 4, 32, 1, 16, "replay"),
        ("conversation", 1, 50, 1, 3, "live"),
    ]


def test_the_context_holds_the_longest_prompt_and_output_of_a_deployments_cells(small: Plan) -> None:
    first = expand(small, None, TEXTS).deployments[0]
    # The live conversation: 1000 tokens of script, three outputs of 50, rounded up to 256.
    assert first.context_tokens == 1280
    longer = expand(small, None, {**TEXTS, "five": TextSize(5, 5000)}).deployments[0]
    assert longer.context_tokens == 5376


def test_sizes_of_texts_are_upper_estimates() -> None:
    assert size_of_prompts(["a" * 300, "b" * 3]) == TextSize(2, 116)
    assert size_of_prompts([]) == TextSize(0, 0)
    # The last answer is measured, not sent.
    assert size_of_script("s" * 30, [("u" * 30, "a" * 300), ("u" * 30, "a" * 30_000)]) == TextSize(2, 194)
    assert tokens_of("1234567890") == 26
    assert tokens_of("δένδρο") == 28


# --- sizes and server arguments

TWO_LENGTHS = """
name: x
host: box
model: {path: /m}
engine: {kind: sglang}
methods: {ar: {}, other: {args: {x: 1}}}
baseline: ar
workloads:
  load: {kind: closed-loop, prompts: short, max_tokens: 100, concurrency: [1, 2, 8]}
  talk: {kind: conversation, script: long, max_tokens: 100}
placement: none
"""


def memory_for(gpu_gib: float) -> MemoryModel:
    plan = parse_plan(
        TWO_LENGTHS.replace(
            "model: {path: /m}",
            "model: {path: /m, shape: {weights_gib: 10, attention_layers: 0, kv_heads: 1, head_dim: 1, "
            "recurrent_layers: 1, key_heads: 0, key_dim: 1024, value_heads: 1024, value_dim: 256, state_bytes: 4}}",
        ),
        "x.yaml",
    )
    memory = memory_of(plan, gpu_gib)
    assert memory is not None
    # 1 GiB of state for each request, 1 MiB of KV cache for each token.
    return replace(
        memory, shape=replace(memory.shape, attention_layers=1, kv_heads=1, head_dim=1 << 18), workspace_gib=0
    )


TWO_TEXTS = {"short": TextSize(5, 0), "long": TextSize(5, 4 * 1024)}


def sizes(expansion: Expansion) -> list[tuple[str, int, list[str]]]:
    return [
        (one.method, one.size, [cell.point.label for cell in expansion.cells if cell.deployment == one.id])
        for one in expansion.deployments
    ]


def test_a_cell_that_fits_only_a_smaller_server_gets_one_of_that_size() -> None:
    plan = parse_plan(TWO_LENGTHS, "x.yaml")
    # Weights 10, eight states 8, and 0.8 for eight requests of 100 tokens; the conversation needs 4.1 beside a state.
    expansion = expand(plan, memory_for(20), TWO_TEXTS)
    assert expansion.unfit == ()
    assert sizes(expansion)[:2] == [
        ("ar", 8, ["load c1 100 tokens", "load c2 100 tokens", "load c8 100 tokens"]),
        ("ar", 2, ["talk c1 100 tokens"]),
    ]
    assert expansion.notes == ()


def test_what_fits_nowhere_else_keeps_its_own_concurrency_as_size() -> None:
    plan = parse_plan(TWO_LENGTHS, "x.yaml")
    expansion = expand(plan, memory_for(15.2), TWO_TEXTS)
    assert [(name, because) for name, because in expansion.unfit] == [
        ("c003", "recurrent state alone needs 8.0 GiB, 5.2 GiB are left"),
        ("c007", "recurrent state alone needs 8.0 GiB, 5.2 GiB are left"),
    ]
    assert sizes(expansion)[:3] == [
        ("ar", 2, ["load c1 100 tokens", "load c2 100 tokens"]),
        ("ar", 8, ["load c8 100 tokens"]),
        ("ar", 1, ["talk c1 100 tokens"]),
    ]


def test_a_method_with_fewer_cells_is_still_sized_like_the_others() -> None:
    text = f"{TWO_LENGTHS}skip: [{{method: other, concurrency: 8}}]\n"
    expansion = expand(parse_plan(text, "x.yaml"), None, TWO_TEXTS)
    assert {(one.method, one.size) for one in expansion.deployments} == {("ar", 8), ("other", 8)}


def test_a_method_answers_to_a_skip_rule_by_the_name_of_its_for(small_text: str) -> None:
    text = small_text.replace("budget: 16, because", "method: tree, because")
    skipped = expand(parse_plan(text, "x.yaml"), None, TEXTS).skipped
    assert len(skipped) == 10


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("{workload: talk}", 6),
        ("{kind: [single, conversation]}", 18),
        ("{concurrency: 4}", 6),
        ("{max_tokens: [64, 128]}", 12),
        ("{max_tokens: 64.0}", 6),
        ("{budget: 8, concurrency: 4, tensor_parallel: 1}", 1),
        ("{method: [ar, tree-b8]}", 20),
    ],
)
def test_skip_rules_match_any_axis(small_text: str, rule: str, count: int) -> None:
    text = small_text.replace("{tensor_parallel: 2, budget: 16, because: too slow}", rule)
    skipped = expand(parse_plan(text, "x.yaml"), None, TEXTS).skipped
    assert len(skipped) == count
    assert {because for _, because in skipped} == {"skipped in the plan"}


def test_server_arguments_of_a_workload_make_deployments_of_their_own_and_say_what_they_cost(small_text: str) -> None:
    text = small_text.replace("turns: live}", "turns: live, server_args: {disable-radix-cache: true, raw: other}}")
    expansion = expand(parse_plan(text, "x.yaml"), None, TEXTS)
    assert [one.label for one in expansion.deployments[:2]] == ["ar TP1", "ar TP1"]
    talk = expansion.deployments[1]
    assert talk.args["disable-radix-cache"] is True
    assert talk.size == 1
    of_tree = [one for one in expansion.deployments if one.method == "tree-b8" and one.size == 1]
    assert of_tree[0].args["raw"] == "other"
    assert expansion.launches == 20
    assert expansion.notes == ("server arguments of talk cost 10 more server starts",)


# --- placement


def test_sizes_without_a_placement_get_the_first_gpus(small_text: str) -> None:
    plan = parse_plan(small_text.replace("1: [3], 2: [2, 3], ", ""), "x.yaml")
    assert [plan.placement_of(size) for size in (1, 2)] == [Placement((0,), "numa"), Placement((0, 1), "numa")]


def test_a_plan_can_do_without_gpus(small_text: str) -> None:
    plan = parse_plan(small_text.replace("{1: [3], 2: [2, 3], bind: numa}", "none"), "x.yaml")
    assert plan.placement_of(2) == Placement((), "none")


# --- in general

IDS = s.from_regex(r"\A[a-z][a-z0-9]{0,5}\Z")


@given(
    methods=s.lists(IDS, min_size=1, max_size=4, unique=True),
    sizes=s.lists(s.integers(1, 8), min_size=1, max_size=3, unique=True),
    concurrency=s.lists(s.integers(1, 64), min_size=1, max_size=3, unique=True),
    lengths=s.lists(s.integers(1, 4096), min_size=1, max_size=3, unique=True),
    gpu=s.none() | s.floats(11, 80),
    data=s.data(),
)
def test_any_plan_expands_to_each_combination_once_in_a_stable_order(
    methods: list[str],
    sizes: list[int],
    concurrency: list[int],
    lengths: list[int],
    gpu: float | None,
    data: s.DataObject,
) -> None:
    plan = Plan.model_validate(
        {
            "name": "x",
            "host": "local",
            "model": {"path": "/m"},
            "engine": {"kind": "sglang"},
            "methods": {name: {} for name in methods},
            "baseline": data.draw(s.sampled_from(methods)),
            "tensor_parallel": sizes,
            "workloads": {
                "load": {"kind": "closed-loop", "prompts": "p", "max_tokens": lengths, "concurrency": concurrency},
                "talk": {"kind": "conversation", "script": "q", "max_tokens": lengths[0]},
            },
        }
    )
    memory = memory_for(gpu) if gpu is not None else None
    expansion = expand(plan, memory)
    assert expansion == expand(plan, memory)
    by_id = {one.id: one for one in expansion.deployments}
    assert len(by_id) == len(expansion.deployments)
    assert len({one.id for one in expansion.cells}) == len(expansion.cells)
    combinations = {(by_id[one.deployment].label, one.point) for one in expansion.cells}
    assert len(combinations) == len(methods) * len(sizes) * (len(concurrency) * len(lengths) + 1)
    unfit = {name for name, _ in expansion.unfit}
    for cell in expansion.cells:
        deployment = by_id[cell.deployment]
        assert deployment.size >= cell.point.concurrency
        assert deployment.context_tokens >= cell.point.max_tokens
        if cell.id not in unfit and memory is not None:
            assert expansion.memory[cell.deployment].verdict is Verdict.POSSIBLE


def test_an_open_loop_has_a_point_for_each_rate_and_prompts_of_a_length(small_text: str) -> None:
    closed = "load: {kind: closed-loop, prompts: five, max_tokens: 32, concurrency: [1, 4]}"
    loop = 'load: {kind: open-loop, prompts: "random:512", max_tokens: [32, 64], rate: [0.5, 4], concurrency: 16}'
    assert closed in small_text
    expansion = expand(parse_plan(small_text.replace(closed, loop), "small.yaml"))
    points = [cell.point for cell in expansion.cells if cell.point.workload == "load"]
    asked = {(one.kind, one.rate, one.max_tokens, one.concurrency, one.requests, one.arrivals) for one in points}
    assert asked == {("open-loop", rate, tokens, 16, 64, "poisson") for rate in (0.5, 4.0) for tokens in (32, 64)}
    assert {one.label for one in points} == {f"load {rate}/s {n} tokens" for rate in ("0.5", "4") for n in (32, 64)}
    assert all(cell_from_json(to_json(cell)) == cell for cell in expansion.cells)
    with pytest.raises(PlanError, match="write random:1024"):
        parse_plan(small_text.replace(closed, loop.replace("512", "0.5k")), "small.yaml")


def test_a_unit_that_no_launch_needs_out_of_the_way_is_told(small_text: str) -> None:
    assert "displace:\n" in small_text
    text = small_text.replace("displace:\n", "displace:\n  - {unit: idle.service, needs_gpu: 77}\n", 1)
    notes = [one for one in expand(parse_plan(text, "small.yaml")).notes if one.startswith("displace: ")]
    told = "displace: idle.service is left running: no launch is placed on GPU 77 (placement: names the GPUs)"
    assert told in notes
