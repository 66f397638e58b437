"""A real agent with its keeper on this machine, as a console starts it, and what the run's folder says meanwhile."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command
from ddconsole.link.connect import connect
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.runner.run_directory import RunDirectory


@asynccontextmanager
async def kept_agent(folder: Path) -> AsyncIterator[HttpAgentClient]:
    """The agent over `folder/runs`; afterwards those that are there, with their keepers, are told to leave."""
    state = folder / "state"
    client = await connect("local", state_directory=str(state), runs=folder / "runs")
    await client.hello()
    try:
        yield client
    finally:
        await client.close()
        await end_agents(state)


async def end_agents(state: Path) -> None:
    """Have the keepers of a state folder leave with their agents; none is started by that, as by asking one."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        argv = one.info["cmdline"] or []
        if str(state) in argv and "ddconsole.agent" in " ".join(argv) and "--unkept" not in argv:
            found.append(one)
    for one in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.terminate()
    await asyncio.to_thread(psutil.wait_procs, found, 10)


def parent_of(pid: int) -> int:
    """The parent's pid."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_there(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def on_disk(run: RunDirectory) -> RunState:
    """The state as the journal on disk has it; nothing of it before there is one."""
    try:
        entries, _ = read_lines(run.journal.read_bytes())
    except FileNotFoundError:
        return RunState()
    return fold(entries)


async def wait_on_disk(run: RunDirectory, done: Callable[[RunState], bool], seconds: float = 60.0) -> RunState:
    """Wait until the journal on disk says so."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done(state := on_disk(run)):
        assert loop.time() < deadline, (state.phase, state.paused_because, state.cells, state.launches)
        await asyncio.sleep(0.05)
    return state


def is_over(state: RunState) -> bool:
    """The run has ended and nothing of it lives."""
    return state.phase is st.RunPhase.ENDED and state.live_launch() is None


async def tell(client: HttpAgentClient, run: RunDirectory, name: str, *cells: str) -> None:
    """A command that must be taken."""
    answer = await client.command(run.path.name, Command(os.urandom(8).hex(), name, "test", cells))
    assert answer.taken, answer.text
