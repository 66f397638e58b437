"""`ddconsole attach` and `logs` when the host of a run is gone: what was copied is shown, and said to be old."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fake_agent import RUN, FakeAgent

from ddconsole.core.events import (
    Entry,
    LaunchGone,
    LaunchPlanned,
    LaunchReady,
    LaunchStarting,
    LaunchStopping,
    RunCreated,
)
from ddconsole.core.journal_line import decode_line, encode_line


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A mirror of a run on a host where nobody listens."""
    agent = FakeAgent()
    agent.append(LaunchPlanned(1, "d01", 1), LaunchStarting(1, "process started", pid=1, port=2), LaunchReady(1))
    agent.append(LaunchStopping(1, "asked", 9.0), LaunchGone(1))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = tmp_path / RUN
    (folder / "launches/1").mkdir(parents=True)
    (folder / "launches/1/server.log").write_text("loading\nready\n")
    (folder / "mirror.json").write_text('{"heard": 1790000000.0}')
    created = RunCreated(RUN, "p", "0" * 64, f"me@127.0.0.1:{port}", "ar", False, "0.1", "llamacpp")
    second = decode_line(agent.lines[1])
    agent.lines[1] = encode_line(Entry(second.epoch, second.seq, second.at, created))
    (folder / "journal.jsonl").write_bytes(b"".join(agent.lines))
    return tmp_path


def ddconsole(runs: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "DDCONSOLE_RUNS": str(runs), "TZ": "UTC"}
    argv = [sys.executable, "-m", "ddconsole", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)


def test_a_run_of_a_lost_host_says_since_when_it_was_not_reached_and_as_of_which_entry(runs: Path) -> None:
    done = ddconsole(runs, "attach", "--headless")
    assert done.returncode == 2
    assert "not reached since 21 Sep 14:13; as of entry 10, 01 Jan 00:16; read from" in done.stderr
    assert "connect: [Errno 111]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_that_is_here_whole_is_printed_without_the_host(runs: Path) -> None:
    done = ddconsole(runs, "logs")
    assert (done.returncode, done.stdout) == (0, "loading\nready\n")
