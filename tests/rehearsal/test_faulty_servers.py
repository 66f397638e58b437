"""Each fault, on a server that runs."""

import json
import re
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from ddconsole.rehearsal.faults import FaultName, FaultRule

if TYPE_CHECKING:
    from tests.rehearsal.conftest import Server

Start = Callable[..., "Server"]
TREE = ("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "d", "--speculative-ddtree-budget", "64")


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        (FaultName.CRASH_LOADING, "RuntimeError: simulated crash while the weights are loaded"),
        (FaultName.OOM, r"Capture cuda graph failed: CUDA out of memory\. Tried to allocate 2\.50 GiB"),
        (
            FaultName.DOES_NOT_FIT,
            "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.85",
        ),
        (FaultName.DRIVER_FAULT, "CUDA error: unspecified launch failure"),
    ],
)
def test_a_start_that_fails_dies_as_sglang_does(start: Start, fault: FaultName, text: str) -> None:
    server = start(faults=(FaultRule(fault),), scale=200.0)
    assert server.end() == -signal.SIGKILL
    assert re.search(text, server.log)
    assert "Scheduler hit an exception: Traceback (most recent call last):" in server.log
    assert "Received sigquit from a child process. It usually means the child failed." in server.log
    assert "Uvicorn running" not in server.log


def test_a_fault_that_is_used_up_does_not_hit_the_next_start(start: Start) -> None:
    first = start(faults=(FaultRule(FaultName.DRIVER_FAULT, {"method": "ar"}),), scale=200.0)
    assert first.end() == -signal.SIGKILL
    second = start(scale=200.0)
    second.wait_until_ready()
    assert second.get("/v1/models")[0] == 200


def test_a_start_that_hangs_says_nothing_more(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.HANG_LOADING),), scale=200.0)
    server.wait_for_line("Load weight begin")
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == -signal.SIGTERM
    assert "Load weight end" not in server.log


def test_what_does_not_fit_by_arithmetic_fails_by_itself(start: Start) -> None:
    server = start(*TREE, scale=200.0)
    assert server.end() == -signal.SIGKILL
    assert "Not enough GPU memory for hybrid (mamba/linear-attention) state cache" in server.log


def test_more_ranks_than_gpus_fail(start: Start) -> None:
    server = start("--tp-size", "2", scale=200.0, env={"CUDA_VISIBLE_DEVICES": "3"})
    assert server.end() == -signal.SIGKILL
    assert "CUDA error: invalid device ordinal" in server.log


def test_memory_of_a_server_that_is_still_there_is_missing_to_the_next(start: Start) -> None:
    first = start(scale=200.0, env={"CUDA_VISIBLE_DEVICES": "1"})
    first.wait_until_ready()
    second = start(scale=200.0, env={"CUDA_VISIBLE_DEVICES": "1"})
    assert second.end() == -signal.SIGKILL
    holder = first.children["sglang::scheduler"].pid
    assert re.search(rf"torch\.OutOfMemoryError: CUDA out of memory\..* Process {holder} has \d", second.log)


def test_memory_of_a_server_that_is_gone_is_not_missing_to_the_next(start: Start) -> None:
    first = start(scale=200.0)
    first.wait_until_ready()
    first.process.kill()
    first.end()
    second = start(scale=200.0)
    second.wait_until_ready()
    assert "avail mem=94.37 GB" in second.log


def test_arguments_that_are_refused_end_with_1(start: Start) -> None:
    server = start("--speculative-algorithm", "DFLASH")
    assert server.end() == 1
    assert "DFLASH speculative decoding requires setting --speculative-draft-model-path." in server.log


def test_a_draft_that_is_not_used_starts_healthy(start: Start) -> None:
    flags = (*TREE[:-1], "15")
    server = start(*flags, faults=(FaultRule(FaultName.DRAFT_NOT_USED),), scale=200.0)
    server.wait_until_ready()
    assert "Initialized DDTree worker" not in server.log
    assert json.loads(server.get("/server_info")[1])["speculative_algorithm"] is None
    events = list(server.chat("no draft", 64, return_spec_tokens_details=True))
    assert not any("sglext" in one.value for one in events if one.value)


def test_a_port_that_is_taken(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.PORT_TAKEN),), scale=200.0)
    server.wait_for_line("[Errno 98] error while attempting to bind on address")
    server.wait_for_line("Waiting for application shutdown.")
    server.process.send_signal(signal.SIGINT)
    server.process.send_signal(signal.SIGTERM)
    with pytest.raises(ConnectionRefusedError):
        server.get("/model_info")
    assert server.process.poll() is None


def test_a_drain_for_ever_ends_only_by_sigkill(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.DRAIN_FOR_EVER),), scale=200.0)
    server.wait_until_ready()
    server.process.send_signal(signal.SIGTERM)
    server.process.send_signal(signal.SIGINT)
    server.wait_for("looks", lambda: server.log.count("Remaining number of requests 1") >= 3)
    server.wait_for_line("Waiting for connections to close")
    assert server.process.poll() is None
    server.process.kill()
    assert server.end() == -signal.SIGKILL


def test_a_crash_in_the_stream(start: Start) -> None:
    rule = FaultRule(FaultName.CRASH_STREAMING, at_request=2, at_chunk=7)
    server = start(faults=(rule,))
    server.wait_until_ready()
    assert list(server.chat("first", 64))[-1].value is None
    cut = list(server.chat("second", 64))
    texts = [one for one in cut if one.value["choices"][0]["delta"].get("content")]
    assert len(texts) == 7
    assert server.end() == -signal.SIGKILL
    assert "crashed with exit code -9" in server.log


def test_a_dead_detokenizer_is_a_long_silence(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.DETOKENIZER_DEAD),), scale=200.0)
    server.wait_until_ready()
    events = list(server.chat("silent", 2048))
    assert len(events) == 6
    assert server.end() == -signal.SIGKILL
    assert "Subprocess detokenizer" in server.log
    assert "Waiting 60.0 seconds for CUDA coredumps before exiting." in server.log
    assert server.log.rindex("Decode batch") > server.log.index("Subprocess detokenizer")


def test_a_stream_that_hangs_leaves_the_other_paths_alive(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.HANG_STREAMING, at_chunk=3),), scale=200.0)
    server.wait_until_ready()
    events = server.chat("hangs", 512)
    received = [next(events) for _ in range(4)]
    assert all(one.value is not None for one in received)
    assert json.loads(server.get("/v1/loads")[1])["loads"][0]["num_running_reqs"] == 1
    assert server.get("/health")[0] == 503
    assert server.process.poll() is None


def test_an_error_inside_a_200_stream(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.ERROR_IN_STREAM, at_chunk=2),), scale=200.0)
    server.wait_until_ready()
    events = list(server.chat("errs", 512))
    assert events[-1].value is None
    assert events[-2].value["error"]["code"] == 500
    assert list(server.chat("errs not", 32))[-3].value["choices"][0]["finish_reason"] == "length"


def test_a_request_without_tokens(start: Start) -> None:
    server = start(faults=(FaultRule(FaultName.NO_TOKENS),), scale=200.0)
    server.wait_until_ready()
    events = list(server.chat("nothing", 64))
    assert [one.value["usage"]["completion_tokens"] for one in events if one.value and "usage" in one.value] == [0]
    contents = [one.value["choices"][0]["delta"].get("content") for one in events if one.value and one.value["choices"]]
    assert not any(contents)
