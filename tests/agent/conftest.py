"""An agent's service in the test's own process."""

from collections.abc import AsyncIterator
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
