"""What the log readers tell of recorded logs, and of the shapes other releases print."""

from collections.abc import Callable
from itertools import groupby

import pytest

from ddconsole.engines.engine import DecodeLine, LogItem, LogNotice, Step
from ddconsole.engines.llamacpp_log import LlamaLog
from ddconsole.engines.log_records import records
from ddconsole.engines.sglang_log import SglangLog

Lines = Callable[[str], list[str]]


def fed(reader: SglangLog | LlamaLog, lines: list[str]) -> list[LogItem]:
    return [item for line in lines for item in reader.feed(line)]


def steps(items: list[LogItem]) -> list[str]:
    return [name for name, _ in groupby(item.name for item in items if isinstance(item, Step))]


def decodes(items: list[LogItem]) -> list[DecodeLine]:
    return [item for item in items if isinstance(item, DecodeLine)]


def test_the_steps_of_a_dflash_start(log_lines: Lines) -> None:
    reader = SglangLog()
    items = fed(reader, log_lines("sglang/spec-dflash.log"))
    assert steps(items) == [
        "import",
        "resolve arguments",
        "init distributed",
        "load weights",
        "init distributed",
        "load draft weights",
        "allocate KV cache",
        "capture target verify graphs",
        "capture draft verify graphs",
        "warm up",
        "ready",
    ]
    assert Step("capture target verify graphs", 1.0) in items
    facts = reader.facts
    assert facts["models"] == ["Qwen3ForCausalLM", "DFlashDraftModel"]
    assert facts["speculation"]["worker"] == "DFLASH"
    assert facts["speculation"]["block_size"] == 8
    assert facts["limits"]["max_running_requests"] == 16
    assert facts["kv_tokens"] == 65536
    assert facts["ready"] is True
    assert facts["effective"]["speculative_algorithm"] == "DFLASH"
    assert facts["effective"]["mem_fraction_static"] == 0.6
    assert facts["effective"]["disable_radix_cache"] is False
    assert facts["effective"]["context_length"] is None


def test_the_newer_form_of_the_arguments_and_of_the_lines(log_lines: Lines) -> None:
    reader = SglangLog()
    items = fed(reader, log_lines("sglang/cpu-spec-standalone-trained.log"))
    assert reader.facts["effective"]["speculative_algorithm"] == "STANDALONE"
    assert reader.facts["effective"]["speculative_num_draft_tokens"] == 5
    assert reader.facts["models"] == ["LlamaForCausalLM", "LlamaForCausalLM"]
    assert Step("load weights", 1.0) in items
    assert decodes(items)[0] == DecodeLine(None, 1, 0, 2.58, False)
    assert decodes(items)[1].output_rate == 167.78
    notices = {item.cause.id for item in items if isinstance(item, LogNotice)}
    assert notices == {"SG-MAXREQ-48"}


def test_only_the_first_rank_tells_how_far_the_start_is(log_lines: Lines) -> None:
    reader = SglangLog()
    items = fed(reader, log_lines("sglang/tp2.log"))
    assert steps(items)[-2:] == ["warm up", "ready"]
    assert reader.facts["models"] == ["Qwen3ForCausalLM"]
    assert SglangLog().feed("[2026-11-20 10:00:01 TP3] Load weight begin. avail mem=94.10 GB") == [Step("import")]


def test_time_stamps_with_milliseconds(log_lines: Lines) -> None:
    reader = SglangLog()
    assert steps(fed(reader, log_lines("sglang/reqlog.log")))[-1] == "ready"


def test_recurrent_states_of_a_hybrid(log_lines: Lines) -> None:
    reader = SglangLog()
    items = fed(reader, log_lines("sglang/spec-q35-dflash.log"))
    assert reader.facts["recurrent_state"]["issm"] == 0.80
    assert "allocate recurrent states" in steps(items)
    assert all(line.running is not None for line in decodes(items))


