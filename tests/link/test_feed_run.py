import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import aiohttp
import pytest
from fake_agent import RUN, FakeAgent
from waiting import until

from ddconsole.core import states as st
from ddconsole.core.events import (
    AttemptStarted,
    AttemptStopped,
    CommandTaken,
    LaunchPlanned,
    LaunchReady,
    LaunchStarting,
    Warned,
)
from ddconsole.core.records import CellProgress
from ddconsole.core.wire import DecodeFigures, LogPiece
from ddconsole.link.client import LinkLost, LinkPhase
from ddconsole.link.feed import RunFeed
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.stages import Stage, StageError


@pytest.fixture
async def feed(client: HttpAgentClient) -> AsyncIterator[LiveRunFeed]:
    one = LiveRunFeed(client, RUN)
    one.start()
    yield one
    await one.close()


@contextmanager
def at_once(feed: LiveRunFeed) -> Iterator[None]:
    """Tests do not wait for the backoff."""
    feed._backoff.delay = lambda: 0.02  # type: ignore[method-assign]
    yield


async def test_a_feed_is_what_screens_expect(feed: LiveRunFeed) -> None:
    as_screens_see_it: RunFeed = feed
    await until(lambda: as_screens_see_it.state.seq == 5)
    assert as_screens_see_it.link.phase is LinkPhase.UP
    assert list(as_screens_see_it.state.cells) == ["c001", "c002"]
    assert as_screens_see_it.host == "fake"


async def test_the_clock_is_the_agents_and_goes_at_its_pace(agent: FakeAgent, socket_file: Path) -> None:
    wall = [100.0]

    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        client = HttpAgentClient(session, "fake")
        feed = LiveRunFeed(client, RUN, wall=lambda: wall[0])
        assert feed.now() == 100.0
        feed.start()
        await until(lambda: feed.link.phase is LinkPhase.UP)
        wall[0] = 107.0
        assert feed.now() == 5007.0
        feed._clock = (5000.0, 100.0, 60.0)
        assert feed.now() == 5420.0
        await feed.close()
        await client.close()


async def test_a_readonly_feed_refuses_before_anything_is_sent(client: HttpAgentClient, agent: FakeAgent) -> None:
    looking = LiveRunFeed(client, RUN, readonly=True)
    looking.start()
    await until(lambda: looking.link.phase is LinkPhase.UP and looking.state.seq == 5)
    answer = await looking.command("skip", ["c001"])
    assert not answer.taken
    assert "--readonly" in answer.text
    steering = LiveRunFeed(client, RUN)
    assert (await steering.command("pause")).taken
    assert [command["name"] for command in agent.commands] == ["pause"]
    await looking.close()
    await steering.close()


async def test_changes_are_told_together_and_not_too_often(feed: LiveRunFeed, agent: FakeAgent) -> None:
    told: list[frozenset[str]] = []
    await until(lambda: feed.state.seq == 5)
    end = feed.subscribe(told.append)
    agent.append(*(Warned(f"{n}") for n in range(500)))
    await until(lambda: feed.state.seq == 505 and told)
    assert any("state" in names for names in told)
    assert len(told) < 50
    await asyncio.sleep(0.15)
    end()
    told.clear()
    agent.append(Warned("unheard"))
    await until(lambda: feed.state.seq == 506)
    await asyncio.sleep(0.15)
    assert told == []


async def test_after_a_loss_it_reconnects_with_the_age_of_what_is_known_and_replays_without_a_gap(
    agent: FakeAgent, socket_file: Path
) -> None:
    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    client = HttpAgentClient(session, "fake")
    feed = LiveRunFeed(client, RUN)
    async with agent.listening(socket_file):
        feed.start()
        await until(lambda: feed.state.seq == 5)
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING and feed.link.next_try)
    heard, since = feed.link.heard, feed.link.since
    assert heard is not None
    assert heard <= since
    agent.append(*(Warned(f"while away {n}") for n in range(40)))
    async with agent.listening(socket_file):
        feed.retry_now()
        await until(lambda: feed.state.seq == 45)
        assert feed.link.phase is LinkPhase.UP
        assert feed.state.unknown_events == 0
        assert [one.text for one in feed.state.warnings[:1]] == ["while away 0"]
        assert agent.journal_requests == [0, 5]
        await feed.close()
    await client.close()


