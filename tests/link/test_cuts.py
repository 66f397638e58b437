"""A link that ends at every stage, in every way: it gets a name within twenty seconds, and comes back by itself."""

import asyncio
import hashlib
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from cut_proxy import Cut, CutProxy
from fake_agent import RUN
from remote_agent import Remote
from sshd import Sshd, prepared
from waiting import until

from ddconsole.core.wire import CommandAnswer
from ddconsole.link.client import AgentError, LinkPhase
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.mirror import Mirror
from ddconsole.link.silence_watch import BEAT
from ddconsole.link.ssh_agent import SshAgentRoute
from ddconsole.link.stages import Stage, Stages
from ddconsole.report.export import export_run

pytestmark = pytest.mark.ssh

NAMED_WITHIN = 20.0
_FILE_BYTES = 300_000


class End(StrEnum):
    """How the link ends."""

    RESET = "reset"
    SILENT = "silent drop"
    FROZEN = "frozen sshd"


class At(StrEnum):
    """Where it ends."""

    CONNECT = "connect"
    AUTH = "auth"
    UPLOAD = "upload"
    SPAWN = "spawn"
    HANDSHAKE = "handshake"
    IDLE = "idle"
    COMMAND = "mid-command"
    STREAM = "mid-stream"
    MIRROR = "mid-mirror"
    STOP = "stop"
    EXPORT = "export"
    QUIT = "quit"


_STAGES = {
    At.CONNECT: Stage.CONNECT,
    At.AUTH: Stage.AUTH,
    At.UPLOAD: Stage.UPLOAD,
    At.SPAWN: Stage.START,
    At.HANDSHAKE: Stage.HANDSHAKE,
}
"""Those that end while the agent is reached."""

SAMPLE = [
    (At.CONNECT, End.SILENT),
    (At.AUTH, End.FROZEN),
    (At.UPLOAD, End.RESET),
    (At.SPAWN, End.SILENT),
    (At.HANDSHAKE, End.RESET),
    (At.IDLE, End.SILENT),
    (At.COMMAND, End.RESET),
    (At.STREAM, End.FROZEN),
    (At.MIRROR, End.SILENT),
    (At.STOP, End.RESET),
    (At.EXPORT, End.RESET),
    (At.QUIT, End.SILENT),
]
"""Each stage once, each end several times."""
ALL = [(at, end) for at in At for end in End]


