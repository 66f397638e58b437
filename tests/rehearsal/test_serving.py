"""What one simulated server tells and streams while it serves."""

import json
import re
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pynvml
import pytest

from ddconsole.rehearsal.command import environment
from ddconsole.rehearsal.nvml import SimulatedNvml
from ddconsole.rehearsal.rates import Method, Speed

if TYPE_CHECKING:
    from tests.rehearsal.conftest import Event, Server

RECORDED = Path(__file__).parents[1] / "fixtures" / "rehearsal"
SPEED = Speed(Method("ddtree", 16), 1, crosses_numa=False)
GIB = 1024**3

# The regular expressions that a reader of SGLang's log was built from, shortened to their required parts.
LOG_SHAPES = {
    "prefix": r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?\] .*$",
    "arguments": r"server_args=ServerArgs\((?P<kv>.*)\)",
    "begin": r"Init torch distributed begin\.",
    "end": r"Init torch distributed ends\.(?: elapsed=(?P<s>[\d.]+) s,)? mem usage=(?P<gb>-?[\d.]+) GB",
    "load begin": r"Load weight begin\. avail mem=(?P<gb>[\d.]+) GB",
    "shards": r"Loading (?:safetensors|pt) checkpoint shards:\s+(?P<pct>\d+)% Completed \| (?P<i>\d+)/(?P<n>\d+)",
    "load end": r"Load weight end\.(?: elapsed=(?P<s>[\d.]+) s,)? type=(?P<type>\w+),.*?avail mem=(?P<a>[\d.]+) GB"
    r"(?:, mem usage=(?P<used>-?[\d.]+) GB)?",
    "dflash": r"Initialized DFLASH draft runner\. attention_backend=(?P<ab>[^,]+), model=(?P<m>[^,]+), block_size=16",
    "ddtree": r"Initialized (?:DDTree|DDTREE v2) worker\. block_size=16, tree_budget=15, max_tree_nodes=16",
    "states": r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<n>\d+), conv_state size: (?P<conv>[\d.]+)\s?GB, "
    r"ssm_state size: (?P<ssm>[\d.]+)\s?GB(?:,?\s+intermediate_ssm_state_cache size: (?P<issm>[\d.]+)\s?GB,?\s+"
    r"intermediate_conv_window_cache size: (?P<iconv>[\d.]+)\s?GB)",
    "kv": r"KV [Cc]ache (?:is )?allocated\.(?: dtype: (?P<dtype>[\w.]+),)? #tokens: (?P<tok>\d+)",
    "pool": r"Memory pool end\. avail mem=(?P<gb>[\d.]+) GB",
    "capture begin": r"Capture (?P<what>(?:target |draft )?(?:verify |decode |prefill )*(?:cuda|CUDA) graph) begin",
    "capturing": r"Capturing (?:batches|num tokens) \((?P<kv>[^)]*)\):?\s*(?P<pct>\d+)?%?",
    "capture end": r"Capture (?P<what>.*?(?:cuda|CUDA) graph) end\.(?: bs=\[[^\]]*\],)?\s*elapsed=(?P<s2>[\d.]+) s,\s*"
    r"mem usage=(?P<gb>-?[\d.]+) GB[.,] avail mem=(?P<avail>[\d.]+) GB",
    "limits": r"max_total_num_tokens=(?P<tok>\d+), chunked_prefill_size=(?P<cps>-?\w+), "
    r"max_prefill_tokens=(?P<mpt>\d+), max_running_requests=(?P<mrr>\d+), "
    r"context_len=(?P<ctx>\d+)(?:, available_gpu_mem=(?P<gb>[\d.]+) GB)?",
    "uvicorn": r"Uvicorn running on http://(?P<host>[^:]+):(?P<port>\d+)",
    "ready": r"The server is fired up and ready to roll!",
}  # fmt: skip
STARTUP = [name for name in LOG_SHAPES if name != "prefix"]
PREFILL = (
    r"Prefill batch(?: \[(?P<it>\d+)\])?[,.] #new-seq: (?P<seq>\d+), #new-token: (?P<tok>\d+), "
    r"#cached-token: (?P<cached>\d+), (?P<usage>.*?)#running-req: (?P<run>\d+), #queue-req: (?P<q>\d+)"
    r"(?:, #pending-token: (?P<pend>\d+))?"
)
DECODE = (
    r"Decode batch(?: \[(?P<it>\d+)\])?[,.] #running-req: (?P<run>\d+), (?:#token: (?P<tok>\d+), "
    r"token usage: (?P<use>[\d.]+), |#full token: (?P<ftok>\d+), full token usage: (?P<fuse>[\d.]+), "
    r"(?:#swa token: \d+, swa token usage: [\d.]+, )?(?:mamba num: (?P<mn>\d+), mamba usage: (?P<muse>[\d.]+), )?)"
    r"(?:accept len: (?P<al>[\d.]+), (?:accept rate: (?P<ar>[\d.]+), )?)?(?P<mid>.*?)(?:cuda graph: (?P<cg>\w+), )?"
    r"gen throughput \(token/s\): (?P<tps>[\d.]+), #queue-req: (?P<q>\d+)"
)