async def test_a_host_that_refuses_the_login_is_not_tried_again_by_itself(agent: FakeAgent, socket_file: Path) -> None:
    tries = 0

    async def session() -> aiohttp.ClientSession:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise StageError(Stage.AUTH, "ct200", "E105 permission denied", "ssh-add", final=True)
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        client = HttpAgentClient(session, "ct200")
        feed = LiveRunFeed(client, RUN)
        feed.start()
        await until(lambda: feed.link.phase is LinkPhase.DOWN)
        assert "ct200: auth: E105 permission denied → ssh-add" in feed.link.detail
        await asyncio.sleep(0.1)
        assert tries == 1
        feed.retry_now()
        await until(lambda: feed.link.phase is LinkPhase.UP)
        await feed.close()
        await client.close()


async def test_a_refused_connection_is_tried_again(agent: FakeAgent, socket_file: Path) -> None:
    tries = 0

    async def session() -> aiohttp.ClientSession:
        nonlocal tries
        tries += 1
        if tries < 4:
            raise StageError(Stage.CONNECT, "ct200", "connection refused", "check", final=False)
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        client = HttpAgentClient(session, "ct200")
        feed = LiveRunFeed(client, RUN)
        with at_once(feed):
            feed.start()
            await until(lambda: feed.link.phase is LinkPhase.UP)
        assert tries == 4
        await feed.close()
        await client.close()


async def test_the_stage_of_a_new_link_is_shown(agent: FakeAgent, socket_file: Path) -> None:
    go_on = asyncio.Event()

    async def session() -> aiohttp.ClientSession:
        client.stages(Stage.UPLOAD)
        await go_on.wait()
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    async with agent.listening(socket_file):
        client = HttpAgentClient(session, "ct200")
        feed = LiveRunFeed(client, RUN)
        feed.start()
        await until(lambda: feed.link.detail)
        assert (feed.link.phase, feed.link.detail) == (LinkPhase.CONNECTING, "upload …")
        go_on.set()
        await until(lambda: feed.link.phase is LinkPhase.UP)
        await feed.close()
        await client.close()


async def test_a_run_that_is_not_there_is_told(client: HttpAgentClient) -> None:
    feed = LiveRunFeed(client, "elsewhere")
    feed.start()
    await until(lambda: feed.link.phase is LinkPhase.DOWN)
    assert "status 404" in feed.link.detail
    await feed.close()


async def test_entries_lost_on_the_way_are_asked_for_again(agent: FakeAgent, client: HttpAgentClient) -> None:
    agent.append(*(Warned(f"{n}") for n in range(10)))
    agent.skip_seq = 9
    feed = LiveRunFeed(client, RUN)
    with at_once(feed):
        feed.start()
        await until(lambda: feed.state.seq == 15)
    assert agent.journal_requests == [0, 8]
    assert [one.text for one in feed.state.warnings] == [f"{n}" for n in range(10)]
    await feed.close()


async def test_progress_of_one_attempt_is_kept_as_rates_and_ends_with_its_cell(
    feed: LiveRunFeed, agent: FakeAgent
) -> None:
    agent.append(
        LaunchPlanned(1, "d01", 1),
        LaunchStarting(1, "process started", pid=1, port=2),
        LaunchReady(1),
        AttemptStarted("c001", 1, 1, 1, 0),
    )
    await until(lambda: feed.state.running_cell() is not None)
    for n in range(130):
        agent.send_live("progress", asdict(CellProgress("c001", 1, n, 200, 0, 1, float(n), 1.0)))
    await until(lambda: feed.progress and feed.progress.requests_done == 129)
    assert feed.rates == tuple(float(n) for n in range(10, 130))
    agent.send_live("progress", asdict(CellProgress("c001", 2, 0, 200, 0, 1, 7.0, 1.0)))
    await until(lambda: feed.rates == (7.0,))
    agent.send_live("decode", asdict(DecodeFigures(1, 2.0, 99.0, 1, 0, 3.5)))
    await until(lambda: feed.decode is not None)
    agent.append(AttemptStopped("c001", 1, 1, "me"))
    await until(lambda: feed.progress is None)
    assert feed.rates == ()