DECODE = "[2026-11-30 03:35:33] Decode batch"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            (
                f"{DECODE}. #running-req: 1, #token: 300, token usage: 0.00, cuda graph: True, "
                "gen throughput (token/s): 52.10, #queue-req: 0, "
            ),
            DecodeLine(52.10, 1, 0, None, True),
        ),
        (
            (
                f"{DECODE}. #running-req: 1, #token: 300, token usage: 0.00, accept len: 3.10, cuda graph: True, "
                "gen throughput (token/s): 152.10, #queue-req: 0, "
            ),
            DecodeLine(152.10, 1, 0, 3.10, True),
        ),
        (
            (
                f"{DECODE}, #running-req: 4, #full token: 4300, full token usage: 0.02, mamba num: 8, "
                "mamba usage: 0.33, accept len: 5.12, accept rate: 0.27, cuda graph: True, "
                "gen throughput (token/s): 402.12, #queue-req: 0"
            ),
            DecodeLine(402.12, 4, 0, 5.12, True),
        ),
        (
            (
                f"{DECODE} [400], #running-req: 4, #full token: 4300, full token usage: 0.02, mamba num: 8, "
                "mamba usage: 0.33, accept len: 5.12, accept rate: 0.27, cap len: 3.00, cuda graph: True, "
                "gen throughput (token/s): 402.12, #queue-req: 2, est. decode TFLOPS/s (per GPU): 1.0"
            ),
            DecodeLine(402.12, 4, 2, 5.12, True),
        ),
        (
            (
                f"{DECODE}, #running-req: 1, #token: 30, token usage: 0.00, cpu graph: False, "
                "gen throughput (token/s): 2.01, #queue-req: 0"
            ),
            DecodeLine(2.01, 1, 0, None, False),
        ),
        (
            f"{DECODE}. #running-req: 1, #token: 30, token usage: 0.0, gen throughput (token/s): 2.01, #queue-req: 0",
            DecodeLine(2.01, 1, 0, None, None),
        ),
    ],
)
def test_decode_lines_of_all_releases(line: str, expected: DecodeLine) -> None:
    reader = SglangLog()
    assert decodes(reader.feed(line)) == [expected]


def test_the_first_rate_after_idling_is_dropped() -> None:
    reader = SglangLog()
    reader.feed("[x] Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, #running-req: 0, #queue-req: 0")
    line = f"{DECODE}, #running-req: 1, #token: 9, token usage: 0.0, gen throughput (token/s): 7.27, #queue-req: 0"
    assert [one.output_rate for text in (line, line) for one in decodes(reader.feed(text))] == [None, 7.27]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        (
            "Loading safetensors checkpoint shards:  40% Completed | 6/15 [00:03<00:05,  1.7it/s]",
            Step("load weights", 0.4),
        ),
        ("Loading pt checkpoint shards:  50% Completed | 1/2", Step("load weights", 0.5)),
        ("\rMulti-thread loading shards: 100% Completed | 1/1 [00:00<00:00, 408.48it/s]", Step("load weights", 1.0)),
        ("Init torch distributed begin.", Step("init distributed")),
        ("Load weight begin. avail mem=94.10 GB", Step("load weights", 0.0)),
        ("KV Cache is allocated. #tokens: 210000, KV size: 6.40 GB", Step("allocate KV cache")),
        ("Post-capture KV sizing: KV cache allocated. dtype: torch.bfloat16, #tokens: 2100", Step("allocate KV cache")),
        ("Capture cuda graph begin. This can take up to several minutes.", Step("capture graphs", 0.0)),
        ("Capture draft extend cuda graph begin. This can", Step("capture draft extend graphs", 0.0)),
        ("Capture piecewise CUDA graph begin. avail mem=9.00 GB", Step("capture piecewise graphs", 0.0)),
        ("Capturing batches (bs=8 avail_mem=11.20 GB):  40%|####      | 4/10", Step("capture graphs", 0.4)),
        ("[2026-11-20 10:00:01] The server is fired up and ready to roll!", Step("ready", 1.0)),
    ],
)
def test_steps_of_single_lines(line: str, step: Step) -> None:
    assert SglangLog().feed(line)[-1] == step


def test_a_progress_bar_and_a_record_in_its_middle() -> None:
    line = (
        "  0%|          | 0/8 [00:00<?, ?it/s]\rCapturing batches (bs=8 avail_mem=121.58 GB):  12%|#| 1/8 [00:01<00:12]"
        "[2026-11-30 03:58:46 TP0] Capture target verify CUDA graph end. elapsed=2.86 s, mem usage=2.38 GB"
    )
    assert len(records(line)) == 3
    assert SglangLog().feed(line)[-1] == Step("capture graphs", 0.12)
    assert records("no stamp here") == ["no stamp here"]
    assert len(records("x\r" * 10_000)) <= 65


