"""An agent in a box with a real systemd: log in to it, log out again, and look at it from outside."""

import asyncio
import pwd
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from systemd_box import SystemdBox

from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.link.connect import connect
from ddconsole.link.http_client import HttpAgentClient


@asynccontextmanager
async def console(box: SystemdBox, user: pwd.struct_passwd) -> AsyncIterator[HttpAgentClient]:
    """Log in, and log out again: nothing is left of the session but what the agent does about it."""
    host = f"{user.pw_name}@127.0.0.1:{box.sshd.port}"
    client = await connect(host, state_directory=f"{user.pw_dir}/state", ssh=box.sshd.settings())
    try:
        yield client
    finally:
        await client.close()


def state_of(box: SystemdBox, user: pwd.struct_passwd, run: str) -> RunState:
    """What the journal on the box's disk comes to."""
    journal = box.path(f"{user.pw_dir}/state/runs/{run}/journal.jsonl")
    entries, _ = read_lines(journal.read_bytes()) if journal.exists() else ((), None)
    return fold(entries)


def agents(box: SystemdBox) -> list[str]:
    """Processes of agents in the box, keepers too: pid and command line."""
    listed = box.run("ps", "-eo", "pid,args").stdout.splitlines()
    return [line for line in listed if "ddconsole.agent" in line]


async def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    """Wait, looking rarely: each look starts a process in the box."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.2)
