"""Over a real sshd: the host's key, the login, the agent's arrival, the way to its socket, and every way to lose it."""

import asyncio
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncssh
import psutil
import pytest
from fake_agent import RUN
from sshd import USER, Sshd, prepared, until_gone
from waiting import until

from ddconsole.link.bundle import BundleExtras
from ddconsole.link.client import AgentError, LinkLost, LinkPhase
from ddconsole.link.deploy import HostAgent, HostDeployment
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.on_host import socket_path
from ddconsole.link.ssh_agent import SshAgentRoute
from ddconsole.link.ssh_host import HostConnection, connect_ssh
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh
FAKE = Path(__file__).parent.parent / "rigs" / "fake_agent.py"


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


class Remote:
    """A state directory in the account's home, and a route to an agent in it."""

    def __init__(self, sshd: Sshd, cache: Path) -> None:
        self.sshd = sshd
        self.cache = cache
        self.name = f"ddconsole-test-{secrets.token_hex(4)}"
        self.state = f"{sshd.user.pw_dir}/{self.name}"
        self.stages: list[Stage] = []

    def agent(self, **changes: object) -> HostAgent:
        given: dict[str, object] = {
            "state": f"~/{self.name}",
            "module": "fake_agent",
            "extras": BundleExtras({"fake_agent.py": FAKE.read_bytes()}),
            "cache": self.cache,
            **changes,
        }
        return HostAgent(**given)  # type: ignore[arg-type]  # fields of HostAgent by name

    def route(self, agent: HostAgent | None = None, **settings: object) -> SshAgentRoute:
        return SshAgentRoute(
            self.sshd.spec,
            self.sshd.settings(**settings),
            agent or self.agent(),
            on_stage=self.stages.append,
        )

    def client(self, agent: HostAgent | None = None, **settings: object) -> HttpAgentClient:
        route = self.route(agent, **settings)
        return HttpAgentClient(route.open, self.sshd.spec.text, on_close=route.close)

    def agents(self) -> list[int]:
        """Agents that run from this state directory."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            argv = process.info["cmdline"] or [""]
            if argv[0].startswith(f"{self.state}/agent/"):
                found.append(process.pid)
        return found

    async def clear(self) -> None:
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)
            assert await until_gone(pid)
        socket = Path(socket_path(self.state, self.sshd.user.pw_uid))
        process = await asyncio.create_subprocess_exec("rm", "-rf", self.state, str(socket.parent))
        await process.wait()


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


# --- the connection


async def test_a_command_runs_without_a_shell_reading_its_words(host: HostConnection) -> None:
    done = await host.run(["printf", "%s|", "a b", "$(id)", "'\"\\", "-"], stdin=b"")
    assert (done.status, done.stdout) == (0, b"a b|$(id)|'\"\\|-|")
    assert (await host.run(["sh", "-c", "cat; exit 7"], stdin=b"\x00\xff")).stdout == b"\x00\xff"
    assert (await host.run(["sh", "-c", "exit 7"])).status == 7


async def test_a_command_that_does_not_end_has_a_deadline(host: HostConnection) -> None:
    with pytest.raises(AgentError, match="sleep did not end within 0 s"):
        await host.run(["sleep", "20"], deadline=0.2)
    assert host.alive


async def test_an_unknown_host_key_is_refused_with_its_fingerprint(sshd: Sshd, tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"E102 .* is not known: ssh-ed25519 SHA256:\S+") as refused:
        await connect_ssh(sshd.spec, sshd.settings(known_hosts_files=(tmp_path / "none",)))
    assert (refused.value.stage, refused.value.final) == (Stage.HOST_KEY, True)
    assert str(tmp_path / "none") in refused.value.text
    assert "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in refused.value.do


async def test_a_changed_host_key_is_refused_with_file_and_line(sshd: Sshd) -> None:
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    known = sshd.folder / "known_hosts"
    with pytest.raises(StageError, match=r"E103 .* HAS CHANGED") as refused:
        await connect_ssh(sshd.spec, sshd.settings())
    assert f"{known} line 3 (SHA256:" in refused.value.text
    assert (refused.value.stage, refused.value.final) == (Stage.HOST_KEY, True)


async def test_a_revoked_host_key_is_refused(sshd: Sshd) -> None:
    known = sshd.folder / "known_hosts"
    key = (sshd.folder / "host_key.pub").read_text()
    known.write_text(f"{known.read_text()}@revoked * {key}")
    with pytest.raises(StageError, match=rf"Host key is revoked .*{known.name} line 4") as refused:
        await connect_ssh(sshd.spec, sshd.settings())
    assert refused.value.stage is Stage.HOST_KEY


async def test_a_configuration_cannot_turn_the_check_off(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n StrictHostKeyChecking no\n")
    alias = HostSpec("box", "box", sshd.user.pw_name)
    settings = sshd.settings(config_files=(config,), known_hosts_files=None)
    with config.open("a") as file:
        file.write(" UserKnownHostsFile /dev/null\n")
    with pytest.raises(StageError, match=r"E102 .* looked in /dev/null"):
        await connect_ssh(alias, settings)
    config.write_text(config.read_text().replace("/dev/null", "none"))
    with pytest.raises(StageError, match="E104 the ssh configuration turns the check of host keys off"):
        await connect_ssh(alias, settings)


async def make_locked_key(path: Path) -> None:
    keygen = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret", "-f", str(path)]
    assert await (await asyncio.create_subprocess_exec(*keygen)).wait() == 0


async def test_an_alias_of_the_ssh_configuration_is_enough(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    await make_locked_key(tmp_path / "locked")
    config.write_text(
        f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user.pw_name}\n"
        f" IdentityFile {tmp_path}/locked\n IdentityFile {sshd.folder}/client_key\n"
        f" UserKnownHostsFile {sshd.folder}/known_hosts\n"
    )
    settings = sshd.settings(config_files=(config,), known_hosts_files=None, key_files=None)
    host = await connect_ssh(HostSpec("box", "box"), settings)
    assert (await host.run(["id", "-un"])).stdout.decode().strip() == sshd.user.pw_name
    await host.close()


async def test_a_refused_login_says_what_the_server_offers(open_sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(asyncssh.generate_private_key("ssh-ed25519").export_private_key())
    with pytest.raises(StageError, match=r"E105 Permission denied .* the server offers publickey") as refused:
        await connect_ssh(open_sshd.spec, open_sshd.settings(key_files=(tmp_path / "other",)))
    assert (refused.value.stage, refused.value.final) == (Stage.AUTH, True)


async def test_a_key_with_a_passphrase_is_told_not_asked(open_sshd: Sshd, tmp_path: Path) -> None:
    await make_locked_key(tmp_path / "locked")
    with pytest.raises(StageError, match=r"E105 .*assphrase") as refused:
        await connect_ssh(open_sshd.spec, open_sshd.settings(key_files=(tmp_path / "locked",)))
    assert refused.value.stage is Stage.AUTH
    assert "ssh-add" in refused.value.do


async def test_a_closed_port_and_an_unknown_name_are_tried_again(sshd: Sshd) -> None:
    sshd.stop()
    with pytest.raises(StageError) as refused:
        await connect_ssh(sshd.spec, sshd.settings())
    assert (refused.value.stage, refused.value.final) == (Stage.CONNECT, False)
    with pytest.raises(StageError) as unknown:
        await connect_ssh(HostSpec("x", "no-such-host.invalid"), sshd.settings())
    assert (unknown.value.stage, unknown.value.final) == (Stage.CONNECT, False)


async def test_a_command_cut_off_by_a_lost_link_is_neither_success_nor_failure(sshd: Sshd) -> None:
    host = await connect_ssh(sshd.spec, sshd.settings())
    running = asyncio.create_task(host.run(["sleep", "20"]))
    await until(lambda: any(one.name() == "sleep" for one in _below(sshd)))
    assert sshd.kill_sessions()
    with pytest.raises(LinkLost, match=r"lost while sleep ran|connection was lost"):
        await running
    assert not host.alive
    with pytest.raises(LinkLost):
        await host.run(["true"])
    await host.close()


def _below(sshd: Sshd) -> list[psutil.Process]:
    assert sshd.process is not None
    return psutil.Process(sshd.process.pid).children(recursive=True)


async def test_more_sessions_than_sshd_allows_wait_instead_of_failing(host: HostConnection) -> None:
    done = await asyncio.gather(*(host.run(["sh", "-c", "sleep 0.05; echo up"]) for _ in range(15)))
    assert {one.stdout for one in done} == {b"up\n"}


# --- the agent


async def test_the_real_agent_runs_from_what_was_brought(remote: Remote) -> None:
    client = remote.client(remote.agent(module="ddconsole.agent", extras=BundleExtras()))
    hello = await client.hello()
    assert (hello.run, await client.runs()) == (None, [])
    assert psutil.Process(hello.pid).uids().real == remote.sshd.user.pw_uid
    await client.quit()
    await client.close()
    assert await until_gone(hello.pid)


async def test_an_agent_is_brought_started_and_found_again(remote: Remote) -> None:
    client = remote.client(remote.agent(environment={"DDCONSOLE_CLOCK": "2@1.0"}))
    hello = await client.hello()
    assert remote.stages == [
        Stage.CONNECT,
        Stage.PYTHON,
        Stage.HANDSHAKE,
        Stage.UPLOAD,
        Stage.START,
        Stage.HANDSHAKE,
    ]
    await client.close()
    assert [one for one in remote.agents() if one == hello.pid]
    assert psutil.Process(hello.pid).uids().real == remote.sshd.user.pw_uid
    assert psutil.Process(hello.pid).environ()["DDCONSOLE_CLOCK"] == "2@1.0"
    assert os.getsid(hello.pid) == hello.pid
    folder = Path(remote.state) / "agent"
    assert [len(one.name) for one in folder.iterdir()] == [16]

    remote.stages.clear()
    again = remote.client()
    assert (await again.hello()).pid == hello.pid
    assert remote.stages == [Stage.CONNECT, Stage.PYTHON, Stage.HANDSHAKE]
    assert len(await again.runs()) == 1
    await again.close()


async def test_the_journal_and_the_live_stream_come_through_channels(remote: Remote) -> None:
    route = remote.route()
    client = HttpAgentClient(route.open, "box", on_close=route.close)
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 40)
    assert not route.bridged
    assert [one.text for one in feed.state.warnings] == [f"tick {5 + n}" for n in range(len(feed.state.warnings))]
    await feed.close()
    await client.close()


async def test_where_forwarding_is_forbidden_a_bridge_carries_the_bytes(cache: Path) -> None:
    with prepared(forwarding=False) as sshd:
        sshd.start()
        remote = Remote(sshd, cache)
        route = remote.route()
        client = HttpAgentClient(route.open, "box", on_close=route.close)
        feed = LiveRunFeed(client, RUN)
        feed.start()
        await until(lambda: feed.state.seq > 20)
        assert route.bridged
        assert (await feed.command("stop", ["c001"], because="x" * 300_000)).taken
        assert next(one.text for one in feed.state.warnings) == "tick 5"
        await feed.close()
        await client.close()
        await remote.clear()


async def test_a_session_killed_in_mid_stream_is_seen_and_replayed_without_a_gap(breakable: Remote) -> None:
    client = breakable.client()
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 20)
    pid = breakable.agents()
    phases: list[LinkPhase] = []
    feed.subscribe(lambda _: phases.append(feed.link.phase))
    known = feed.state.seq
    assert breakable.sshd.kill_sessions()
    await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
    assert feed.link.heard is not None
    assert feed.link.heard <= feed.link.since
    feed.retry_now()
    await until(lambda: feed.link.phase is LinkPhase.UP and feed.state.seq > known + 20)
    assert LinkPhase.RECONNECTING in phases
    texts = [one.text for one in feed.state.warnings]
    assert texts == [f"tick {int(texts[0].split()[1]) + n}" for n in range(len(texts))]
    assert breakable.agents() == pid
    await feed.close()
    await client.close()


async def test_a_frozen_host_is_noticed_by_keepalive(breakable: Remote) -> None:
    client = breakable.client(keepalive_interval=0.3, keepalive_count_max=2)
    feed = LiveRunFeed(client, RUN)
    feed.start()
    await until(lambda: feed.state.seq > 6)
    breakable.sshd.signal_sessions(signal.SIGSTOP)
    try:
        await until(lambda: feed.link.phase is LinkPhase.RECONNECTING)
        assert "lost" in feed.link.detail
    finally:
        breakable.sshd.signal_sessions(signal.SIGCONT)
    await feed.close()
    await client.close()


async def test_a_killed_agent_is_started_again_over_the_same_connection(remote: Remote) -> None:
    route = remote.route()
    client = HttpAgentClient(route.open, "box", on_close=route.close)
    first = (await client.hello()).pid
    connection = route.host
    os.kill(first, signal.SIGKILL)
    assert await until_gone(first)
    with pytest.raises(LinkLost):
        await client.hello()
    assert (await client.hello()).pid != first
    assert route.host is connection
    await client.close()


async def test_two_consoles_bring_one_agent(remote: Remote) -> None:
    clients = [remote.client() for _ in range(2)]
    hellos = await asyncio.gather(*(client.hello() for client in clients))
    assert len({hello.pid for hello in hellos}) == 1
    for client in clients:
        await client.close()
    assert len(list((Path(remote.state) / "agent").iterdir())) == 1


async def test_a_host_without_a_fitting_python_is_told(remote: Remote) -> None:
    route = remote.route(remote.agent(python="/no/python"))
    with pytest.raises(StageError, match=r"E141 .*found none of /no/python") as refused:
        await route.open()
    await route.close()
    assert refused.value.stage is Stage.PYTHON
    assert not Path(remote.state).exists()


async def test_an_agent_that_cannot_start_is_told_with_its_log(remote: Remote) -> None:
    broken = remote.agent(extras=BundleExtras({"fake_agent.py": b"raise SystemExit('no driver')\n"}))
    route = remote.route(broken)
    with pytest.raises(StageError, match="the agent ended at once; its log ends: no driver") as refused:
        await route.open()
    assert refused.value.stage is Stage.HANDSHAKE
    await route.close()


async def test_a_state_directory_that_cannot_be_written_names_the_stage(remote: Remote) -> None:
    route = remote.route(remote.agent(state="/proc/nowhere"))
    with pytest.raises(StageError) as refused:
        await route.open()
    assert refused.value.stage is Stage.UPLOAD
    assert "/proc/nowhere" in str(refused.value)
    await route.close()


async def test_a_link_lost_during_the_upload_leaves_nothing_to_start_from(breakable: Remote) -> None:
    host = await connect_ssh(breakable.sshd.spec, breakable.sshd.settings())
    deployment = HostDeployment(host, breakable.agent(), breakable.stages.append)
    socket = await deployment.find()
    starting = asyncio.create_task(deployment.start(socket))
    agents = Path(breakable.state) / "agent"
    await until(lambda: list(agents.glob(".*.part")))
    breakable.sshd.kill_sessions()
    with pytest.raises(LinkLost):
        await starting
    assert not [one for one in agents.iterdir() if not one.name.startswith(".")]
    await host.close()
    client = breakable.client()
    assert (await client.hello()).pid in breakable.agents()
    await client.close()


async def test_noisy_login_scripts_do_no_harm(remote: Remote) -> None:
    if remote.sshd.user.pw_name != USER:
        pytest.skip("only a test account's login scripts may be changed")
    rc = Path(remote.sshd.user.pw_dir) / ".bashrc"
    before = rc.read_bytes() if rc.exists() else None
    rc.write_text("echo 'Welcome! {'; echo 'warning' >&2; printf '\\377\\n'\n")
    try:
        client = remote.client()
        assert (await client.hello()).hostname == "fake-host"
        await client.close()
    finally:
        if before is None:
            rc.unlink()
        else:
            rc.write_bytes(before)


async def test_a_foreign_socket_folder_on_the_host_is_refused(remote: Remote, host: HostConnection) -> None:
    deployment = HostDeployment(host, remote.agent())
    folder = Path(await deployment.find()).parent
    await host.run(["mkdir", "-p", "-m", "0700", str(folder.parent)])
    await host.run(["mkdir", "-m", "0777", str(folder)])
    await host.run(["chmod", "0777", str(folder)])
    route = remote.route()
    with pytest.raises(StageError, match=r"E130 .* has mode 0777") as refused:
        await route.open()
    assert refused.value.final
    assert remote.agents() == []
    await route.close()
