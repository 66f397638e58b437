"""Recorded failures are classified as a person who read the log would."""

from collections.abc import Callable

import pytest

from ddconsole.core.states import Retry
from ddconsole.engines.catalogue import LONGEST_EVIDENCE, MOST_EVIDENCE, Signature, cause_by_id, signature, signatures
from ddconsole.engines.failures import classify, noise_notice
from ddconsole.engines.register import ENGINE_KINDS, engine

Lines = Callable[[str], list[str]]


@pytest.mark.parametrize("entry", signatures(), ids=lambda entry: entry.id)
def test_each_signature_matches_its_sample_and_is_fit_for_the_screen(entry: Signature) -> None:
    assert any(entry.search(line) for line in entry.sample.split("\n"))
    assert entry.do
    assert 0 < len(entry.short) <= 66
    assert entry.rank in {"primary", "secondary", "noise", "watchdog-rule"}


def test_the_catalogue_is_whole() -> None:
    ids = [entry.id for entry in signatures()]
    assert len(ids) == len(set(ids)) >= 124
    assert {"CUDA-OOM", "LC-VOCAB", "SG-KV-OCCUPIED", "NCCL-INIT-HANG"} <= set(ids)


@pytest.mark.parametrize(
    ("run", "status", "expected"),
    [
        ("f-badarch", 1, "TF-ARCH"),
        ("f-badflag", 2, "ARG-UNRECOGNIZED"),
        ("f-badjson", 1, "MODEL-CONFIG-JSON"),
        ("f-dflash-mismatch", -9, "DRAFT-SHAPE"),
        ("f-huge", -9, "CUDA-OOM"),
        ("f-memlow", -9, "SG-KV-NONE"),
        ("f-nodraft", 1, "SG-DFLASH-NODRAFT"),
        ("f-nopath", 1, "MODEL-PATH-MISSING"),
        ("f-notok", -9, "SG-NO-TOKENIZER"),
        ("f-occupied-default", -9, "SG-KV-OCCUPIED"),
        ("f-port-int", None, "PORT-HTTP"),
        ("f-tp2", -9, "NOT-ENOUGH-GPUS"),
        ("oom-run", -9, "CUDA-OOM-SHARED"),
        ("k-sched", -9, "SG-SUBPROC-CRASH"),
        ("k-detok", -9, "SG-SUBPROC-CRASH"),
        ("k-parent", -9, "KILLED"),
        ("s-term-load", -15, "SIGNALLED"),
        ("tp2-hang", -9, "SG-WATCHDOG"),
        ("cpu-err-port-in-use", 3, "PORT-HTTP"),
        ("cpu-err-oom-memfraction", -9, "SG-KV-NONE"),
        ("cpu-err-bad-model-path", 1, "MODEL-PATH-MISSING"),
        ("cpu-scheduler-killed", -9, "SG-SUBPROC-CRASH"),
        ("cpu-fail-1-no-torchvision", 1, "PY-NO-MODULE"),
        ("cpu-fail-2-ngram-no-sgl_kernel.speculative", -9, "PY-NO-MODULE"),
        ("cpu-fail-3-standalone-on-torch_native", -9, "SG-SPEC-BACKEND"),
    ],
)
def test_recorded_sglang_failures(log_lines: Lines, run: str, status: int | None, expected: str) -> None:
    lines = log_lines(f"sglang/{run}.log")
    cause = classify("sglang", lines, "load weights", status, we_stopped_it=False)
    assert cause.id == expected
    assert 0 < len(cause.evidence) <= MOST_EVIDENCE
    assert all(len(line) < LONGEST_EVIDENCE + 40 for line in cause.evidence)