@pytest.mark.parametrize(
    ("wording", "budget", "branches"), [("DDTree", 15, False), ("DDTree", 16, None), ("DDTREE v2", 8, None)]
)
def test_the_tree_worker_and_whether_it_branches(wording: str, budget: int, branches: bool | None) -> None:
    reader = SglangLog()
    reader.feed("Initialized DFLASH draft runner. attention_backend=triton, model=DFlashDraftModel, block_size=16, x=1")
    reader.feed(f"Initialized {wording} worker. block_size=16, tree_budget={budget}, max_tree_nodes={budget + 1}")
    assert reader.facts["speculation"]["worker"] == "DDTREE"
    assert (reader.facts["speculation"]["budget"], reader.facts["speculation"]["block_size"]) == (budget, 16)
    assert reader.facts.get("branches") is branches


def test_a_taken_port_is_kept_for_readiness(log_lines: Lines) -> None:
    reader = SglangLog()
    items = fed(reader, log_lines("sglang/cpu-err-port-in-use.log"))
    assert "Errno 98" in reader.facts["bind_failed"]
    assert [item.cause.id for item in items if isinstance(item, LogNotice) and item.fatal] == ["PORT-HTTP"]


def test_hostile_lines_are_harmless() -> None:
    for reader in (SglangLog(), LlamaLog()):
        for line in ("", "\r", "\x1b]0;x\x07", "Decode batch" * 10_000, "Load weight end." * 5_000, "\ufffd" * 90_000):
            assert decodes(reader.feed(line)) == []


def test_the_steps_of_a_llama_start_and_its_timings(log_lines: Lines) -> None:
    reader = LlamaLog()
    items = fed(reader, log_lines("llamacpp/xllamacpp-spec-draft.log"))
    assert steps(items) == [
        "init server",
        "load weights",
        "load draft weights",
        "allocate KV cache",
        "warm up",
        "ready",
    ]
    assert decodes(items) == [DecodeLine(2816.64, 1, None, None), DecodeLine(None, 1, None, 2.43)]
    assert reader.facts["limits"] == {"slots": 4, "context_per_slot": 2048}
    assert reader.facts["draft_loaded"] is True
    assert "speculation_refused" not in reader.facts


def test_a_refused_draft_is_kept_for_readiness(log_lines: Lines) -> None:
    reader = LlamaLog()
    items = fed(reader, log_lines("llamacpp/xllamacpp-wrong-draft.log"))
    assert "vocabs are not compatible" in reader.facts["speculation_refused"]
    assert "LC-VOCAB" in {item.cause.id for item in items if isinstance(item, LogNotice)}
    assert steps(items)[-1] == "ready"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "       eval time =    5000.00 ms /   256 tokens (   19.53 ms per token,    51.20 tokens per second)",
            DecodeLine(51.20, None, None, None),
        ),
        (
            "draft acceptance = 0.64 (  160 accepted /   250 generated), mean acceptance length = 3.10, x",
            DecodeLine(None, None, None, 3.10),
        ),
        (
            "2.48.412.311 I slot print_timing: id  2 | task 93 | n_gen =    100, tg =   0.89 t/s, tg_3s =   0.90 t/s",
            DecodeLine(0.90, None, None, None),
        ),
    ],
)
def test_timings_of_single_lines(line: str, expected: DecodeLine) -> None:
    assert LlamaLog().feed(line) == [expected]


def test_prompt_timings_and_old_draft_lines_tell_no_rate() -> None:
    reader = LlamaLog()
    prompt = "prompt eval time =     120.00 ms /    64 tokens (    1.88 ms per token,   533.33 tokens per second)"
    assert reader.feed(prompt) == []
    assert reader.feed("draft acceptance rate = 0.57576 (  171 accepted /   297 generated)") == []
    assert reader.feed("main: server is listening on http://127.0.0.1:9931 - starting the main loop") == [
        Step("ready", 1.0)
    ]