async def test_a_log_is_followed_and_goes_on_where_it_was_after_a_loss(agent: FakeAgent, socket_file: Path) -> None:
    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    client = HttpAgentClient(session, "fake")
    feed = LiveRunFeed(client, RUN)
    pieces: list[LogPiece] = []
    async with agent.listening(socket_file):
        feed.start()
        await until(lambda: agent.live_requests)
        feed.follow_log(2, pieces.append)
        agent.send_live("log", asdict(LogPiece(2, 120, ("one", "two"))))
        await until(lambda: pieces)
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
    async with agent.listening(socket_file):
        feed.retry_now()
        await until(lambda: {"launch": "2", "from": "120"} in agent.live_requests)
        feed.follow_log(None, pieces.append)
        await until(lambda: agent.live_requests[-1] == {})
        await feed.close()
    assert {"launch": "2"} in agent.live_requests
    assert pieces[0].lines == ("one", "two")
    await client.close()


async def test_a_refusal_is_an_answer(feed: LiveRunFeed, agent: FakeAgent) -> None:
    agent.refuse_commands = "c001 is done"
    answer = await feed.command("stop", ["c001"])
    assert (answer.taken, answer.text) == (False, "c001 is done → something else")


async def test_a_command_whose_answer_was_lost_is_sent_again_with_its_id(feed: LiveRunFeed, agent: FakeAgent) -> None:
    await until(lambda: feed.link.phase is LinkPhase.UP)
    agent.break_answers = 1
    with at_once(feed):
        answer = await feed.command("stop", ["c001"], because="slow")
    assert answer.taken
    assert len(agent.commands) == 2
    assert agent.commands[0] == agent.commands[1]
    assert agent.commands[0]["because"] == "slow"


async def test_a_command_on_a_lost_link_says_what_is_not_known(
    agent: FakeAgent, socket_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ddconsole.link.feed_run._SECOND_TRY", 0.05)

    async def session() -> aiohttp.ClientSession:
        return new_session(aiohttp.UnixConnector(str(socket_file)))

    client = HttpAgentClient(session, "fake")
    feed = LiveRunFeed(client, RUN)
    async with agent.listening(socket_file):
        feed.start()
        await until(lambda: feed.state.seq == 5)
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
    with pytest.raises(LinkLost, match="whether stop was taken shows when the link is back"):
        await feed.command("stop", ["c001"])
    await feed.close()
    await client.close()


async def test_a_command_that_the_journal_knows_was_taken(
    agent: FakeAgent, client: HttpAgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq == 5)

    async def taken_but_not_answered(run: str, command: object) -> None:
        name = getattr(command, "id", "")
        agent.append(CommandTaken(name, "stop", ("c001",), "me"))
        await until(lambda: name in feed.state.commands)
        raise LinkLost("gone")

    async def not_back() -> bool:
        return False

    monkeypatch.setattr(client, "command", taken_but_not_answered)
    monkeypatch.setattr(feed._steering, "_back_in_time", not_back)
    answer = await feed.command("stop", ["c001"])
    assert answer.taken
    assert st.CellCommand.STOP in answer.text
    await feed.close()


async def test_a_mistake_of_ours_is_shown_instead_of_stale_values(
    feed: LiveRunFeed, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await until(lambda: feed.state.seq == 5)

    def broken(*_: object) -> None:
        raise KeyError("nonsense")

    monkeypatch.setattr("ddconsole.link.feed_run.apply", broken)
    agent.append(Warned("x"))
    await until(lambda: feed.link.phase is LinkPhase.DOWN)
    assert "KeyError" in feed.link.detail
