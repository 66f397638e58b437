import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sshd import environment_of, until_gone

from ddconsole import __version__
from ddconsole.link.client import LinkLost
from ddconsole.link.handshake import OtherProtocol, ask_hello, version_note
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.local_agent import AgentCommand, LocalAgentRoute, installed_agent
from ddconsole.link.stages import Stage, StageError

FAKE = Path(__file__).parent.parent / "rigs" / "fake_agent.py"
ROOT = Path(__file__).parent.parent.parent


class Place:
    """A state directory with a socket folder of its own, and the agents that were started for it."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        self.base = folder / "b"
        self.base.mkdir()
        self.stages: list[Stage] = []

    def route(self, *arguments: str, start_time: float = 20.0, **environment: str) -> LocalAgentRoute:
        command = AgentCommand((sys.executable, str(FAKE), *arguments), {"PYTHONPATH": str(ROOT), **environment})
        return LocalAgentRoute(
            self.state,
            command,
            socket_base=str(self.base),
            start_time=start_time,
            on_stage=self.stages.append,
        )

    def started(self) -> list[int]:
        path = self.state / "started"
        return [int(one) for one in path.read_text().split()] if path.exists() else []


@pytest.fixture
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    one = Place(tmp_path_factory.mktemp("l"))
    yield one
    for pid in one.started():
        if FAKE.name in _command(pid):
            os.kill(pid, signal.SIGKILL)
            assert await until_gone(pid)


def _command(pid: int) -> str:
    path = Path(f"/proc/{pid}/cmdline")
    return path.read_text() if path.exists() else ""


async def pid_of(route: LocalAgentRoute) -> int:
    client = HttpAgentClient(route.open, "local")
    hello = await client.hello()
    await client.close()
    return hello.pid


async def test_an_agent_is_started_detached_and_found_again(place: Place) -> None:
    pid = await pid_of(place.route(DDCONSOLE_CLOCK="60@1000.0"))
    assert place.stages == [Stage.CONNECT, Stage.START, Stage.HANDSHAKE]
    assert os.getsid(pid) != os.getsid(0)
    assert Path(f"/proc/{pid}/status").read_text().count(f"PPid:\t{os.getpid()}\n") == 0
    assert environment_of(pid)["DDCONSOLE_CLOCK"] == "60@1000.0"
    assert {Path(f"/proc/{pid}/fd/{n}").readlink() for n in (1, 2)} == {place.state / "agent.log"}
    assert Path(f"/proc/{pid}/fd/0").readlink() == Path("/dev/null")
    assert await pid_of(place.route()) == pid
    assert place.started() == [pid]


async def test_the_real_agent_is_one_however_often_it_is_called_for(place: Place) -> None:
    routes = [LocalAgentRoute(place.state, socket_base=str(place.base)) for _ in range(2)]
    clients = [HttpAgentClient(route.open, "local") for route in routes]
    hellos = await asyncio.gather(*(client.hello() for client in clients))
    assert hellos[0].agent == hellos[1].agent
    await clients[0].quit()
    for client in clients:
        await client.close()
    assert await until_gone(hellos[0].pid)


async def test_two_consoles_at_the_same_time_get_one_agent(place: Place) -> None:
    pids = await asyncio.gather(*(pid_of(place.route()) for _ in range(3)))
    assert len(set(pids)) == 1
    # The losers of the race for the lock are gone.
    for pid in place.started():
        assert pid == pids[0] or await until_gone(pid)


async def test_a_killed_agent_is_replaced_and_its_socket_and_lock_are_no_obstacle(place: Place) -> None:
    route = place.route()
    client = HttpAgentClient(route.open, "local")
    first = (await client.hello()).pid
    os.kill(first, signal.SIGKILL)
    assert await until_gone(first)
    assert Path(route.socket).exists()
    with pytest.raises(LinkLost):
        await client.hello()
    second = (await client.hello()).pid
    assert second != first
    await client.close()


async def test_an_agent_that_ends_at_once_is_told_with_the_end_of_its_log(place: Place) -> None:
    command = AgentCommand((sys.executable, "-c", "import sys; sys.exit('no driver\\x1b[2J here')"))
    route = LocalAgentRoute(place.state, command, socket_base=str(place.base))
    with pytest.raises(StageError, match=r"the agent ended at once; its log ends: no driver\^\[\[2J here") as ended:
        await route.open()
    assert (ended.value.stage, ended.value.final) == (Stage.HANDSHAKE, True)


async def test_an_agent_that_never_answers_has_a_deadline(place: Place) -> None:
    command = AgentCommand((sys.executable, "-c", "import time; time.sleep(3)"))
    route = LocalAgentRoute(place.state, command, socket_base=str(place.base), start_time=0.2)
    with pytest.raises(StageError, match="did not answer within 0 s; its log is empty") as late:
        await route.open()
    assert not late.value.final


async def test_a_hung_agent_is_told_and_no_second_one_started(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ddconsole.link.handshake.HELLO_TIME", 0.2)
    route = place.route()
    session = await route.open()
    pid = place.started()[0]
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StageError, match="accepts but nobody answers"):
            await route.open()
    finally:
        os.kill(pid, signal.SIGCONT)
        await session.close()
    assert place.started() == [pid]


async def test_a_squatted_socket_folder_is_refused(place: Place) -> None:
    (place.base / f"ddconsole-{os.geteuid()}").mkdir(mode=0o777)
    (place.base / f"ddconsole-{os.geteuid()}").chmod(0o777)
    with pytest.raises(StageError, match=r"E130 .* has mode 0777") as refused:
        await place.route().open()
    assert refused.value.final
    assert place.started() == []


async def test_an_older_agent_without_a_run_makes_way(place: Place) -> None:
    with pytest.raises(
        OtherProtocol, match=r"E150 .* protocol 0, this is ddconsole \S+ with protocol \d+ → wait until"
    ):
        await place.route("--protocol", "0").open()
    old = place.started()[0]
    new = await pid_of(place.route())
    assert new != old
    assert await until_gone(old)


async def test_an_idle_agent_of_an_older_version_makes_way_for_this_one(place: Place) -> None:
    with pytest.raises(OtherProtocol, match=r"E150 .* ddconsole 0\.0\.9 "):
        await place.route("--version", "0.0.9").open()
    old = place.started()[0]
    assert await pid_of(place.route()) != old
    assert await until_gone(old)


@pytest.mark.parametrize("version", ["0.0.9", "99.1"])
async def test_an_agent_of_another_version_that_runs_a_sweep_is_used_as_it_is(place: Place, version: str) -> None:
    session = await place.route("--version", version, "--run", "r").open()
    hello = await ask_hello(session, "local")
    await session.close()
    text = f"agent {version} runs a sweep; it is used as it is until the run ends (this is {__version__})"
    assert version_note(hello) == text
    assert await pid_of(place.route()) == hello.pid
    assert len(place.started()) == 1


async def test_an_agent_of_an_older_protocol_that_runs_a_sweep_is_refused_with_both_versions(place: Place) -> None:
    expected = rf"E150 .* is ddconsole 0\.0\.9 with protocol 0, this is ddconsole {__version__} with protocol \d+"
    for _ in range(2):
        with pytest.raises(OtherProtocol, match=expected) as refused:
            await place.route("--protocol", "0", "--version", "0.0.9", "--run", "r").open()
        assert "or use ddconsole 0.0.9 here" in refused.value.do
    assert len(place.started()) == 1


async def test_a_newer_agent_is_refused_by_name_and_left_alone(place: Place) -> None:
    for _ in range(2):
        with pytest.raises(StageError, match=r"E151 .* is ddconsole 99\.1 with protocol 99") as refused:
            await place.route("--protocol", "99", "--version", "99.1").open()
        assert refused.value.do == "use ddconsole 99.1 here too"
    assert len(place.started()) == 1
    assert Path(f"/proc/{place.started()[0]}").exists()


async def test_a_foreign_server_at_the_socket_is_no_agent(place: Place) -> None:
    route = place.route()
    route._check_socket()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, route.socket):
        with pytest.raises(StageError, match="no JSON: hi"):
            await route.open()


def test_the_agent_of_a_checkout_is_found_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata  # noqa: PLC0415  # the module that is patched

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    command = installed_agent()
    assert command.argv == (sys.executable, "-m", "ddconsole.agent")
    assert command.environment == {"PYTHONPATH": str(ROOT)}
