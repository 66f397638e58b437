import asyncio
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from fake_agent import RUN, FakeAgent
from waiting import until

from ddconsole.core.events import Entry, Warned
from ddconsole.core.journal_line import encode_line
from ddconsole.core.records import CellProgress
from ddconsole.core.wire import Command, LogPiece
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient


async def entries(client: HttpAgentClient, after: int, until: int) -> list[Entry]:
    found: list[Entry] = []
    async with aclosing(client.journal(RUN, after)) as journal:
        async for item in journal:
            if isinstance(item, Entry):
                found.append(item)
                if item.seq == until:
                    break
    return found


async def test_answers_become_values_and_unknown_fields_are_ignored(client: HttpAgentClient) -> None:
    hello = await client.hello()
    assert (hello.hostname, hello.now) == ("fake-host", 5000.0)
    assert [run.run for run in await client.runs()] == [RUN]


async def test_the_journal_comes_gap_free_from_a_seq_on(client: HttpAgentClient, agent: FakeAgent) -> None:
    agent.append(*(Warned(f"{n}") for n in range(3000)))
    found = await entries(client, 5, 3005)
    assert [entry.seq for entry in found] == list(range(6, 3006))


async def test_a_line_of_megabytes_is_one_entry(client: HttpAgentClient, agent: FakeAgent) -> None:
    agent.append(Warned("x" * 3_000_000))
    last = (await entries(client, 5, 6))[-1]
    assert isinstance(last.event, Warned)
    assert len(last.event.text) == 3_000_000


async def test_heartbeats_carry_the_agents_time(client: HttpAgentClient) -> None:
    async with aclosing(client.journal(RUN, 5)) as journal:
        assert await anext(journal) == 5000.0


async def test_silence_is_a_lost_link(agent: FakeAgent, socket_file: Path) -> None:
    agent.beat = 60.0

    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        client = HttpAgentClient(session, "fake", silence=0.2)
        with pytest.raises(LinkLost, match=r"nothing heard for 0 s"):
            await entries(client, 5, 99)
        await client.close()


async def test_an_agent_that_goes_is_a_lost_link_and_the_next_call_makes_a_new_one(
    agent: FakeAgent, socket_file: Path
) -> None:
    made: list[aiohttp.ClientSession] = []

    async def session() -> aiohttp.ClientSession:
        made.append(new_session(aiohttp.UnixConnector(str(socket_file))))
        return made[-1]

    client = HttpAgentClient(session, "fake")
    async with agent.listening(socket_file):
        reading = asyncio.create_task(entries(client, 5, 99))
        await until(lambda: agent.journal_requests)
    with pytest.raises(LinkLost, match=r"link was lost|ended the stream"):
        await reading
    with pytest.raises(LinkLost):
        await client.hello()
    async with agent.listening(socket_file):
        assert (await client.hello()).hostname == "fake-host"
    await client.close()
    assert len(made) == 3
    assert all(one.closed for one in made)


async def test_an_answer_that_breaks_off_is_told_in_plain_words(client: HttpAgentClient, socket_file: Path) -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n20\r\nonly this")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    socket_file.unlink()
    async with await asyncio.start_unix_server(half, socket_file):
        with pytest.raises(LinkLost) as lost:
            await client.hello()
    assert lost.value.text == "fake: the link was lost: the answer broke off in the middle"


async def test_one_new_link_for_many_callers(agent: FakeAgent, socket_file: Path) -> None:
    made = 0

    async def session() -> aiohttp.ClientSession:
        nonlocal made
        made += 1
        await asyncio.sleep(0.05)
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        client = HttpAgentClient(session, "fake")
        await asyncio.gather(*(client.hello() for _ in range(20)))
        await client.close()
    assert made == 1


async def test_a_refusal_comes_in_the_agents_words(client: HttpAgentClient, agent: FakeAgent) -> None:
    agent.refuse_commands = "run r2 is active\x1b[2J"
    with pytest.raises(AgentError) as refused:
        await client.command(RUN, Command("1", "stop", "me", ("c001",)))
    assert not isinstance(refused.value, LinkLost)
    assert (refused.value.text, refused.value.do) == ("run r2 is active^[[2J", "something else")


async def test_an_answer_that_is_no_refusal_of_ours_is_quoted(client: HttpAgentClient) -> None:
    with pytest.raises(AgentError, match="status 404"):
        await client.files("no-such-run")


async def test_a_damaged_line_is_not_a_lost_link(client: HttpAgentClient, agent: FakeAgent) -> None:
    agent.lines.append(encode_line(Entry(1, 6, 1.0, Warned("whole"))).replace(b"whole", b"hole!"))
    with pytest.raises(AgentError, match=r"damaged: checksum") as problem:
        await entries(client, 5, 6)
    assert not isinstance(problem.value, LinkLost)


async def test_live_items_are_told_apart(client: HttpAgentClient, agent: FakeAgent) -> None:
    progress = CellProgress("c001", 1, 2, 5, 0, 1, 33.0, 7.0)
    piece: dict[str, Any] = asdict(LogPiece(3, 90, ("a", "b")))
    agent.send_live("novelty", {"of": "a later version"})
    agent.send_live("progress", asdict(progress))
    agent.send_live("log", piece)
    async with aclosing(client.live(RUN, 3, 40)) as live:
        assert [await anext(live), await anext(live)] == [progress, LogPiece(3, 90, ("a", "b"))]
    assert agent.live_requests == [{"launch": "3", "from": "40"}]


async def test_a_log_comes_in_pieces(client: HttpAgentClient, agent: FakeAgent) -> None:
    agent.logs[1] = b"0123456789"
    assert await client.log(RUN, 1, 4, 3) == b"456"
    with pytest.raises(AgentError, match="no log yet"):
        await client.log(RUN, 2, 0, 3)


async def test_a_client_closed_while_it_connects_leaves_nothing_open(socket_file: Path) -> None:
    made: list[aiohttp.ClientSession] = []
    go_on = asyncio.Event()

    async def session() -> aiohttp.ClientSession:
        await go_on.wait()
        made.append(new_session(aiohttp.UnixConnector(str(socket_file))))
        return made[0]

    client = HttpAgentClient(session, "fake")
    asking = asyncio.create_task(client.hello())
    await asyncio.sleep(0)
    await client.close()
    go_on.set()
    with pytest.raises(LinkLost, match="closed here"):
        await asking
    assert made[0].closed


async def test_a_closed_client_makes_no_new_link(client: HttpAgentClient) -> None:
    await client.hello()
    await client.close()
    with pytest.raises(LinkLost, match="closed here"):
        await client.hello()