def texts(events: "list[Event]") -> "list[Event]":
    return [
        one for one in events if one.value and one.value["choices"] and one.value["choices"][0]["delta"].get("content")
    ]


def counters(server: "Server") -> dict[str, float]:
    _, text = server.get("/metrics")
    return {
        name: float(value)
        for name, value in re.findall(
            r"^sglang:(\w+_total)\{engine_type=\"unified\",model_name=[^}]*\} (\S+)$", text, re.MULTILINE
        )
    }


def usage_of(events: "list[Event]") -> dict[str, Any]:
    return next(one.value["usage"] for one in reversed(events) if one.value and "usage" in one.value)


def details_of(events: "list[Event]") -> dict[str, Any]:
    return next(one.value["sglext"]["spec_tokens_details"] for one in events if one.value and "sglext" in one.value)


def test_output_comes_at_the_rate_of_the_table(serving: "Server") -> None:
    rates = []
    for number in range(7):
        events = list(serving.chat(f"rate {number}", 1024))
        first, *_, last = texts(events)
        tokens = usage_of(events)["completion_tokens"]
        rates.append((tokens - 1) / ((last.at - first.at) * serving.scale))
    assert statistics.median(rates) == pytest.approx(SPEED.request_rate(), rel=0.02)


def test_acceptance_of_the_requests_is_what_the_counters_grow_by(serving: "Server") -> None:
    before = counters(serving)
    streams = [list(serving.chat(f"count {one}", 300, return_spec_tokens_details=True)) for one in range(3)]
    grown = {name: value - before[name] for name, value in counters(serving).items()}
    steps = sum(details_of(events)["spec_verify_ct"] for events in streams)
    tokens = sum(usage_of(events)["completion_tokens"] for events in streams)
    assert tokens == 900
    assert grown["generation_tokens_total"] == tokens
    assert grown["spec_verify_calls_total"] == steps
    assert grown["num_requests_total"] == 3
    assert tokens / steps == pytest.approx(SPEED.acceptance_length, rel=0.03)


def test_one_chunk_a_step_after_the_first_token(serving: "Server") -> None:
    events = list(serving.chat("chunks", 300, return_spec_tokens_details=True))
    assert events[0].value["choices"][0]["delta"] == {"reasoning_content": None, "role": "assistant", "content": ""}
    assert len(texts(events)) == 1 + details_of(events)["spec_verify_ct"]
    assert events[-1].value is None


