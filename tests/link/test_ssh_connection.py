"""Over a real sshd: the host's key, the login, commands, and a lost link."""

import asyncio
import contextlib
import socket
from pathlib import Path

import asyncssh
import psutil
import pytest
from sshd import Sshd, prepared
from waiting import until

from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.ssh_host import HostConnection, connect_ssh
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh


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
    before = config.read_text()
    for nowhere in ("/dev/null", "none", "/dev/null none"):
        config.write_text(before + f" UserKnownHostsFile {nowhere}\n")
        with pytest.raises(StageError) as refused:
            await connect_ssh(alias, settings)
        assert "E104 the ssh configuration turns the check of host keys off" in refused.value.text
        assert f"{config} line 5: UserKnownHostsFile {nowhere}" in refused.value.text
        assert refused.value.final


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


async def test_a_way_that_leads_nowhere_names_the_host_that_was_tried(open_sshd: Sshd, tmp_path: Path) -> None:
    config = tmp_path / "config"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config.write_text(f"Host box\n HostName 127.0.0.1\n Port {port}\nHost typo\n HostName no-such-host.invalid\n")
    settings = open_sshd.settings(config_files=(config,), known_hosts_files=None)
    with pytest.raises(StageError) as closed:
        await connect_ssh(HostSpec("box", "box"), settings)
    tried = f"127.0.0.1 port {port}, the HostName of box in the ssh configuration"
    assert closed.value.text == f"box: connect: Connection refused (tried {tried})"
    with pytest.raises(StageError, match=r"tried no-such-host\.invalid port 22, the HostName of typo") as unknown:
        await connect_ssh(HostSpec("typo", "typo"), settings)
    assert "Errno" not in unknown.value.text
    with pytest.raises(StageError, match=r"\(tried no-such-host-at-all\.invalid port 22\)"):
        await connect_ssh(HostSpec("no-such-host-at-all.invalid", "no-such-host-at-all.invalid"), settings)


async def test_a_key_with_a_passphrase_is_told_not_asked(open_sshd: Sshd, tmp_path: Path) -> None:
    await make_locked_key(tmp_path / "locked")
    with pytest.raises(StageError, match=r"E105 .*assphrase") as refused:
        await connect_ssh(open_sshd.spec, open_sshd.settings(key_files=(tmp_path / "locked",)))
    assert refused.value.stage is Stage.AUTH
    assert refused.value.text.startswith(
        f"{open_sshd.spec.text}: auth: E105 {tmp_path}/locked needs its passphrase, and there is nobody here to ask; "
    )
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


async def test_sessions_that_a_connection_has_no_place_for_begin_on_further_ones() -> None:
    with prepared(extra="MaxSessions 2\n") as tight:
        tight.start()
        host = await connect_ssh(tight.spec, tight.settings())
        taken = [await host.sessions.begin(lambda one: one.create_process("echo up; cat")) for _ in range(9)]
        assert {await one.stdout.readline() for one in taken} == {"up\n"}
        assert (await host.run(["echo", "up"])).stdout == b"up\n"
        assert logins(tight) == 5
        taken.append(await host.sessions.begin(lambda one: one.create_process("cat")))
        with pytest.raises(asyncssh.ChannelOpenError):
            await host.sessions.begin(lambda one: one.create_process("sleep 60"))
        taken.pop().close()
        assert (await host.run(["echo", "up"])).stdout == b"up\n"
        assert logins(tight) == 5
        await host.close()
        await until(lambda: not tight.sessions())


def logins(sshd: Sshd) -> int:
    return (sshd.folder / "sshd.log").read_text().count("Accepted publickey")


async def test_a_limit_of_sessions_without_a_further_login_is_waited_for_and_named() -> None:
    with prepared(extra="MaxSessions 2\n") as tight:
        tight.start()
        host = await connect_ssh(tight.spec, tight.settings())
        (tight.folder / "authorized_keys").write_bytes(b"")
        done = await asyncio.gather(*(host.run(["sh", "-c", "sleep 0.3; echo up"]) for _ in range(6)))
        assert {one.stdout for one in done} == {b"up\n"}
        taken = [await host.connection.create_process("sleep 60") for _ in range(2)]
        with pytest.raises(AgentError, match="opens no further session") as refused:
            await host.run(["true"])
        assert "MaxSessions" in refused.value.do
        assert not isinstance(refused.value, LinkLost)
        assert host.alive
        for one in taken:
            one.close()
        await host.close()


async def the_one_login(port: int) -> asyncio.StreamWriter:
    """Take the one place for a login that an sshd has, as soon as it is free."""
    while True:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        if (await reader.readline()).startswith(b"SSH-2.0-"):
            return writer
        writer.close()
        await writer.wait_closed()
        await asyncio.sleep(0.05)


async def test_a_login_that_sshd_has_no_place_for_names_the_limit_and_is_tried_again() -> None:
    with prepared(extra="MaxStartups 1:100:1\n") as tight:
        tight.start()
        writer = await the_one_login(tight.port)
        with pytest.raises(StageError) as refused:
            await connect_ssh(tight.spec, tight.settings())
        assert (refused.value.stage, refused.value.final) == (Stage.CONNECT, False)
        assert "MaxStartups" in str(refused.value)
        writer.close()
        await writer.wait_closed()
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(StageError):
                    await (await connect_ssh(tight.spec, tight.settings())).close()
                    return
                await asyncio.sleep(0.1)


async def test_an_aborted_connection_is_never_a_commands_success(open_sshd: Sshd) -> None:
    host = await connect_ssh(open_sshd.spec, open_sshd.settings())
    running = asyncio.create_task(host.run(["sleep", "20"]))
    await until(lambda: any(one.name() == "sleep" for one in _below(open_sshd)))
    host.connection.abort()
    with pytest.raises(LinkLost):
        await running
