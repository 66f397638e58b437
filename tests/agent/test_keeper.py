"""The keeper of an agent: it starts another one when the agent dies, and leaves when it is told to."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from waiting import until


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    folder = tmp_path / "s"
    folder.mkdir(mode=0o700)
    argv = ["--state", str(tmp_path / "state"), "--runs", str(tmp_path / "runs"), "--socket", str(folder / "a")]
    process = subprocess.Popen([sys.executable, "-m", "ddconsole.agent", *argv], start_new_session=True)
    yield process
    for one in (*psutil.Process(process.pid).children(recursive=True),) if process.poll() is None else ():
        one.kill()
    if process.poll() is None:
        process.kill()
        process.wait()


def agents_of(keeper: "subprocess.Popen[bytes]") -> list[psutil.Process]:
    return psutil.Process(keeper.pid).children() if keeper.poll() is None else []


async def test_a_keeper_that_is_told_to_leave_while_no_agent_lives_leaves(keeper: "subprocess.Popen[bytes]") -> None:
    await until(lambda: agents_of(keeper), 20, "for an agent")
    agents_of(keeper)[0].kill()
    await until(lambda: not [one for one in agents_of(keeper) if one.status() != psutil.STATUS_ZOMBIE], 10)
    await asyncio.sleep(0.3)  # it waits before it starts the next one
    keeper.send_signal(signal.SIGTERM)
    await until(lambda: keeper.poll() is not None, 20, "for the keeper to leave")
    assert keeper.returncode == 0


async def test_a_keeper_starts_another_agent_after_one_that_died(keeper: "subprocess.Popen[bytes]") -> None:
    await until(lambda: agents_of(keeper), 20, "for an agent")
    first = agents_of(keeper)[0]
    first.kill()
    await until(lambda: [one for one in agents_of(keeper) if one.pid != first.pid], 20, "for another agent")
    await until(lambda: not first.is_running(), 10)
    keeper.send_signal(signal.SIGTERM)
    await until(lambda: keeper.poll() is not None, 20, "for the keeper to leave")