def test_the_log_tells_the_start_in_sglang_s_order_and_words(serving: "Server") -> None:
    records = re.split(r"[\r\n]", serving.log)
    found = [
        next((place for place, line in enumerate(records) if re.search(LOG_SHAPES[name], line)), None)
        for name in STARTUP
    ]
    missing = [name for name, place in zip(STARTUP, found, strict=True) if place is None]
    assert missing == []
    assert found == sorted(place for place in found if place is not None)
    plain = [line for line in records if line.startswith("[")]
    assert all(re.match(LOG_SHAPES["prefix"], line) for line in plain)
    assert "SIMULATED" in serving.log


def test_batch_lines_can_be_read(serving: "Server") -> None:
    list(serving.chat("batch lines", 600))
    lines = [line for line in serving.log.splitlines() if " batch" in line]
    decode = [re.search(DECODE, line) for line in lines if "Decode batch" in line]
    prefill = [re.search(PREFILL, line) for line in lines if "Prefill batch" in line]
    assert decode
    assert prefill
    assert all(decode)
    assert all(prefill)
    last = decode[-1]
    assert last is not None
    assert last["cg"] == "True"
    assert float(last["al"]) == pytest.approx(SPEED.acceptance_length, rel=0.4)
    assert float(last["tps"]) == pytest.approx(SPEED.request_rate(), rel=0.4)


def test_the_process_tree_looks_like_sglang_s(serving: "Server") -> None:
    names = set(serving.children)
    assert {"sglang::scheduler", "sglang::detokenizer"} <= names
    assert any("multiprocessing.resource_tracker" in name for name in names)
    assert len(names) == 3
    scheduler = serving.children["sglang::scheduler"]
    assert Path(f"/proc/{scheduler.pid}/comm").read_text(encoding="ascii").strip() == "sglang::schedul"
    assert Path(f"/proc/{scheduler.pid}/environ").read_bytes().strip(b"\0") == b""
    assert psutil.Process(serving.process.pid).cmdline()[1:3] == ["-m", "ddconsole.rehearsal.server"]


def test_the_simulated_gpu_shows_the_scheduler_and_its_memory(
    serving: "Server", monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment(serving.folder, serving.scale).items():
        monkeypatch.setenv(name, value)
    nvml = SimulatedNvml()
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(6)
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2)
    assert 75 * GIB < memory.used < 90 * GIB
    pids = [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
    assert pids == [serving.children["sglang::scheduler"].pid]
    assert nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(5)) == []
    events = serving.chat("busy", 4000)
    next(events)
    serving.wait_for("utilisation", lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu > 90)
    events.close()
    serving.wait_for("idleness", lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 0)


def test_a_client_that_leaves_is_noticed_later(serving: "Server") -> None:
    events = serving.chat("leave", 6000)
    next(events)
    left = time.monotonic()
    events.close()
    running = [load(serving)["num_running_reqs"]]
    serving.wait_for("the end of the request", lambda: load(serving)["num_running_reqs"] == 0)
    assert running == [1]
    # Not before 2 s of the rehearsal's clock; how much later depends on the machine.
    assert (time.monotonic() - left) * serving.scale >= 2.0


def load(server: "Server") -> dict[str, Any]:
    one: dict[str, Any] = json.loads(server.get("/v1/loads")[1])["loads"][0]
    return one


def test_loads_are_told_under_the_recorded_names(serving: "Server") -> None:
    recorded = json.loads((RECORDED / "loads.json").read_text(encoding="utf-8"))["loads"][0]
    told = load(serving)
    assert set(told) == set(recorded) - {"disaggregation"}
    assert set(told["memory"]) == set(recorded["memory"])
    assert set(told["speculative"]) == set(recorded["speculative"])


