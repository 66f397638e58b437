"""Rehearsals one after another: each has its own simulated host, clock and faults."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.link.client import AgentError
from ddconsole.link.connect import connect

PLAN = """
name: two
host: local
model: {path: /dev/shm/none}
engine: {kind: sglang, python: python3}
methods: {ar: {}}
baseline: ar
tensor_parallel: [1]
workloads: {generate: {kind: single, prompts: five, max_tokens: [32], repetitions: 1}}
placement: {1: [0]}
protocol: {warmup: 0, canary: false}
"""
CRASH = [{"fault": "crash-loading", "times": 99}]


class Rehearsals:
    """Rehearsals of the command line with one state folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._plan = folder / "two.yaml"
        self._plan.write_text(PLAN)
        (folder / "faults.json").write_text(json.dumps(CRASH))

    def run(self, name: str, *options: str) -> RunState:
        """Rehearse to the end; what became of it."""
        environment = {
            **os.environ,
            "XDG_STATE_HOME": str(self.folder / "state"),
            "DDCONSOLE_RUNS": str(self.folder / "runs"),
        }
        argv = [sys.executable, "-m", "ddconsole", "rehearse", str(self._plan), "--headless", "--force", "--name", name]
        done = subprocess.run(
            [*argv, *options], env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        journal = self.folder / "runs" / name / "journal.jsonl"
        assert journal.exists(), done.stdout + done.stderr
        return fold(read_lines(journal.read_bytes())[0])

    async def end(self) -> None:
        """End the agents, which would wait an hour for more to do."""
        for state in (self.folder / "state" / "ddconsole" / "rehearsal" / "hosts").glob("*/agent"):
            with contextlib.suppress(AgentError):
                client = await connect("local", state_directory=str(state))
                hello = await client.hello()
                await client.close()
                keeper = int(Path(f"/proc/{hello.pid}/stat").read_text().rpartition(")")[2].split()[1])
                os.kill(keeper, signal.SIGTERM)


@pytest.fixture
def rehearsals(tmp_path: Path) -> Iterator[Rehearsals]:
    (tmp_path / "runs").mkdir()
    found = Rehearsals(tmp_path)
    yield found
    asyncio.run(found.end())


def test_faults_and_scale_of_one_rehearsal_are_not_those_of_the_next(rehearsals: Rehearsals) -> None:
    faults = str(rehearsals.folder / "faults.json")
    first = rehearsals.run("first", "--scale", "300", "--faults", faults)
    second = rehearsals.run("second", "--scale", "200")

    assert {type(row.state) for row in first.cells.values()} == {st.Blocked}
    assert {type(row.state) for row in second.cells.values()} == {st.Done}