@dataclass
class Rig:
    """A console before a host, with a link between them that can be ended."""

    sshd: Sshd
    remote: Remote
    proxy: CutProxy
    end: End
    quick: bool
    """Notice silence after a second or two instead of fifteen: what CI has time for."""
    folder: Path
    feed: LiveRunFeed = field(init=False)
    client: HttpAgentClient = field(init=False)
    seen: list[tuple[float, str]] = field(default_factory=list)
    """What became of the link, for the message of a test that fails."""
    ended_at: float | None = None
    began: float = field(default_factory=time.monotonic)

    def connect(self, *arguments: str) -> None:
        """Make client and feed; nothing is asked yet."""
        known = self.sshd.folder / "known_hosts"
        key = (self.sshd.folder / "host_key.pub").read_text()
        known.write_text(f"{known.read_text()}[127.0.0.1]:{self.proxy.port} {key}")
        quick: dict[str, Any] = {
            "keepalive_interval": 0.7,
            "connect_time": 3.0,
            "server_time": 3.0,
        }
        settings = self.sshd.settings(**(quick if self.quick else {}))
        spec = HostSpec("box", "127.0.0.1", self.sshd.user.pw_name, self.proxy.port)
        stages = Stages()
        route = SshAgentRoute(spec, settings, self.remote.agent(arguments=arguments), on_stage=stages)
        limits: dict[str, Any] = {"silence": 4.0, "answer_time": 10.0} if self.quick else {}
        self.client = HttpAgentClient(route.open, "box", on_close=route.close, stages=stages, **limits)
        self.client.route = route
        self.feed = LiveRunFeed(self.client, RUN, beat=1.0 if self.quick else BEAT)
        self.feed.subscribe(self._note)

    def cut(self) -> None:
        """The link ends."""
        if self.ended_at is not None:
            return
        self.ended_at = time.monotonic()
        if self.end is End.FROZEN:
            self.sshd.signal_sessions(signal.SIGSTOP)
            assert self.sshd.process is not None
            self.sshd.process.send_signal(signal.SIGSTOP)
        else:
            self.proxy.cut(Cut.RESET if self.end is End.RESET else Cut.SILENT)

    def mend(self) -> None:
        """New connections work again. What was lost stays lost: frozen sessions are not thawed."""
        self.proxy.mend()
        assert self.sshd.process is not None
        self.sshd.process.send_signal(signal.SIGCONT)

    async def named(self) -> None:
        """The operator sees within the limit that the link is not what it was, and what became of it."""
        await self.until(lambda: self.ended_at is not None, 60)
        assert self.ended_at is not None
        lost = set(LinkPhase) - {LinkPhase.UP, LinkPhase.OFFLINE, LinkPhase.CONNECTING}
        left = self.ended_at + NAMED_WITHIN - time.monotonic()
        await self.until(lambda: self.feed.link.phase in lost or self._was_named(), left)

    def _was_named(self) -> bool:
        """A failed try has been told since, with its reason; the link may be back already."""
        assert self.ended_at is not None
        return any(when >= self.ended_at and not text.endswith(("…", ": ")) for when, text in self.seen)

    async def back(self) -> None:
        """The link stands again without anybody's help, and what was missed is there."""
        await self.until(lambda: self.feed.link.phase is LinkPhase.UP, 60)
        known = self.feed.state.seq
        await self.until(lambda: self.feed.state.seq > known, 20)
        # The fake agent counts journal entries: what is no tick among them is a command.
        ticks = [int(one.text.split()[1]) for one in self.feed.state.warnings]
        assert ticks == sorted(set(ticks))
        assert ticks[-1] - ticks[0] + 1 - len(ticks) <= len(self.feed.state.commands)

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """As `waiting.until`; in vain, what became of the link is told."""
        try:
            await until(condition, seconds)
        except AssertionError as problem:
            told = "\n".join(f"{when - self.began:.1f} {text}" for when, text in self.seen)
            raise AssertionError(f"{problem}; {self.end}, cut at {(self.ended_at or 0) - self.began}: {told}") from None

    def _note(self, _: frozenset[str]) -> None:
        link = self.feed.link
        text = f"{link.phase}: {link.detail}"
        if not self.seen or self.seen[-1][1] != text:
            self.seen.append((time.monotonic(), text))


@pytest.fixture
def own_sshd() -> Iterator[Sshd]:
    with prepared() as one:
        one.start()
        yield one
        assert one.process is not None
        one.process.send_signal(signal.SIGCONT)


@pytest.fixture
async def rig(request: pytest.FixtureRequest, own_sshd: Sshd, cache: Path, tmp_path: Path) -> AsyncIterator[Rig]:
    end, quick = request.param
    remote = Remote(own_sshd, cache)
    async with CutProxy(own_sshd.port).listening() as proxy:
        one = Rig(own_sshd, remote, proxy, end, quick, tmp_path)
        yield one
        await one.feed.close()
        await one.client.close()
    await remote.clear()


async def cut_while_reaching(rig: Rig, at: At) -> None:
    rig.connect("--interval", "0.2")
    wanted = _STAGES[at]

    def reached(stage: Stage) -> None:
        if stage is wanted:
            asyncio.get_running_loop().call_soon(rig.cut)

    if at is At.CONNECT:
        rig.proxy.when, rig.proxy.then = (lambda _: True), rig.cut
    rig.client.stages.subscribe(reached)
    rig.feed.start()
    await rig.named()
    rig.mend()
    await rig.back()
    assert len(rig.remote.agents()) == 1


async def cut_idle(rig: Rig) -> None:
    rig.connect("--interval", "3")
    rig.feed.start()
    await rig.until(lambda: rig.feed.state.seq > 5)
    rig.cut()
    await rig.named()
    assert rig.feed.link.heard is not None
    rig.mend()
    await rig.back()


async def cut_in_stream(rig: Rig) -> None:
    rig.connect("--interval", "0.02")
    rig.feed.start()
    await rig.until(lambda: rig.feed.state.seq > 10)
    rig.proxy.when, rig.proxy.then = (lambda _: True), rig.cut
    await rig.named()
    rig.mend()
    await rig.back()


