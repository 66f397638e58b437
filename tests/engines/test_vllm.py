"""vLLM: command lines, its log, its endpoints and its failures, against recordings of vLLM 0.32 on a CPU."""

import json
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

import pytest

from ddconsole.core.sweep import Sampling, Speculative, WorkloadPoint
from ddconsole.engines.engine import Answer, DecodeLine, EngineArgumentError, LogItem, ServerApi, ServerStart, Step
from ddconsole.engines.failures import classify
from ddconsole.engines.register import engine
from ddconsole.engines.vllm_flags import server_command
from ddconsole.engines.vllm_log import VllmLog
from ddconsole.runner.acceptance import acceptance_from_counters

Start = Callable[..., ServerStart]
Lines = Callable[[str], list[str]]
Recorded = Callable[[str, str], dict[str, Answer]]
Api = Callable[[Mapping[str, Any]], ServerApi]

VLLM = engine("vllm")


def read(lines: list[str]) -> tuple[VllmLog, list[LogItem]]:
    reader = VllmLog()
    return reader, [item for line in lines for item in reader.feed(line)]


def steps(items: list[LogItem]) -> list[str]:
    return [name for name, _ in groupby(item.name for item in items if isinstance(item, Step))]


# --- the command line


def test_what_ddconsole_sets_and_the_size_of_the_deployment(start: Start) -> None:
    command = server_command(start({"max-model-len": 4096}, size=4, tensor_parallel=1))
    assert command.argv[3:] == (
        "/models/target",
        *("--served-model-name", "run/l01", "--host", "127.0.0.1", "--port", "30007", "--tensor-parallel-size", "1"),
        *("--max-num-seqs", "4", "--max-model-len", "4096"),
    )
    assert command.env["VLLM_SERVER_DEV_MODE"] == "1", "without it no flush is sure"
    assert server_command(start(env={"VLLM_SERVER_DEV_MODE": "0"})).env["VLLM_SERVER_DEV_MODE"] == "0"


def test_the_flag_that_tells_cached_tokens_is_set_where_the_build_has_it(start: Start) -> None:
    known = frozenset({"--enable-prompt-tokens-details", "--seed"})
    assert "--enable-prompt-tokens-details" in server_command(start(known=known)).argv
    assert "--enable-prompt-tokens-details" not in server_command(start(known=frozenset({"--seed"}))).argv


@pytest.mark.parametrize(
    ("speculative", "config"),
    [
        (
            Speculative("ngram", draft_tokens=5),
            {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 5, "prompt_lookup_min": 2},
        ),
        (
            Speculative("dflash", block_size=16),
            {"method": "dflash", "num_speculative_tokens": 15, "model": "/models/draft"},
        ),
        (
            Speculative("draft", draft_model="/models/other"),
            {"method": "draft_model", "num_speculative_tokens": 4, "model": "/models/other"},
        ),
        (Speculative("mtp", draft_tokens=1), {"method": "mtp", "num_speculative_tokens": 1}),
    ],
)
def test_typed_speculation(start: Start, speculative: Speculative, config: dict[str, Any]) -> None:
    argv = server_command(start(speculative=speculative, draft="/models/draft")).argv
    assert json.loads(argv[argv.index("--speculative-config") + 1]) == config


