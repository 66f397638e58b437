import http.client
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddconsole.rehearsal.command import environment, prepare_state, rehearsal_command
from ddconsole.rehearsal.faults import FaultRule
from ddconsole.rehearsal.processes import start_ticks

DEADLINE = 25.0
"""Real seconds after which a test gives up waiting; nothing is measured against it."""


@dataclass
class Event:
    """One read of a stream: when it came (real monotonic seconds) and its JSON, or None for `[DONE]`."""

    at: float
    value: Any


@dataclass
class Server:
    """A simulated server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path
    log_file: Path
    scale: float
    children: dict[str, psutil.Process] = field(default_factory=dict)

    @property
    def log(self) -> str:
        return self.log_file.read_text(encoding="utf-8")

    def wait_for(self, what: str, true: Callable[[], object]) -> None:
        give_up = time.monotonic() + DEADLINE
        while not true():
            if time.monotonic() > give_up:
                pytest.fail(f"{what} did not come\n{self.log[-4000:]}")
            time.sleep(0.01)

    def wait_for_line(self, text: str) -> None:
        self.wait_for(f"the line {text!r}", lambda: text in self.log)

    def wait_until_ready(self) -> None:
        self.wait_for_line("The server is fired up and ready to roll!")
        main = psutil.Process(self.process.pid)
        self.children = {title(child): child for child in main.children()}

    def end(self) -> int:
        return self.process.wait(DEADLINE)

    def wait_for_end_of(self, *processes: psutil.Process) -> None:
        self.wait_for("the end of processes", lambda: all(start_ticks(one.pid) is None for one in processes))

    def connect(self, timeout: float = DEADLINE) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def get(self, path: str, timeout: float = DEADLINE) -> tuple[int, str]:
        return self._ask("GET", path, None, timeout)

    def post(self, path: str, body: Mapping[str, Any] | str, timeout: float = DEADLINE) -> tuple[int, str]:
        return self._ask("POST", path, body if isinstance(body, str) else json.dumps(body), timeout)

    def _ask(self, method: str, path: str, body: str | None, timeout: float) -> tuple[int, str]:
        connection = self.connect(timeout)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def stream(self, path: str, body: Mapping[str, Any]) -> Generator[Event, None, None]:
        """Events of a streamed answer; its connection closes with the iterator."""
        connection = self.connect()
        try:
            connection.request("POST", path, json.dumps({**body, "stream": True}))
            answer = connection.getresponse()
            assert answer.status == 200
            for line in answer:
                at = time.monotonic()
                if line.strip():
                    text = line.strip().removeprefix(b"data: ")
                    yield Event(at, None if text == b"[DONE]" else json.loads(text))
        finally:
            connection.close()

    def chat(self, prompt: str, max_tokens: int = 256, **more: Any) -> Generator[Event, None, None]:
        body = {
            "model": "any",
            "messages": [{"role": "user", "content": prompt}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
            **more,
        }
        return self.stream("/v1/chat/completions", body)


def title(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline()).strip()
    return ""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(
    folder: Path, *arguments: str, scale: float = 100.0, port: int | None = None, env: Mapping[str, str] | None = None
) -> Server:
    """A server in a rehearsal's prepared state folder; its output goes to a file, as the runner does it."""
    port = free_port() if port is None else port
    number = len(list(folder.glob("server*.log")))
    log_file = folder / f"server{number}.log"
    command = [*rehearsal_command(), "--model-path", "/dev/shm/Qwen3.6-27B", "--served-model-name", f"launch-{number}"]
    command += ["--port", str(port), "--max-running-requests", "8", "--decode-log-interval", "10", *arguments]
    with log_file.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment(folder, scale), **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Server(process, port, folder, log_file, scale)


def end_server(server: Server) -> None:
    with suppress(ProcessLookupError):
        os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(DEADLINE)
    server.wait_for_end_of(*server.children.values())


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for a whole file: DDTree with a budget of 15 on GPU 6, 25 times faster than real time."""
    folder = tmp_path_factory.mktemp("serving")
    prepare_state(folder)
    flags = ["--speculative-algorithm", "DDTREE", "--speculative-ddtree-budget", "15", "--enable-metrics"]
    flags += ["--speculative-draft-model-path", "/dev/shm/draft", "--context-length", "8192"]
    server = start_server(folder, *flags, scale=25.0, env={"CUDA_VISIBLE_DEVICES": "6"})
    server.wait_until_ready()
    yield server
    end_server(server)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts servers, of which none is left at the end. Takes faults by keyword."""
    servers: list[Server] = []
    prepare_state(tmp_path)

    def begin(*arguments: str, faults: tuple[FaultRule, ...] | None = None, **more: Any) -> Server:
        if faults is not None:
            prepare_state(tmp_path, faults)
        server = start_server(tmp_path, *arguments, **more)
        servers.append(server)
        return server

    yield begin
    for server in servers:
        end_server(server)
