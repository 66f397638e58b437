"""An agent's service in the test's own process, simulated GPUs for it, and somebody who may hold their memory."""

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from sweeps import directory, ended, until

from ddconsole.agent.service import Service
from ddconsole.core.clock import SystemClock
from ddconsole.core.wire import Command


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A run that a test leaves unfinished is stopped."""
    one = Service(tmp_path / "runs", SystemClock())
    await one.start()
    yield one
    run = one.active_run
    if run is not None:
        one.command(directory(one, run), Command("teardown", "stop-run", "test"))
        await until(one, run, ended)
    await one.stop()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of eight simulated GPUs; a service that is to see them is made after it."""
    folder = tmp_path / "gpus"
    folder.mkdir()
    monkeypatch.setenv("DDCONSOLE_REHEARSAL", str(folder))
    return folder


@pytest.fixture
def stranger() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that is of no sweep."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)  # a stranger"], cwd="/")
    yield process
    process.kill()
    process.wait()
