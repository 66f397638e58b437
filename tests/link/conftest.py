"""A fake agent at a unix socket and a client to it; a real sshd and agents behind it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from fake_agent import FakeAgent
from remote_agent import Remote
from sshd import Sshd, prepared

from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.ssh_host import HostConnection, connect_ssh


@pytest.fixture
def agent() -> FakeAgent:
    return FakeAgent()


@pytest.fixture
def socket_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    # Short: pytest names folders after tests, and a socket's path may have 107 bytes.
    path = tmp_path_factory.mktemp("s") / "a.sock"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture
async def client(agent: FakeAgent, socket_file: Path) -> AsyncIterator[HttpAgentClient]:
    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        one = HttpAgentClient(session, "fake", silence=2.0, answer_time=5.0)
        yield one
        await one.close()


@pytest.fixture(scope="module")
def open_sshd() -> Iterator[Sshd]:
    with prepared() as one:
        one.start()
        yield one


@pytest.fixture
def sshd() -> Iterator[Sshd]:
    """One of the test's own, to break."""
    with prepared() as one:
        one.start()
        yield one


@pytest.fixture
async def host(open_sshd: Sshd) -> AsyncIterator[HostConnection]:
    one = await connect_ssh(open_sshd.spec, open_sshd.settings())
    yield one
    await one.close()


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One bundle for all tests."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
async def remote(open_sshd: Sshd, cache: Path) -> AsyncIterator[Remote]:
    one = Remote(open_sshd, cache)
    yield one
    await one.clear()


@pytest.fixture
async def breakable(sshd: Sshd, cache: Path) -> AsyncIterator[Remote]:
    one = Remote(sshd, cache)
    yield one
    await one.clear()
