"""`ddconsole attach` and `logs` when the host of a run is gone: what was copied is shown, and said to be old."""

import json
import os
import re
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
    RunEnded,
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


def test_a_run_of_a_lost_host_says_why_and_how_old_the_copy_is(runs: Path) -> None:
    done = ddconsole(runs, "attach", "--headless")
    assert done.returncode == 2
    assert re.search(r"lost; the copy here is \d+ \w+ old \(21 Sep 14:13, entry 10\); ", done.stderr)
    assert "connect: Connection refused (tried 127.0.0.1 port " in done.stderr
    assert "Traceback" not in done.stderr


def test_an_ended_run_of_a_lost_host_is_shown_as_the_copy_that_it_is(runs: Path) -> None:
    journal = runs / RUN / "journal.jsonl"
    seq = len(journal.read_bytes().splitlines()) + 1
    journal.write_bytes(journal.read_bytes() + encode_line(Entry(1, seq, 2000.0, RunEnded("complete"))))
    done = ddconsole(runs, "attach", "--headless")
    assert (done.returncode, "lost; the copy here is" in done.stderr) == (0, True)
    assert "run ended: complete" in done.stdout
    alone = ddconsole(runs, "attach", "--headless", "--offline")
    assert (alone.returncode, alone.stderr) == (0, "")


def test_status_runs_and_cells_of_a_copy_say_how_old_it_is(runs: Path) -> None:
    status = ddconsole(runs, "status", "--short")
    assert re.fullmatch(r"r ▶ 0/2 .*\(as of \d+ \w+ ago, by the copy here\)\n", status.stdout)
    told = json.loads(ddconsole(runs, "status", "--json").stdout)
    assert (told["copy"], told["written"], told["host"].startswith("me@127.0.0.1:")) == (True, 1790000000.0, True)
    listed = ddconsole(runs, "runs").stdout
    assert re.search(r"r  running .*me@127\.0\.0\.1:\d+, as of \d+ \w+ ago, by the copy here\n", listed)
    table = ddconsole(runs, "cells").stdout.splitlines()
    assert re.search(r"ago, by the copy here; --host me@127\.0\.0\.1:\d+ asks the host$", table[0])
    owed = ddconsole(runs, "debts")
    assert "by the copy here" in owed.stderr


def test_the_status_of_a_copy_follows_its_journal_and_is_made_once(runs: Path) -> None:
    first = ddconsole(runs, "status", "--short").stdout
    kept = runs / RUN / ".copy-status.json"
    made = kept.stat().st_mtime_ns
    assert ddconsole(runs, "status", "--short").stdout.split("(")[0] == first.split("(")[0]
    assert kept.stat().st_mtime_ns == made
    journal = runs / RUN / "journal.jsonl"
    seq = len(journal.read_bytes().splitlines()) + 1
    journal.write_bytes(journal.read_bytes() + encode_line(Entry(1, seq, 2000.0, RunEnded("stopped"))))
    assert "r ■ 0/2 stopped" in ddconsole(runs, "status", "--short").stdout


def test_a_log_that_is_here_whole_is_printed_without_the_host(runs: Path) -> None:
    done = ddconsole(runs, "logs")
    assert (done.returncode, done.stdout) == (0, "loading\nready\n")
