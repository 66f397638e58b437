"""A fake agent at a unix socket, and a client to it."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from fake_agent import FakeAgent

from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient


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
