"""The way to a host: hops, proxies, servers that stand still, and what of the ssh configuration is not honoured."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sshd import Sshd, prepared

from ddconsole.link.host_spec import HostSpec
from ddconsole.link.prompting import Prompt, Prompts
from ddconsole.link.ssh_config import not_honoured
from ddconsole.link.ssh_host import connect_ssh
from ddconsole.link.ssh_settings import SshSettings
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh


@pytest.fixture
def gate() -> Iterator[Sshd]:
    with prepared() as one:
        one.start()
        yield one


def way(gate: Sshd, goal: Sshd, config: Path, *, known_of_gate: Path | None = None) -> SshSettings:
    """An ssh configuration in which `goal` is reached through `gate`, each with a known_hosts file of its own."""
    config.write_text(
        f"Host goal\n HostName 127.0.0.1\n Port {goal.port}\n User {goal.user.pw_name}\n ProxyJump gate\n"
        f" UserKnownHostsFile {goal.folder}/known_hosts\n IdentityFile {goal.folder}/client_key\n"
        f"Host gate\n HostName 127.0.0.1\n Port {gate.port}\n User {gate.user.pw_name}\n"
        f" UserKnownHostsFile {known_of_gate or gate.folder / 'known_hosts'}\n IdentityFile {gate.folder}/client_key\n"
    )
    return SshSettings(config_files=(config,), use_key_agent=False)


GOAL = HostSpec("goal", "goal")


async def test_a_host_is_reached_through_a_hop_and_closing_ends_both(gate: Sshd, sshd: Sshd, tmp_path: Path) -> None:
    host = await connect_ssh(GOAL, way(gate, sshd, tmp_path / "config"))
    assert (await host.run(["echo", "there"])).stdout == b"there\n"
    assert gate.sessions()
    await host.close()
    for _ in range(100):
        if not gate.sessions():
            break
        await asyncio.sleep(0.05)
    assert gate.sessions() == []


async def test_the_key_of_every_hop_is_checked_and_the_hop_is_named(gate: Sshd, sshd: Sshd, tmp_path: Path) -> None:
    nowhere = tmp_path / "none-yet"
    settings = way(gate, sshd, tmp_path / "config", known_of_gate=nowhere)
    with pytest.raises(StageError, match=r"goal: hop gate: host key: E102 .* is not known") as unknown:
        await connect_ssh(GOAL, settings)
    assert str(nowhere) in unknown.value.text
    asked: list[Prompt] = []

    async def yes(prompt: Prompt) -> str:
        asked.append(prompt)
        return "yes"

    await (await connect_ssh(GOAL, settings, prompts=Prompts(yes))).close()
    assert [one.host for one in asked] == ["goal: hop gate"]
    gate.stop()
    gate.new_host_key()
    gate.start()
    with pytest.raises(StageError, match=rf"goal: hop gate: host key: E103 .* HAS CHANGED.*{nowhere} line 1"):
        await connect_ssh(GOAL, settings, prompts=Prompts(yes))
    assert len(asked) == 1


async def test_a_hop_cannot_have_its_check_turned_off(gate: Sshd, sshd: Sshd, tmp_path: Path) -> None:
    settings = way(gate, sshd, tmp_path / "config", known_of_gate=Path("/dev/null"))
    with pytest.raises(StageError, match=r"goal: hop gate: host key: E104"):
        await connect_ssh(GOAL, settings)


async def test_a_refused_login_at_a_hop_and_a_goal_that_it_does_not_reach_are_told_apart(
    gate: Sshd, sshd: Sshd, tmp_path: Path
) -> None:
    settings = way(gate, sshd, tmp_path / "config")
    sshd.stop()
    with pytest.raises(StageError, match=r"goal: connect: the hop before it does not lead there") as unreached:
        await connect_ssh(GOAL, settings)
    assert not unreached.value.final
    (gate.folder / "authorized_keys").write_text("")
    with pytest.raises(StageError, match=r"goal: hop gate: auth: E105"):
        await connect_ssh(GOAL, settings)


async def test_a_jump_that_leads_to_itself_ends(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n ProxyJump b\nHost b\n ProxyJump a\n")
    with pytest.raises(StageError, match="more than 8 hops"):
        await connect_ssh(HostSpec("a", "a"), SshSettings(config_files=(config,), use_key_agent=False))


async def test_a_proxy_command_may_complain_without_breaking_the_link(sshd: Sshd, tmp_path: Path) -> None:
    program = tmp_path / "proxy.py"
    program.write_text(
        "import os, select, socket, sys\n"
        "print('proxy: hello from the proxy', file=sys.stderr, flush=True)\n"
        "if len(sys.argv) > 3: sys.exit(7)\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "while True:\n"
        "    for one in select.select([0, s], [], [])[0]:\n"
        "        data = os.read(0, 65536) if one == 0 else s.recv(65536)\n"
        "        if not data: sys.exit(0)\n"
        "        s.sendall(data) if one == 0 else os.write(1, data)\n"
    )
    config = tmp_path / "config"
    text = f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n ProxyCommand {sys.executable} {program} %h %p\n"
    config.write_text(text)
    settings = replace(sshd.settings(), config_files=(config,))
    spec = HostSpec("box", "box", sshd.user.pw_name)
    host = await connect_ssh(spec, settings)
    assert (await host.run(["echo", "there"])).stdout == b"there\n"
    await host.close()
    config.write_text(text.replace("%p", "%p broken"))
    with pytest.raises(StageError, match="the ProxyCommand said: proxy: hello from the proxy"):
        await connect_ssh(spec, settings)


@asynccontextmanager
async def a_port_that_says_nothing() -> AsyncIterator[int]:
    async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    settings = SshSettings(config_files=(), known_hosts_files=(tmp_path / "k",), use_key_agent=False, server_time=0.6)
    async with a_port_that_says_nothing() as port:
        began = time.monotonic()
        with pytest.raises(StageError, match="said nothing for 1 s before the login") as still:
            await connect_ssh(HostSpec("box", "127.0.0.1", "me", port), settings)
        assert (still.value.stage, still.value.final) == (Stage.CONNECT, False)
        assert time.monotonic() - began < 5


async def test_a_server_frozen_in_the_middle_of_the_login_is_given_up(sshd: Sshd) -> None:
    stages: list[Stage] = []

    def freeze(stage: Stage) -> None:
        stages.append(stage)
        if stage is Stage.AUTH:
            sshd.signal_sessions(signal.SIGSTOP)

    try:
        with pytest.raises(StageError, match="during the login") as still:
            await connect_ssh(sshd.spec, sshd.settings(server_time=0.6), freeze)
    finally:
        sshd.signal_sessions(signal.SIGCONT)
    assert (still.value.stage, still.value.final) == (Stage.AUTH, False)
    assert stages == [Stage.CONNECT, Stage.HOST_KEY, Stage.AUTH]


def test_options_that_are_seen_and_not_honoured_are_listed_with_their_place(tmp_path: Path) -> None:
    config, more = tmp_path / "config", tmp_path / "more"
    more.write_text("AddKeysToAgent yes\n")
    config.write_text(
        "Host box\n StrictHostKeyChecking accept-new\n ControlMaster auto\n LocalForward 8080 localhost:80\n"
        " RemoteCommand tmux attach\n ForwardAgent yes\n Port 2222\n"
        f"Host other\n PermitLocalCommand yes\nHost *\n StrictHostKeyChecking no\n ControlMaster no\nInclude {more}\n"
    )
    lines = not_honoured(HostSpec("box", "box"), SshSettings(config_files=(config,)))
    assert [line.split(" has no effect: ")[0] for line in lines] == [
        f"StrictHostKeyChecking accept-new ({config} line 2)",
        f"ControlMaster auto ({config} line 3)",
        f"LocalForward 8080 localhost:80 ({config} line 4)",
        f"RemoteCommand tmux attach ({config} line 5)",
        f"ForwardAgent yes ({config} line 6)",
        f"AddKeysToAgent yes ({more} line 1)",
    ]
    assert "host keys are always checked" in lines[0]
    assert not_honoured(HostSpec("box", "box"), SshSettings(config_files=())) == []


async def test_what_the_configuration_forwards_does_not_reach_the_host(sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host *\n RemoteCommand echo hijacked\n RequestTTY force\n ForwardAgent yes\n")
    host = await connect_ssh(sshd.spec, replace(sshd.settings(), config_files=(config,)))
    done = await host.run(["sh", "-c", "test -t 0 && echo tty; echo ${SSH_AUTH_SOCK-none}"])
    assert done.stdout == b"none\n"
    await host.close()
