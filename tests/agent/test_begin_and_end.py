"""What a run leaves that could not be begun, and what runners leave that have ended."""

import errno
from pathlib import Path

import psutil
import pytest
from sweeps import cells, deployment, directory, ended, submission, until
from waiting import until as wait

from ddconsole.agent.journal import Journal
from ddconsole.agent.launcher import ProcessLauncher, runner_identity
from ddconsole.agent.service import Service
from ddconsole.core.clock import SystemClock


async def test_a_run_that_cannot_be_written_down_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(tmp_path / "runs", SystemClock())
    await service.start()
    order = submission([deployment("d01", load_seconds=0.05)], cells("d01", 1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "journal.jsonl")

    with monkeypatch.context() as disk:
        disk.setattr(Journal, "append", full)
        with pytest.raises(OSError, match="No space left"):
            service.submit(order)
    try:
        assert list((tmp_path / "runs").glob("test-run*")) == []
        assert service.active_run is None
        assert service.submit(order) == "test-run", "the name is free"
    finally:
        await service.stop()


@pytest.mark.engine
async def test_a_runner_that_has_ended_is_no_zombie(tmp_path: Path) -> None:
    service = Service(tmp_path / "runs", SystemClock(), ProcessLauncher())
    await service.start()
    try:
        service.submit(submission([deployment("d01", load_seconds=0.05)], cells("d01", 1)))
        await until(service, "test-run", ended)
        identity = runner_identity(directory(service).launch(1))
        assert identity is not None
        await wait(lambda: not psutil.pid_exists(identity.pid), 10)
    finally:
        await service.stop()
