"""Two consoles on a real agent, over HTTP on its socket: who has control, and what late or doubled commands do."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pytest
from kept_agent import end_agents
from sweeps import cells, deployment, submission
from waiting import until

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.journal_line import read_lines
from ddconsole.core.wire import Command, CommandAnswer
from ddconsole.link.client import AgentError, LinkLost, NotInControl
from ddconsole.link.connect import connect
from ddconsole.link.console_identity import ConsoleIdentity
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient

RUN = "test-run"


@dataclass
class Consoles:
    """An agent of its own with a paused run, and consoles of two operators on it."""

    folder: Path
    ann: HttpAgentClient
    bob: HttpAgentClient
    feeds: list[LiveRunFeed] = field(default_factory=list)

    async def following(self, client: HttpAgentClient) -> LiveRunFeed:
        """A feed that has heard of the run; it is closed before the agent is, or it would start another one."""
        feed = LiveRunFeed(client, RUN, ping_interval=1.0)
        self.feeds.append(feed)
        feed.start()
        await until(lambda: feed.state.cells and feed.watchers is not None)
        return feed

    def events(self) -> list[ev.Event | None]:
        entries, damage = read_lines((self.folder / "runs" / RUN / "journal.jsonl").read_bytes())
        assert damage is None
        return [entry.event for entry in entries]


async def client_of(folder: Path, by: str) -> HttpAgentClient:
    one = await connect("local", state_directory=str(folder / "state"), runs=folder / "runs")
    one.identity = ConsoleIdentity(by, "pts/1")
    one._headers["DDConsole-Console"] = one.identity.console
    return one


@pytest.fixture
async def consoles(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Consoles]:
    folder = tmp_path_factory.mktemp("a")
    (folder / "runs").mkdir()
    both = Consoles(folder, await client_of(folder, "ann@laptop"), await client_of(folder, "bob@desk"))
    await both.ann.submit(submission([deployment("d01")], cells("d01", 6, max_tokens=400)))
    yield both
    for feed in both.feeds:
        await feed.close()
    stop = Command("teardown", "stop-run", "test", console="t", once=True, take=True)
    await both.ann.command(RUN, stop)
    await until(lambda: any(isinstance(one, ev.RunEnded) for one in both.events()), 60)
    await both.ann.close()
    await both.bob.close()
    await end_agents(folder / "state")  # a killed agent's keeper and a console may both have started one


async def test_one_controls_the_other_watches_and_each_is_told(consoles: Consoles) -> None:
    ann, bob = await consoles.following(consoles.ann), await consoles.following(consoles.bob)
    assert (await ann.command("pause")).taken
    assert ann.has_control()
    await until(lambda: bob.state.controller is not None and bob.state.phase is st.RunPhase.PAUSED)
    refused = await bob.command("resume")
    assert not refused.taken
    assert refused.controller is not None
    assert refused.controller.who() == "ann@laptop (pts/1)"
    await until(lambda: bob.watchers is not None and bob.watchers.controller_here)
    assert bob.watchers is not None
    assert bob.watchers.consoles == 2

    taken = await bob.take_control(refused.controller.epoch)
    assert (taken.taken, taken.epoch) == (True, 2)
    assert bob.has_control()
    await until(lambda: not ann.has_control(), 2.0, "for the loss of control to be told")
    late = await ann.command("resume")
    assert late.controller is not None
    assert late.controller.by == "bob@desk"
    assert ann.state.phase is st.RunPhase.PAUSED

    await bob.close()
    await consoles.bob.close()
    await until(lambda: ann.watchers is not None and not ann.watchers.controller_here)
    assert not (await ann.command("resume")).taken
    await ann.close()


async def test_a_stale_command_is_a_409_that_says_who_since_when(consoles: Consoles) -> None:
    path = f"v1/runs/{RUN}/commands"
    for client, epoch in ((consoles.ann, None), (consoles.bob, 1)):
        answer = await client.command(RUN, taking(client, epoch))
        assert answer.taken
    stale = Command("late", "stop-run", "ann@laptop", console=consoles.ann.identity.console, epoch=1)
    session = await consoles.ann._reach()
    async with session.post(path, json=asdict(stale)) as response:
        assert response.status == 409
        said = await response.json()
    assert said["controller"]["by"] == "bob@desk"
    assert said["controller"]["since"] > 1_700_000_000
    assert "bob@desk (pts/1) has control" in said["error"]
    with pytest.raises(NotInControl):
        await consoles.ann._post(path, asdict(replace(stale, id="later")))
    assert not any(isinstance(one, ev.RunStopping) for one in consoles.events())


async def test_a_command_that_waited_for_the_link_is_refused_once_another_has_control(
    consoles: Consoles, monkeypatch: pytest.MonkeyPatch
) -> None:
    ann = await consoles.following(consoles.ann)
    assert (await ann.command("pause")).taken
    given = consoles.ann.command
    sent: list[Command] = []

    async def lost_at_first(run: str, command: Command) -> CommandAnswer:
        sent.append(command)
        if len(sent) == 1:
            answer = await consoles.bob.command(RUN, taking(consoles.bob, 1))
            assert answer.taken
            raise LinkLost("the link was lost")
        return await given(run, command)

    monkeypatch.setattr(consoles.ann, "command", lost_at_first)
    answer = await ann.command("resume")
    assert [one.id for one in sent] == [sent[0].id] * 2
    assert not answer.taken
    assert answer.controller is not None
    assert answer.controller.by == "bob@desk"
    assert not any(isinstance(one, ev.RunResumed) for one in consoles.events())
    await ann.close()


async def test_the_same_command_many_times_at_once_and_after_a_restart_takes_effect_once(consoles: Consoles) -> None:
    assert (await consoles.ann.command(RUN, taking(consoles.ann, None))).taken
    copy = Command("copy", "duplicate", "ann@laptop", ("c003",), console=consoles.ann.identity.console, epoch=1)
    nonsense = replace(copy, id="nonsense", name="stop")
    assert not (await consoles.ann.command(RUN, nonsense)).taken
    answers = await asyncio.gather(*(one.command(RUN, copy) for one in (consoles.ann, consoles.bob) * 12))
    assert len({(one.text, one.cells) for one in answers}) == 1
    await kill_agent(consoles.ann)
    again = await patiently(consoles.ann, copy)
    assert (again.text, again.cells) == (answers[0].text, answers[0].cells)
    added = [one for one in consoles.events() if isinstance(one, ev.CellAdded) and one.cell["derived_from"] == "c003"]
    assert len(added) == 1
    assert (await consoles.ann.command(RUN, replace(copy, id="other"))).taken


class Luck:
    """Commands of two consoles, each sent one to three times, in any order, some of them late."""

    def __init__(self, consoles: Consoles) -> None:
        self._luck = random.Random(7)
        self._consoles = consoles
        self.epochs = {consoles.ann: 1, consoles.bob: 0}
        self.sent: dict[str, Command] = {}
        self.answers: dict[str, list[CommandAnswer]] = {}
        self._waiting: list[tuple[HttpAgentClient, Command]] = []

    def give(self, number: int) -> None:
        """One more command, by what its console knows."""
        client = self._luck.choice((self._consoles.ann, self._consoles.bob))
        if self._luck.random() < 0.05:
            command = replace(taking(client, max(self.epochs.values())), id=f"{number}")
        else:
            name = self._luck.choice(("start", "skip", "retry", "duplicate"))
            cell, me = f"c00{self._luck.randint(2, 6)}", client.identity
            command = Command(f"{number}", name, me.by, (cell,), console=me.console, epoch=self.epochs[client])
        self._waiting += [(client, command)] * self._luck.choice((1, 2, 3))

    async def send(self, keep: int) -> None:
        """All at a time, but for some that come later."""
        self._luck.shuffle(self._waiting)
        now, self._waiting = self._waiting[keep:], self._waiting[:keep]
        await asyncio.gather(*(self._deliver(*one) for one in now))

    async def _deliver(self, client: HttpAgentClient, command: Command) -> None:
        self.sent[command.id] = command
        answer = await patiently(client, command)
        self.answers.setdefault(command.id, []).append(answer)
        if answer.taken and command.name == "take-control":
            self.epochs[client] = max(self.epochs[client], answer.epoch)


@pytest.mark.timeout(180)
async def test_a_thousand_commands_doubled_reordered_and_delayed_from_two_consoles(consoles: Consoles) -> None:
    """Each id at most once, and none with the epoch of another; the agent is killed on the way."""
    assert (await consoles.ann.command(RUN, taking(consoles.ann, None))).taken
    paused = Command("pause", "pause", "ann@laptop", console=consoles.ann.identity.console, epoch=1)
    assert (await consoles.ann.command(RUN, paused)).taken
    luck = Luck(consoles)
    for number in range(500):
        luck.give(number)
        if number % 10 == 9:
            await luck.send(keep=8)
        if number == 250:
            await kill_agent(consoles.ann)
    await luck.send(keep=0)

    taken = commands_by_epoch(consoles.events())
    ids = [name for name, _ in taken]
    assert len(ids) == len(set(ids))
    assert len(ids) > 100
    for name, holder in taken:
        command = luck.sent.get(name)
        assert command is None or command.name == "take-control" or (command.console, command.epoch) == holder
    answers = [answer for given in luck.answers.values() for answer in given]
    assert len(answers) >= 900
    assert sum(answer.controller is not None for answer in answers) > 100
    steering = [name for name in luck.answers if luck.sent[name].name != "take-control"]
    assert {name for name in steering if any(one.taken for one in luck.answers[name])} == set(ids) & set(steering)


def commands_by_epoch(events: list[ev.Event | None]) -> list[tuple[str, tuple[str, int]]]:
    """The commands that took effect, each with the console and the epoch that had control then."""
    holder, taken = ("", 0), []
    for event in events:
        if isinstance(event, ev.ControlTaken):
            holder = (event.console, event.epoch)
        elif isinstance(event, ev.CommandTaken):
            taken.append((event.id, holder))
    assert holder[1] > 10
    return taken


def taking(client: HttpAgentClient, shown: int | None) -> Command:
    me = client.identity
    return Command(
        os.urandom(8).hex(),
        "take-control",
        me.by,
        console=me.console,
        where=me.where,
        epoch=shown or 0,
        take=shown is not None,
    )


async def kill_agent(client: HttpAgentClient) -> None:
    """As a crash would; its keeper starts it again."""
    os.kill((await client.hello()).pid, signal.SIGKILL)


async def patiently(client: HttpAgentClient, command: Command) -> CommandAnswer:
    """As often as it takes, with the same id."""
    end = asyncio.get_running_loop().time() + 40
    while True:
        try:
            return await client.command(RUN, command)
        except AgentError:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.2)