def test_the_server_says_what_it_is_and_that_it_is_simulated(serving: "Server") -> None:
    info = json.loads(serving.get("/server_info")[1])
    assert info["simulated"] is True
    assert info["version"].endswith("simulated")
    assert info["speculative_algorithm"] == "DDTREE"
    assert info["speculative_ddtree_budget"] == 15
    assert info["max_running_requests"] == 8
    assert info["internal_states"][0]["avg_spec_accept_length"] >= 0
    models = json.loads(serving.get("/v1/models")[1])
    assert [one["id"] for one in models["data"]] == ["launch-0"]
    assert json.loads(serving.get("/get_model_info")[1])["model_path"] == "/dev/shm/Qwen3.6-27B"
    assert "Endpoint '/get_model_info' is deprecated" in serving.log
    assert serving.get("/health_generate")[0] == 200


def test_the_cache_is_flushed_only_when_nothing_runs(serving: "Server") -> None:
    events = serving.chat("flush", 6000)
    next(events)
    assert serving.post("/flush_cache", {})[0] == 400
    assert serving.post("/abort_request", {"abort_all": True}) == (200, "")
    rest = list(events)
    reasons = [one.value["choices"][0]["finish_reason"] for one in rest if one.value and one.value["choices"]]
    assert reasons[-1] == "abort"
    status, text = serving.post("/flush_cache", {})
    assert status == 200
    assert text.startswith("Cache flushed.")


def test_a_repeated_prompt_is_cached_until_the_cache_is_flushed(serving: "Server") -> None:
    body = {"text": "a prompt that is asked again " * 20, "sampling_params": {"max_new_tokens": 8, "ignore_eos": True}}
    cached = []
    for flush in (True, False, True):
        if flush:
            serving.post("/flush_cache", {})
        cached.append(json.loads(serving.post("/generate", body)[1])["meta_info"]["cached_tokens"])
    assert cached[0] == cached[2] == 0
    assert cached[1] == 144


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/v1/chat/completions", "{not json", 400, "JSON decode error"),
        ("/v1/chat/completions", {"model": "x"}, 400, "Field required"),
        ("/v1/chat/completions", {"messages": [{"content": "a" * 40000}]}, 400, "longer than the model's context"),
        ("/v1/chat/completions", {"messages": [{"content": "a"}], "max_tokens": 10**7}, 400, "maximum context length"),
        ("/generate", {"text": "a", "sampling_params": {"temperature": -1}}, 400, "non-negative finite number, got -1"),
        ("/nope", {}, 404, "Not Found"),
    ],
)
def test_wrong_requests_get_sglang_s_answers(serving: "Server", path: str, body: Any, status: int, text: str) -> None:
    answer, told = serving.post(path, body)
    assert answer == status
    assert text in told


def test_answers_that_are_not_streamed_and_text_completions(serving: "Server") -> None:
    asked = {"messages": [{"role": "user", "content": "whole"}], "max_tokens": 40, "ignore_eos": True, "model": "other"}
    whole = json.loads(serving.post("/v1/chat/completions", asked)[1])
    streamed = "".join(one.value["choices"][0]["delta"]["content"] for one in texts(list(serving.chat("whole", 40))))
    assert whole["choices"][0]["message"]["content"] == streamed
    assert whole["model"] == "other"
    assert whole["usage"]["completion_tokens"] == 40
    events = list(serving.stream("/v1/completions", {"prompt": "say", "max_tokens": 20, "ignore_eos": True}))
    assert events[-2].value["choices"][0]["finish_reason"] == "length"
    assert events[-1].value is None


def test_requests_together_are_slower_each_and_faster_in_all(serving: "Server") -> None:
    connections = [serving.chat(f"together {number}", 1500) for number in range(4)]
    for events in connections:
        next(events)
    running = load(serving)["num_running_reqs"]
    for events in connections:
        assert usage_of(list(events))["completion_tokens"] == 1500
    assert running == 4
    figures = [
        re.search(DECODE, line) for line in serving.log.splitlines() if "#running-req: 4" in line and "Decode" in line
    ]
    rates = [float(one["tps"]) for one in figures if one]
    assert statistics.median(rates) == pytest.approx(4 * SPEED.request_rate(4), rel=0.1)