async def cut_in_command(rig: Rig, name: str) -> None:
    """The command arrives, its answer does not."""
    rig.connect("--interval", "3")
    rig.feed.start()
    await rig.until(lambda: rig.feed.state.seq > 5)
    sent, heard = rig.proxy.counted
    rig.proxy.when = lambda proxy: proxy.counted[0] > sent + 400 and proxy.counted[1] > heard
    rig.proxy.then = rig.cut
    asked = asyncio.create_task(rig.feed.command(name, [], because="x" * 400))
    await rig.named()
    rig.mend()
    # Where the link stays away for longer than a person waits, what is not known is said instead.
    answer, *_ = await asyncio.wait_for(asyncio.gather(asked, return_exceptions=True), 40)
    if isinstance(answer, AgentError):
        assert "whether" in str(answer)
    else:
        assert isinstance(answer, CommandAnswer)
        assert answer.taken
    await rig.back()
    assert len(rig.feed.state.commands) == 1


async def cut_in_mirror(rig: Rig) -> None:
    rig.connect("--interval", "0.3", "--file-bytes", str(_FILE_BYTES))
    copy = rig.folder / "mirror"
    mirror = Mirror(rig.client, RUN, copy)
    rig.feed.start()
    await rig.until(lambda: rig.feed.link.phase is LinkPhase.UP)
    rig.proxy.rate = 150_000
    carried = rig.proxy.counted[1]
    rig.proxy.when, rig.proxy.then = (lambda proxy: proxy.counted[1] > carried + _FILE_BYTES // 2), rig.cut
    mirror.start()
    await rig.named()
    assert not (copy / "plan.yaml").exists()
    rig.proxy.rate = None
    rig.mend()
    await rig.back()
    (about,) = await rig.client.files(RUN)
    await until((copy / "plan.yaml").exists, 60, f"for the copy: {mirror.problems}")
    assert hashlib.sha256((copy / "plan.yaml").read_bytes()).hexdigest() == about["sha256"]
    await rig.until(lambda: mirror.seq >= rig.feed.state.seq - 5)
    await mirror.close()
    assert mirror.problems == []


async def cut_in_export(rig: Rig) -> None:
    """An export is made from what is here: the link has no part in it."""
    rig.connect("--interval", "0.3")
    mirror = Mirror(rig.client, RUN, rig.folder / "mirror")
    rig.feed.start()
    mirror.start()
    await rig.until(lambda: mirror.seq > 6)
    rig.cut()
    began = time.monotonic()
    report = await asyncio.to_thread(export_run, rig.folder / "mirror", rig.folder / "report", lambda _: None)
    assert report.files
    assert time.monotonic() - began < NAMED_WITHIN
    await rig.named()
    rig.mend()
    await rig.back()
    await mirror.close()


async def cut_in_quit(rig: Rig) -> None:
    """Leaving takes no longer than the operator's patience, and the agent stays."""
    rig.connect("--interval", "0.3")
    mirror = Mirror(rig.client, RUN, rig.folder / "mirror")
    rig.feed.start()
    mirror.start()
    await rig.until(lambda: mirror.seq > 6)
    agent = rig.remote.agents()
    rig.cut()
    began = time.monotonic()
    await mirror.close()
    await rig.feed.close()
    await rig.client.close()
    assert time.monotonic() - began < 8
    assert rig.remote.agents() == agent
    rig.mend()
    rig.connect()
    rig.feed.start()
    await rig.back()
    assert rig.remote.agents() == agent


async def cut_at(rig: Rig, at: At) -> None:
    match at:
        case At.CONNECT | At.AUTH | At.UPLOAD | At.SPAWN | At.HANDSHAKE:
            await cut_while_reaching(rig, at)
        case At.IDLE:
            await cut_idle(rig)
        case At.STREAM:
            await cut_in_stream(rig)
        case At.COMMAND:
            await cut_in_command(rig, "stop")
        case At.STOP:
            await cut_in_command(rig, "stop-run")
        case At.MIRROR:
            await cut_in_mirror(rig)
        case At.EXPORT:
            await cut_in_export(rig)
        case At.QUIT:
            await cut_in_quit(rig)


def named(case: tuple[At, End]) -> str:
    return f"{case[0]}-{case[1]}".replace(" ", "-")


@pytest.mark.parametrize(
    ("rig", "at"), [pytest.param((end, True), at, id=named((at, end))) for at, end in SAMPLE], indirect=["rig"]
)
async def test_a_link_cut_gets_a_name_and_comes_back(rig: Rig, at: At) -> None:
    await cut_at(rig, at)


@pytest.mark.trial
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("rig", "at"), [pytest.param((end, False), at, id=named((at, end))) for at, end in ALL], indirect=["rig"]
)
async def test_every_stage_and_every_end_with_the_limits_of_operators(rig: Rig, at: At) -> None:
    await cut_at(rig, at)
