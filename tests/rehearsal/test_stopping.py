"""How a simulated server ends: the table of stops and crashes that was observed on SGLang 0.5.16."""

import os
import re
import signal
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

import psutil
import pynvml
import pytest

from ddconsole.rehearsal.command import environment
from ddconsole.rehearsal.nvml import SimulatedNvml

if TYPE_CHECKING:
    from tests.rehearsal.conftest import Server

Start = Callable[..., "Server"]


def running(server: "Server", text: str) -> int:
    return len(re.findall(text, server.log))


def test_sigint_to_the_main_process_ends_cleanly_after_the_running_requests(start: Start) -> None:
    server = start()
    server.wait_until_ready()
    events = server.chat("to the end", 512)
    next(events)
    server.process.send_signal(signal.SIGINT)
    server.wait_for_line("Waiting for connections to close")
    with pytest.raises(ConnectionRefusedError):
        server.get("/model_info")
    assert list(events)[-1].value is None
    assert server.end() == 0
    assert "Finished server process" in server.log
    assert "include_parent=False" in server.log


def test_sigterm_drains_without_limit_and_then_kills_itself(start: Start) -> None:
    server = start(scale=200.0)
    server.wait_until_ready()
    events = server.chat("a long answer", 4096)
    next(events)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line("Gracefully exiting... Remaining number of requests 1")
    assert server.get("/health")[0] == 503
    assert server.get("/model_info")[0] == 200
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("a second look", lambda: running(server, "Remaining number of requests 1") >= 2)
    assert running(server, "SIGTERM received") == 1
    assert list(events)[-1].value is None
    assert server.end() == -signal.SIGKILL
    assert "Remaining number of requests 0" in server.log
    assert "include_parent=True" in server.log


def test_sigterm_while_loading_says_nothing(start: Start) -> None:
    server = start(scale=40.0)
    server.wait_for_line("Load weight begin")
    children = psutil.Process(server.process.pid).children()
    before = server.log
    server.process.send_signal(signal.SIGTERM)
    assert server.end() == -signal.SIGTERM
    server.wait_for_end_of(*children)
    added = server.log.removeprefix(before)
    assert "SIGTERM" not in added
    assert "Traceback" not in added


def test_ctrl_c_while_loading_leaves_tracebacks_and_1(start: Start) -> None:
    server = start(scale=40.0)
    server.wait_for_line("Load weight begin")
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.end() == 1
    assert "KeyboardInterrupt" in server.log


def test_ctrl_c_to_the_whole_group_while_serving_is_a_crash(start: Start) -> None:
    server = start()
    server.wait_until_ready()
    os.killpg(server.process.pid, signal.SIGINT)
    assert server.end() == -signal.SIGKILL
    assert "KeyboardInterrupt" in server.log
    assert "crashed with exit code 1" in server.log


def test_a_killed_main_process_takes_its_children_and_the_memory_with_it(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start("--tp-size", "2", env={"CUDA_VISIBLE_DEVICES": "2,3"})
    server.wait_until_ready()
    for name, value in environment(server.folder, server.scale).items():
        monkeypatch.setenv(name, value)
    nvml = SimulatedNvml()
    nvml.nvmlInit()
    gpu = nvml.nvmlDeviceGetHandleByIndex(3)

    def used() -> int:
        return nvml.nvmlDeviceGetMemoryInfo(gpu, pynvml.nvmlMemory_v2).used

    assert used() > 2**36
    assert {"sglang::scheduler_TP0", "sglang::scheduler_TP1"} <= set(server.children)
    assert re.search(r"\[[^\]]+ TP1\] Load weight end", server.log)
    server.process.kill()
    assert server.end() == -signal.SIGKILL
    server.wait_for_end_of(*server.children.values())
    server.wait_for("free memory", lambda: used() == 0)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []


def test_a_killed_scheduler_is_silence_and_then_a_cut_stream(start: Start) -> None:
    server = start()
    server.wait_until_ready()
    events = server.chat("to be cut", 4096)
    next(events)
    server.children["sglang::scheduler"].kill()
    received = list(events)
    assert all(one.value is not None for one in received)
    assert server.end() == -signal.SIGKILL
    assert re.search(r"Subprocess scheduler_0 \(pid=\d+\) crashed with exit code -9\. Triggering SIGQUIT", server.log)
    assert "Sleeping 5 seconds before crash diagnostics" in server.log
    assert "No live scheduler processes found" in server.log


def test_a_killed_rank_is_noticed_by_the_other(start: Start) -> None:
    server = start("--tp-size", "2")
    server.wait_until_ready()
    server.children["sglang::scheduler_TP1"].kill()
    assert server.end() == -signal.SIGKILL
    assert "Connection reset by peer" in server.log
    assert "SIGQUIT received" in server.log


def test_a_frozen_scheduler_stalls_streams_while_other_paths_answer(start: Start) -> None:
    server = start()
    server.wait_until_ready()
    scheduler = server.children["sglang::scheduler"]
    scheduler.suspend()
    server.wait_for("a failed health check", lambda: server.get("/health")[0] == 503)
    assert "Health check failed" in server.log
    assert server.get("/model_info")[0] == 200
    server.process.send_signal(signal.SIGTERM)
    server.wait_for_line("while health check failed. Force exiting.")
    assert server.end() == -signal.SIGKILL
    server.wait_for_end_of(scheduler)


def test_a_taken_port_holds_the_memory_and_ignores_all_but_sigkill(start: Start) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        server = start(port=other.getsockname()[1])
        server.wait_for_line("[Errno 98] error while attempting to bind on address")
        server.wait_for_line("Waiting for application shutdown.")
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        scheduler = psutil.Process(server.process.pid).children()[1]
        assert scheduler.is_running()
        assert server.process.poll() is None
        server.process.kill()
        assert server.end() == -signal.SIGKILL
        server.wait_for_end_of(scheduler)