@pytest.mark.parametrize(
    ("run", "status", "expected"),
    [
        ("err-bad-flag", 1, "LC-ARG-REMOVED"),
        ("err-bad-model-path", 1, "LC-PATH"),
        ("err-port-in-use", 1, "LC-BIND"),
        ("err-truncated-model", 1, "LC-TRUNCATED"),
        ("term1", -9, "KILLED"),
        ("xllamacpp-wrong-draft", 0, "LC-VOCAB"),
    ],
)
def test_recorded_llamacpp_failures(log_lines: Lines, run: str, status: int, expected: str) -> None:
    cause = classify("llamacpp", log_lines(f"llamacpp/{run}.log"), "load weights", status, we_stopped_it=False)
    assert cause.id == expected
    assert cause.evidence


@pytest.mark.parametrize(
    "run", ["base", "tp2", "dp2", "spec-dflash", "spec-q35-dflash", "spec-eagle", "reqlog", "retract", "cpu-spec-ngram"]
)
def test_healthy_logs_hold_no_cause_and_no_fatal_notice(log_lines: Lines, run: str) -> None:
    lines = log_lines(f"sglang/{run}.log")
    assert classify("sglang", lines, "ready", -9, we_stopped_it=False).id == "KILLED"
    assert classify("sglang", lines, "ready", -9, we_stopped_it=True).id == "STOPPED"
    notices = [notice for line in lines if (notice := noise_notice(line, "sglang")) is not None]
    assert not [notice for notice in notices if notice.fatal]


def test_words_and_evidence_of_an_out_of_memory(log_lines: Lines) -> None:
    cause = classify("sglang", log_lines("sglang/f-huge.log"), "load weights", -9, we_stopped_it=False)
    assert cause.text == "CUDA out of memory while loading weights"
    assert cause.retry is Retry.CHANGE
    assert cause.evidence[-1].startswith("torch.OutOfMemoryError: CUDA out of memory")


def test_the_neighbour_on_the_gpu_is_named_and_may_be_retried(log_lines: Lines) -> None:
    cause = classify("sglang", log_lines("sglang/oom-run.log"), "ready", -9, we_stopped_it=False)
    assert "136.57 GiB" in cause.text
    assert cause.retry is Retry.AS_IS


def test_a_capture_that_ran_out_of_memory_is_told_from_one_that_failed_otherwise() -> None:
    head = "[2026-11-20 10:00:01] Scheduler hit an exception: Traceback (most recent call last):"
    frame = '  File "x.py", line 1, in capture'
    memory = "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 2.50 GiB."
    wheel = "Exception: Capture cuda graph failed: no kernel image is available for execution on the device"
    assert classify("sglang", [head, frame, memory], "capture graphs", -9, we_stopped_it=False).id == "SG-GRAPH-OOM"
    assert classify("sglang", [head, frame, wheel], "capture graphs", -9, we_stopped_it=False).id == "NO-KERNEL-IMAGE"


def test_the_first_failing_rank_explains_the_others() -> None:
    lines = [
        "[2026-11-20 10:00:00 TP0] Decode batch, #running-req: 1",
        "[2026-11-20 10:00:01 TP3] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "a.py", line 1, in run',
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        "",
        "[2026-11-20 10:00:02 TP0] Scheduler hit an exception: Traceback (most recent call last):",
        '  File "b.py", line 1, in run',
        "RuntimeError: [/pytorch/gloo/pair.cc:538] Read error [127.0.0.1]:1: Connection reset by peer",
        "[2026-11-20 10:00:02] Received sigquit from a child process. It usually means the child failed.",
    ]
    assert classify("sglang", lines, "ready", -9, we_stopped_it=False).id == "CUDA-ILLEGAL"
    killed = [lines[0], *lines[5:]]
    assert classify("sglang", killed, "ready", -9, we_stopped_it=False).id == "SG-RANK-GONE"


def test_a_traceback_that_the_server_survived_is_not_the_cause() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in handler',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.",
        "[2026-11-20 10:00:00] Decode batch, #running-req: 1",
        "Traceback (most recent call last):",
        '  File "a.py", line 1, in run',
        "ValueError: memory leak detected!",
    ]
    assert classify("sglang", lines, "ready", -9, we_stopped_it=False).id == "SG-MEMLEAK"