@pytest.mark.parametrize(
    ("asked", "field", "words"),
    [
        ({"speculative": Speculative("ddtree", budget=16)}, "speculative.kind", "vLLM has no tree drafts"),
        ({"speculative": Speculative("eagle3")}, "model.draft", "needs a draft model"),
        ({"args": {"speculative-config": "ngram"}}, "args.speculative-config", "is not a JSON object"),
        ({"args": {"max-num-seqs": 2}, "size": 4}, "args.max-num-seqs", "below the largest concurrency"),
        ({"args": {"tensor-parallel-size": 2}}, "args.tensor-parallel-size", "ddconsole sets this flag itself"),
        ({"args": {"api-key": "x"}}, "args.api-key", "looks like a secret"),
        (
            {"speculative": Speculative("ngram"), "known": frozenset({"--seed"})},
            "speculative.kind",
            "this build has no --speculative-config",
        ),
    ],
)
def test_what_cannot_be_started_is_refused_by_field(
    start: Start, asked: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(EngineArgumentError, match=words) as refused:
        server_command(start(**asked))
    assert refused.value.field == field


def test_the_script_beside_the_interpreter_and_its_metadata() -> None:
    command = VLLM.default_command("/root/venv/bin/python")
    assert command == ("/root/venv/bin/vllm", "serve")
    asked = VLLM.build_command(command)
    assert asked is not None
    assert asked[0] == "/root/venv/bin/python"
    assert "import vllm" not in asked[2], "importing it takes ten seconds"
    assert VLLM.build_command(("my-vllm", "serve")) is None


def test_request_body_asks_for_usage_and_fixed_length() -> None:
    point = WorkloadPoint("g", "single", "five", 1, 64, repetitions=1, requests=0, sampling=Sampling())
    body = VLLM.request_body(None, point)  # type: ignore[arg-type]  # vLLM's does not look at the start
    assert body["stream_options"] == {"include_usage": True}
    assert body["max_tokens"] == 64


# --- the log


def test_the_steps_of_a_start_with_a_draft(log_lines: Lines) -> None:
    reader, items = read(log_lines("vllm/start-spec-draft-trained.log"))
    assert steps(items) == [
        "import",
        "init engine",
        "load weights",
        "load draft weights",
        "allocate KV cache",
        "start HTTP",
        "ready",
    ]
    assert reader.facts["version"] == "0.32.0"
    assert reader.facts["speculation"] == {
        "method": "draft_model",
        "model": "models/tinypy-draft-hf",
        "num_speculative_tokens": 4,
    }
    assert reader.facts["kv_tokens"] == 699_008
    effective = reader.facts["effective"]
    assert effective["dtype"] == "torch.float32"
    assert effective["enable_prefix_caching"] == "True"
    assert effective["cudagraph_mode"] == "NONE"
    assert effective["tensor_parallel_size"] == "1"
    lines = [item for item in items if isinstance(item, DecodeLine)]
    assert lines == [DecodeLine(46.8, 0, 0, None), DecodeLine(None, None, None, 2.34)]


def test_baseline_and_ngram_tell_what_they_do(log_lines: Lines) -> None:
    assert read(log_lines("vllm/var-uni.log"))[0].facts["speculation"] is None
    ngram = read(log_lines("vllm/start-spec-ngram.log"))[0].facts["speculation"]
    assert ngram == {"method": "ngram", "num_speculative_tokens": 4}


def test_graph_capture_of_one_rank_and_no_other() -> None:
    reader = VllmLog()
    reader.feed("(APIServer pid=1) INFO x")
    bar = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  50%|#####     | 5/10"
    assert reader.feed(f"(Worker_TP0 pid=7) {bar}") == [Step("capture graphs", 0.5)]
    assert reader.feed(f"(Worker_TP3 pid=9) {bar}") == []


# --- readiness, counters, flush


async def test_a_server_with_a_draft_is_ready_and_tells_what_it_runs_with(
    api: Api, recorded: Recorded, log_lines: Lines, start: Start
) -> None:
    asked = start(speculative=Speculative("draft", draft_tokens=4), draft="d", served_name="tinypy")
    log = read(log_lines("vllm/start-spec-draft-trained.log"))[0]
    ready = await VLLM.check_ready(api(recorded("vllm", "draft")), asked, log)
    assert ready.ready
    assert ready.build == {"engine": "vllm", "version": "0.32.0"}
    assert ready.effective["speculative_method"] == "draft_model"
    assert ready.effective["max_model_len"] == 2048


@pytest.mark.parametrize(
    ("run", "log", "speculative", "words"),
    [
        ("plain", "var-uni", Speculative("ngram"), "the engine runs without it"),
        ("draft", "start-spec-draft-trained", None, "the baseline runs with speculation"),
        ("draft", "start-spec-draft-trained", Speculative("ngram"), "speculates with method draft_model"),
        (
            "draft",
            "start-spec-ngram",
            Speculative("ngram", draft_tokens=8),
            "tokens 4, asked for was 8",
        ),
        ("plain", None, Speculative("ngram"), "the engine runs without it"),
        ("draft", None, None, "the baseline runs with speculation"),
    ],
)
async def test_speculation_other_than_asked_is_final(
    api: Api,
    recorded: Recorded,
    log_lines: Lines,
    start: Start,
    run: str,
    log: str | None,
    speculative: Speculative | None,
    words: str,
) -> None:
    """Also where the log says nothing: the counters of drafts are there only when the engine drafts."""
    reader = VllmLog() if log is None else read(log_lines(f"vllm/{log}.log"))[0]
    name = {"plain": "tiny", "draft": "tinypy"}[run]
    asked = start(speculative=speculative, served_name=name, draft="d")
    ready = await VLLM.check_ready(api(recorded("vllm", run)), asked, reader)
    assert ready.cause is not None
    assert ready.cause.id == "SPECULATION-OFF"
    assert words in ready.cause.text


async def test_before_it_is_ready_and_when_another_answers(api: Api, recorded: Recorded, start: Start) -> None:
    refused = await VLLM.check_ready(api({"/health": ConnectionRefusedError()}), start(), VllmLog())
    assert (refused.ready, refused.cause) == (False, None)
    dead = await VLLM.check_ready(api({"/health": Answer(503, None, "")}), start(), VllmLog())
    assert dead.why == "/health answers 503"
    foreign = await VLLM.check_ready(api(recorded("vllm", "plain")), start(served_name="run/l02"), VllmLog())
    assert foreign.cause is not None
    assert foreign.cause.id == "FOREIGN-SERVER"


async def test_a_taken_port_is_told_from_the_log(api: Api, log_lines: Lines, start: Start) -> None:
    log = read(log_lines("vllm/err-port-in-use.log"))[0]
    ready = await VLLM.check_ready(api({}), start(), log)
    assert ready.cause is not None
    assert ready.cause.id == "PORT-HTTP"


async def test_counters_and_acceptance_of_the_recorded_run(api: Api, recorded: Recorded) -> None:
    """Two requests, 500 tokens, 214 drafts, 286 accepted: 214 verify steps and 2 first tokens make 500 with them."""
    before = await VLLM.counters(api({"/metrics": Answer(200, None, "")}))
    after = await VLLM.counters(api(recorded("vllm", "draft")))
    assert after is not None
    assert (after.output_tokens, after.prompt_tokens, after.drafting_steps) == (500, 28, 214)
    assert (after.drafted, after.accepted, after.cached_tokens) == (856, 286, 0)
    assert after.accepted_at == (123, 80, 49, 34)
    assert sum(after.accepted_at) == after.accepted
    assert after.ttft_count == 2
    assert after.ttft_seconds == pytest.approx(0.0671582)
    zero = type(after)(output_tokens=0, drafting_steps=0, drafted=0, accepted=0)
    told = acceptance_from_counters(zero, after, 2)
    assert told is not None
    assert told.steps == 214
    assert told.engine_length == pytest.approx(2.336, abs=0.001), "its log says 2.34"
    assert before is not None
    assert before.output_tokens is None


async def test_running_requests(api: Api, recorded: Recorded) -> None:
    assert await VLLM.running_requests(api(recorded("vllm", "draft"))) == 0
    text = 'vllm:num_requests_running{engine="0"} 3.0\nvllm:num_requests_waiting{engine="0"} 2.0\n'
    assert await VLLM.running_requests(api({"/metrics": Answer(200, None, text)})) == 5
    assert await VLLM.running_requests(api({"/metrics": Answer(503, None, "")})) is None


async def test_a_flush_is_sure_only_where_the_path_is_there(api: Api) -> None:
    assert (await VLLM.flush_cache(api({"/reset_prefix_cache": Answer(200, None, "")}))).done
    missing = await VLLM.flush_cache(api({}))
    assert not missing.done
    assert "enable-prefix-caching" in missing.detail


# --- failures


@pytest.mark.parametrize(
    ("run", "status", "words"),
    [
        ("err-port-in-use", 1, "port"),
        ("err-bad-model-path", 1, "model"),
        ("err-oom-kvcache", 1, "memory"),
        ("engine-killed", 0, "killed with sigkill"),
    ],
)
def test_recorded_failures_have_a_cause_that_fits(log_lines: Lines, run: str, status: int, words: str) -> None:
    cause = classify("vllm", log_lines(f"vllm/{run}.log"), "init engine", status, we_stopped_it=False)
    assert cause.id not in {"UNKNOWN", "EXIT"}
    assert words in f"{cause.text} {cause.do}".lower()
    assert cause.do
    assert cause.evidence
