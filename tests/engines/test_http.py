"""Readiness, counters and flushing against recorded endpoint answers."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ddconsole.core.sweep import Speculative
from ddconsole.engines import sglang_http
from ddconsole.engines.engine import Answer, LogReader, ServerApi, ServerStart
from ddconsole.engines.register import engine

Start = Callable[..., ServerStart]
Lines = Callable[[str], list[str]]
Recorded = Callable[[str, str], dict[str, Answer]]
Api = Callable[[Mapping[str, Any]], ServerApi]

SGLANG = engine("sglang")
LLAMA = engine("llamacpp")
QWEN = "/srv/rig/models/q3s"


def read(kind: str, lines: list[str]) -> LogReader:
    reader = engine(kind).log_reader()
    for line in lines:
        reader.feed(line)
    return reader


def changed(answer: Answer, **fields: Any) -> Answer:
    body = {**answer.body, **fields}
    return Answer(answer.status, body, json.dumps(body))


async def test_a_dflash_server_is_ready_and_tells_its_effective_arguments(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start
) -> None:
    asked = start(speculative=Speculative("dflash", block_size=8), served_name=QWEN, size=8)
    log = read("sglang", log_lines("sglang/spec-dflash.log"))
    server = api(recorded("sglang", "spec-dflash"))
    ready = await SGLANG.check_ready(server, asked, log)
    assert ready.ready, ready.why
    assert ready.build == {"engine": "sglang", "version": "0.5.16"}
    assert ready.effective["speculative_algorithm"] == "DFLASH"
    assert ready.effective["max_running_requests"] == 16
    assert ready.effective["disable_overlap_schedule"] is False
    assert ready.effective["random_seed"] == 1053921218
    assert "served_model_name" not in ready.effective
    assert "/health" not in getattr(server, "asked", ["/health"])


@pytest.mark.parametrize(
    ("run", "typed"),
    [
        ("base", None),
        ("spec-ngram", Speculative("ngram")),
        ("spec-standalone", Speculative("draft")),
        ("spec-eagle", Speculative("eagle")),
    ],
)
async def test_recorded_servers_agree_with_their_deployments(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start, run: str, typed: Speculative | None
) -> None:
    asked = start(speculative=typed, served_name=QWEN)
    ready = await SGLANG.check_ready(
        api(recorded("sglang", run)), asked, read("sglang", log_lines(f"sglang/{run}.log"))
    )
    assert ready.ready, ready.why


@pytest.mark.parametrize(
    ("run", "typed", "words"),
    [
        ("base", Speculative("dflash"), "without any"),
        ("spec-dflash", None, "baseline runs with speculation DFLASH"),
        ("spec-dflash", Speculative("ddtree", budget=16), "DDTREE was asked for"),
        ("spec-dflash", Speculative("dflash", block_size=16), "block size 16 was asked for, the server took 8"),
    ],
)
async def test_speculation_that_is_not_as_asked_is_final(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start, run: str, typed: Speculative | None, words: str
) -> None:
    asked = start(speculative=typed, served_name=QWEN)
    answers = recorded("sglang", run)
    ready = await SGLANG.check_ready(api(answers), asked, read("sglang", log_lines(f"sglang/{run}.log")))
    assert not ready.ready
    assert ready.cause is not None
    assert ready.cause.id == "SPECULATION-OFF"
    assert words in ready.cause.text


async def test_the_worker_line_must_stand_in_the_log(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start
) -> None:
    asked = start(speculative=Speculative("dflash"), served_name=QWEN)
    lines = [line for line in log_lines("sglang/spec-dflash.log") if "Initialized DFLASH" not in line]
    answers = recorded("sglang", "spec-dflash")
    ready = await SGLANG.check_ready(api(answers), asked, read("sglang", lines))
    assert ready.cause is not None
    assert "worker was initialised" in ready.cause.text
    answers["/server_info"] = changed(answers["/server_info"], log_level="warning")
    assert (await SGLANG.check_ready(api(answers), asked, read("sglang", lines))).ready


@pytest.mark.parametrize(("budget", "fine"), [(16, True), (32, False)])
async def test_ddtree_of_a_fork(api: Api, recorded: Recorded, start: Start, budget: int, fine: bool) -> None:
    answers = recorded("sglang", "spec-dflash")
    answers["/server_info"] = changed(answers["/server_info"], speculative_algorithm="DDTREE")
    log = read(
        "sglang",
        [
            "Initialized DDTree worker. block_size=16, tree_budget=16, max_tree_nodes=17",
            "The server is fired up and ready to roll!",
        ],
    )
    asked = start(speculative=Speculative("ddtree", budget=budget, block_size=16), served_name=QWEN)
    ready = await SGLANG.check_ready(api(answers), asked, log)
    assert ready.ready is fine
    assert (ready.cause is None) is fine


async def test_a_budget_that_does_not_branch_is_told(api: Api, recorded: Recorded, start: Start) -> None:
    answers = recorded("sglang", "spec-dflash")
    answers["/server_info"] = changed(answers["/server_info"], speculative_algorithm="DDTREE")
    lines = [
        "Initialized DDTree worker. block_size=16, tree_budget=8, max_tree_nodes=9",
        "The server is fired up and ready to roll!",
    ]
    asked = start(speculative=Speculative("ddtree", budget=8), served_name=QWEN)
    ready = await SGLANG.check_ready(api(answers), asked, read("sglang", lines))
    assert ready.ready
    assert ready.effective["branches"] is False


async def test_not_yet_ready_has_no_cause(api: Api, recorded: Recorded, start: Start) -> None:
    asked = start(served_name=QWEN)
    log = read("sglang", [])
    refused = await SGLANG.check_ready(api({"/v1/models": ConnectionRefusedError()}), asked, log)
    assert (refused.ready, refused.cause) == (False, None)
    assert "port 30007" in refused.why
    answers = recorded("sglang", "base")
    warming = await SGLANG.check_ready(api(answers), asked, log)
    assert (warming.ready, warming.cause) == (False, None)
    assert "warm-up" in warming.why
    answers["/model_info"] = Answer(503, None, "")
    assert (await SGLANG.check_ready(api(answers), asked, log)).why == "/model_info answers 503"


async def test_without_info_lines_health_is_asked_once_the_port_is_open(
    api: Api, recorded: Recorded, start: Start
) -> None:
    answers = recorded("sglang", "base")
    answers["/server_info"] = changed(answers["/server_info"], log_level="warning")
    answers["/health"] = Answer(503, None, "")
    asked = start(served_name=QWEN)
    assert not (await SGLANG.check_ready(api(answers), asked, read("sglang", []))).ready
    answers["/health"] = Answer(200, None, "")
    assert (await SGLANG.check_ready(api(answers), asked, read("sglang", []))).ready


async def test_another_server_on_the_port_is_final(api: Api, recorded: Recorded, start: Start) -> None:
    answers = recorded("sglang", "base")
    log = read("sglang", ["The server is fired up and ready to roll!"])
    ready = await SGLANG.check_ready(api(answers), start(served_name="run/l02"), log)
    assert ready.cause is not None
    assert ready.cause.id == "FOREIGN-SERVER"
    assert QWEN in ready.cause.text
    nobody = await SGLANG.check_ready(api({}), start(), log)
    assert nobody.cause is not None
    assert nobody.cause.id == "FOREIGN-SERVER"


async def test_a_taken_port_is_final_although_the_log_says_ready(api: Api, log_lines: Lines, start: Start) -> None:
    log = read("sglang", log_lines("sglang/cpu-err-port-in-use.log"))
    assert log.facts["ready"] is True
    ready = await SGLANG.check_ready(api({}), start(), log)
    assert ready.cause is not None
    assert ready.cause.id == "PORT-HTTP"


async def test_a_server_smaller_than_its_cells_is_final(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start
) -> None:
    log = read("sglang", log_lines("sglang/spec-dflash.log"))
    asked = start(speculative=Speculative("dflash"), served_name=QWEN, size=17)
    ready = await SGLANG.check_ready(api(recorded("sglang", "spec-dflash")), asked, log)
    assert ready.cause is not None
    assert ready.cause.id == "SIZE-CAPPED"


async def test_sglang_counters(api: Api, recorded: Recorded) -> None:
    dflash = await SGLANG.counters(api(recorded("sglang", "spec-dflash")))
    assert dflash is not None
    assert (dflash.output_tokens, dflash.prompt_tokens, dflash.cached_tokens) == (2120, 1285, 429)
    assert dflash.verify_steps == 2107
    trained = await SGLANG.counters(api(recorded("sglang", "cpu-0.5.23")))
    assert trained is not None
    assert (trained.output_tokens, trained.verify_steps) == (608, 252)


async def test_counters_of_all_data_parallel_ranks_and_one_tensor_parallel_rank(api: Api) -> None:
    text = "\n".join(
        f'sglang:generation_tokens_total{{dp_rank="{dp}",tp_rank="{tp}"}} {10.0 * (dp + 1)}'
        for dp in (0, 1)
        for tp in (0, 1)
    )
    found = await SGLANG.counters(api({"/metrics": Answer(200, None, text)}))
    assert found is not None
    assert found.output_tokens == 30
    assert found.verify_steps is None


async def test_the_engines_times_to_the_first_token_are_counted_over_all_kinds_of_requests(api: Api) -> None:
    labels = 'engine_type="unified",is_streaming="{}",model_name="tiny"'
    name = "sglang:time_to_first_token_seconds"
    text = "\n".join(
        f"{name}_{part}{{{labels.format(streaming)}}} {value}"
        for streaming, values in (("false", (0.25, 3.0)), ("true", (0.5, 4.0)))
        for part, value in zip(("sum", "count"), values, strict=True)
    )
    text += f'\n{name}_bucket{{{labels.format("true")},le="0.1"}} 2.0'
    found = await SGLANG.counters(api({"/metrics": Answer(200, None, text)}))
    assert found is not None
    assert (found.ttft_seconds, found.ttft_count) == (0.75, 7)


async def test_without_metrics_the_schedulers_average_is_only_noted(api: Api, recorded: Recorded) -> None:
    answers = recorded("sglang", "spec-dflash")
    del answers["/metrics"]
    found = await SGLANG.counters(api(answers))
    assert found is not None
    assert found.output_tokens is None
    assert found.verify_steps is None
    assert found.raw == {"avg_spec_accept_length": 1.0}
    assert await SGLANG.counters(api({})) is None


async def test_running_requests_of_sglang(api: Api, recorded: Recorded) -> None:
    answers = recorded("sglang", "base")
    assert await SGLANG.running_requests(api(answers)) == 0
    answers["/v1/loads"] = answers["busy /v1/loads"]
    assert await SGLANG.running_requests(api(answers)) == 8
    assert (
        await SGLANG.running_requests(api({"/get_load": answers["busy /get_load"]}))
        == answers["busy /get_load"].body[0]["num_reqs"]
    )
    two = await SGLANG.running_requests(api(recorded("sglang", "dp2 /v1/loads")))
    assert two is not None
    assert two > 0
    assert await SGLANG.running_requests(api({})) is None


async def test_the_flush_is_asked_until_it_is_done(
    api: Api, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sglang_http, "FLUSH_PAUSE", 0.0)
    busy = Answer(400, None, "Flush cache failed")
    done = recorded("sglang", "cpu-0.5.23")["/flush_cache"]
    flush = await SGLANG.flush_cache(api({"/flush_cache": [busy, busy, done]}))
    assert flush.done
    assert "attempt 3" in flush.detail
    assert not (await SGLANG.flush_cache(api({"/flush_cache": busy}))).done
    assert not (await SGLANG.flush_cache(api({}))).done


async def test_llama_readiness(api: Api, recorded: Recorded, log_lines: Lines, start: Start) -> None:
    answers = recorded("llamacpp", "xllamacpp")
    log = read("llamacpp", log_lines("llamacpp/xllamacpp-start.log"))
    asked = start(served_name="models/tinypy.gguf", size=4, context_tokens=2000)
    ready = await LLAMA.check_ready(api(answers), asked, log)
    assert ready.ready, ready.why
    assert ready.effective == {
        "total_slots": 4,
        "model_path": "models/tinypy.gguf",
        "model_ftype": "F16",
        "endpoint_metrics": True,
        "context_per_slot": 2048,
        "speculative": False,
    }
    assert ready.build["version"] == "b0-unknown"
    for fields, expected in (({"size": 5}, "SIZE-CAPPED"), ({"size": 4, "context_tokens": 3000}, "CONTEXT-CAPPED")):
        refused = await LLAMA.check_ready(api(answers), start(served_name="models/tinypy.gguf", **fields), log)
        assert refused.cause is not None
        assert refused.cause.id == expected
    foreign = await LLAMA.check_ready(api(answers), start(), log)
    assert foreign.cause is not None
    assert foreign.cause.id == "FOREIGN-SERVER"


async def test_a_llama_server_that_loads_or_is_not_there(api: Api, start: Start, log_lines: Lines) -> None:
    log = read("llamacpp", [])
    loading = await LLAMA.check_ready(api({"/health": Answer(503, None, "")}), start(), log)
    assert (loading.ready, loading.cause) == (False, None)
    refused = await LLAMA.check_ready(api({"/health": ConnectionRefusedError()}), start(), log)
    assert (refused.ready, refused.cause) == (False, None)
    taken = await LLAMA.check_ready(api({}), start(), read("llamacpp", log_lines("llamacpp/err-port-in-use.log")))
    assert taken.cause is not None
    assert taken.cause.id == "LC-BIND"


async def test_llama_speculation_must_be_in_effect(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start
) -> None:
    answers = recorded("llamacpp", "xllamacpp")
    asked = start(served_name="models/tinypy.gguf", speculative=Speculative("draft"))
    refused = await LLAMA.check_ready(
        api(answers), asked, read("llamacpp", log_lines("llamacpp/xllamacpp-wrong-draft.log"))
    )
    assert refused.cause is not None
    assert refused.cause.id == "SPECULATION-OFF"
    assert "vocabs are not compatible" in refused.cause.evidence[0]
    silent = await LLAMA.check_ready(api(answers), asked, read("llamacpp", []))
    assert silent.cause is not None
    assert silent.cause.id == "SPECULATION-OFF"
    answers["/slots"] = recorded("llamacpp", "draft")["/slots"]
    assert (await LLAMA.check_ready(api(answers), asked, read("llamacpp", []))).ready
    baseline = await LLAMA.check_ready(api(answers), start(served_name="models/tinypy.gguf"), read("llamacpp", []))
    assert baseline.cause is not None
    assert "baseline" in baseline.cause.text


async def test_llama_counters_count_steps_that_drafted_nothing_too(api: Api, recorded: Recorded) -> None:
    draft = await LLAMA.counters(api(recorded("llamacpp", "draft")))
    assert draft is not None
    assert (draft.output_tokens, draft.drafted, draft.accepted) == (700, 1136, 409)
    assert draft.drafting_steps == 287
    assert draft.raw["llamacpp:spec_decode_num_drafts_total"] == 287
    assert (draft.prompt_tokens, draft.cached_tokens) == (29, 10)
    plain = await LLAMA.counters(api(recorded("llamacpp", "plain")))
    assert plain is not None
    assert plain.drafting_steps == 0
    assert await LLAMA.counters(api({})) is None


async def test_running_requests_of_llama(api: Api, recorded: Recorded) -> None:
    answers = recorded("llamacpp", "draft")
    assert await LLAMA.running_requests(api(answers)) == 0
    answers["/metrics"] = Answer(200, None, "llamacpp:requests_processing 3\nllamacpp:requests_deferred 2\n")
    assert await LLAMA.running_requests(api(answers)) == 5
    slots = [{"id": 0, "is_processing": True}, {"id": 1, "is_processing": False}]
    assert await LLAMA.running_requests(api({"/slots": Answer(200, slots, "")})) == 1
    assert await LLAMA.running_requests(api({})) is None


async def test_llama_flush_says_when_it_is_none(api: Api) -> None:
    slots = Answer(200, [{"id": 0}, {"id": 1}], "")
    erased = Answer(200, {"id_slot": 0, "n_erased": 3}, "")
    unsupported = Answer(501, {"error": {"code": 501}}, "")
    good = {"/slots": slots, "/slots/0?action=erase": erased, "/slots/1?action=erase": erased}
    assert (await LLAMA.flush_cache(api(good))).done
    assert not (await LLAMA.flush_cache(api({**good, "/slots/1?action=erase": unsupported}))).done
    assert not (await LLAMA.flush_cache(api({**good, "/slots/0?action=erase": Answer(400, None, "")}))).done
    assert not (await LLAMA.flush_cache(api({}))).done
