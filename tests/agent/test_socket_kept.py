"""Something deletes the agent's socket, as a cleaner of /tmp does: it comes back, and no second agent starts."""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from waiting import until

from ddconsole.link import on_host
from ddconsole.link.connect import connect
from ddconsole.link.http_client import HttpAgentClient


def agents(state: Path) -> list[int]:
    """Keepers and agents of a state folder."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if str(state) in (one.info["cmdline"] or [])]


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HttpAgentClient]:
    one = await connect("local", state_directory=str(tmp_path / "state"))
    yield one
    await one.close()
    for pid in agents(tmp_path / "state"):
        os.kill(pid, signal.SIGTERM)


@pytest.mark.parametrize("what", ["socket", "folder"])
async def test_what_was_deleted_is_made_anew_within_ten_seconds(
    what: str, client: HttpAgentClient, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    before = await client.hello()
    socket = Path(on_host.socket_path(str(state), os.geteuid()))
    if what == "socket":
        socket.unlink()
    else:
        shutil.rmtree(socket.parent)
    assert on_host.lock_holder(str(socket)) == before.pid
    # A console that comes now: it must find the agent that is there.
    other = await connect("local", state_directory=str(state))
    assert (await other.hello()).agent == before.agent
    await other.close()
    await until(lambda: on_host.answers(str(socket)), 10, "for the socket")
    assert on_host.lock_holder(str(socket)) == before.pid
    assert len(agents(state)) == 2
    # And once more: what was made anew is watched too.
    socket.unlink()
    await until(lambda: on_host.answers(str(socket)), 10, "for the socket")


async def test_an_agent_that_is_started_by_hand_meanwhile_leaves(client: HttpAgentClient, tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = await client.hello()
    socket = on_host.socket_path(str(state), os.geteuid())
    shutil.rmtree(Path(socket).parent)
    command = [
        *psutil.Process(before.pid).cmdline()[:3],
        "--state",
        str(state),
        "--socket",
        socket,
        "--held",
        "by hand",
    ]
    process = await asyncio.create_subprocess_exec(*command)
    async with asyncio.timeout(20):
        assert await process.wait() == 3
    assert (await client.hello()).agent == before.agent


async def test_an_agent_that_leaves_takes_its_socket_and_folder_along_and_the_next_one_has_them(tmp_path: Path) -> None:
    state = tmp_path / "state"
    socket = Path(on_host.socket_path(str(state), os.geteuid()))
    for _ in range(2):
        client = await connect("local", state_directory=str(state))
        assert socket.is_socket()
        await client.close()
        for pid in agents(state):
            os.kill(pid, signal.SIGTERM)
        await until(lambda: not agents(state), 20, "for the agent to leave")
        assert not socket.parent.exists()