def test_an_unknown_traceback_keeps_its_last_lines() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "a.py", line 7, in run',
        "    boom()",
        "MyError: what now",
        "",
    ]
    cause = classify("sglang", lines, "ready", -9, we_stopped_it=False)
    assert cause.id == "UNKNOWN"
    assert cause.text == "unknown failure: MyError: what now"
    assert cause.evidence[-1] == "MyError: what now"


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (139, "SEGFAULT"),
        (-11, "SEGFAULT"),
        (-6, "ABORTED"),
        (137, "KILLED"),
        (0, "EXITED"),
        (2, "ARG-REFUSED"),
        (7, "UNKNOWN"),
    ],
)
def test_without_words_the_exit_status_tells(status: int, expected: str) -> None:
    assert classify("sglang", ["nothing to see"], "ready", status, we_stopped_it=False).id == expected


def test_generic_words_count_only_after_death_or_in_a_traceback() -> None:
    lines = ["[2026-11-20 10:00:00] open /x: Permission denied"]
    assert classify("sglang", lines, "ready", None, we_stopped_it=False).id == "UNKNOWN"
    assert classify("sglang", lines, "ready", 1, we_stopped_it=False).id == "PERM"
    assert noise_notice(lines[0], "sglang") is None


def test_requests_in_the_log_are_not_read_as_failures() -> None:
    line = (
        "[2026-11-30 03:47:24] Receive: obj=GenerateReqInput(text="
        "'RuntimeError: NCCL error CUDA out of memory. Tried to allocate 1.00 GiB')"
    )
    assert classify("sglang", [line], "ready", -9, we_stopped_it=False).id == "KILLED"
    assert noise_notice(line, "sglang") is None


def test_evidence_shows_control_characters_and_is_cut() -> None:
    line = "RuntimeError: NCCL error \x1b[31m" + "x" * 90_000
    cause = classify("sglang", [line], "ready", -9, we_stopped_it=False)
    assert cause.id == "NCCL-GENERIC"
    assert "^[[31m" in cause.evidence[0]
    assert len(cause.evidence[0]) < LONGEST_EVIDENCE + 40


def test_words_behind_the_searched_part_of_a_line_are_not_found() -> None:
    line = "y" * 5000 + " RuntimeError: NCCL error"
    assert classify("sglang", [line], "ready", -9, we_stopped_it=False).id == "KILLED"


def test_noise_annotates_and_a_verdict_is_fatal() -> None:
    retracted = noise_notice("KV cache pool is full. Retract requests. #retracted_reqs: 1", "sglang")
    assert retracted is not None
    assert (retracted.cause.id, retracted.fatal) == ("SG-RETRACT", False)
    taken = noise_notice("ERROR:    [Errno 98] error while attempting to bind on address", "sglang")
    assert taken is not None
    assert (taken.cause.id, taken.fatal) == ("PORT-HTTP", True)
    long_request = noise_notice(
        "5.24.473 E srv send_error: request (9 tokens) exceeds the available context size", "llamacpp"
    )
    assert long_request is not None
    assert (long_request.cause.id, long_request.fatal) == ("LC-CTX", False)


def test_a_cause_that_a_timer_saw() -> None:
    cause = cause_by_id("NCCL-INIT-HANG", ["[x] Init torch distributed begin."])
    assert cause.retry is Retry.CHANGE
    assert cause.evidence
    entry = signature("NCCL-INIT-HANG")
    assert entry is not None
    assert entry.rank == "watchdog-rule"
    assert signature("NO-SUCH") is None


def test_the_register_knows_each_kind() -> None:
    assert ENGINE_KINDS == ("sglang", "llamacpp", "vllm")
    for kind in ENGINE_KINDS:
        assert engine(kind).kind == kind
        assert [step.name for step in engine(kind).stop_steps]
    with pytest.raises(KeyError):
        engine("tgi")
