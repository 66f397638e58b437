"""Logging in with what only a person knows: asked through one door, once more at most, and kept nowhere but here."""

import asyncio
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import asyncssh
import pytest
from sshd import Sshd, prepared

from ddconsole.link.host_spec import HostSpec
from ddconsole.link.known_hosts import KnownHosts, known_name
from ddconsole.link.prompting import Prompt, Prompts
from ddconsole.link.ssh_host import connect_ssh
from ddconsole.link.ssh_settings import SshSettings
from ddconsole.link.stages import Stage, StageError

pytestmark = pytest.mark.ssh

PASSWORD = "correct-horse-7"


class Person:
    """Answers from a list, and remembers what was asked."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.asked: list[Prompt] = []

    async def __call__(self, prompt: Prompt) -> str | None:
        self.asked.append(prompt)
        return self.answers.pop(0) if self.answers else None


def asked_by(person: Person) -> Prompts:
    return Prompts(person, limit=10)


@pytest.fixture(scope="module")
def with_password() -> Iterator[Sshd]:
    """As root, an account with a password behind PAM, as most hosts have it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give an account a password")
    lines = "UsePAM yes\nPasswordAuthentication yes\nKbdInteractiveAuthentication yes\nPubkeyAuthentication no\n"
    with prepared(extra=lines) as one:
        one.set_password(PASSWORD)
        one.start()
        try:
            yield one
        finally:
            one.set_password("*")


async def locked_key(path: Path, sshd: Sshd, *, public: bool) -> SshSettings:
    """A key with a passphrase, which the host takes."""
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "open sesame", "-f", str(path)]
    assert await (await asyncio.create_subprocess_exec(*argv)).wait() == 0
    keys = sshd.folder / "authorized_keys"
    keys.write_bytes(keys.read_bytes() + path.with_suffix(".pub").read_bytes())
    if not public:
        path.with_suffix(".pub").unlink()
    return sshd.settings(key_files=(path,))


@pytest.mark.parametrize("public", [True, False])
async def test_a_locked_key_is_opened_with_its_passphrase(sshd: Sshd, tmp_path: Path, *, public: bool) -> None:
    settings = await locked_key(tmp_path / "locked", sshd, public=public)
    person = Person("wrong", "open sesame")
    prompts = asked_by(person)
    host = await connect_ssh(sshd.spec, settings, prompts=prompts)
    assert (await host.run(["id", "-un"])).stdout.decode().strip() == sshd.user.pw_name
    await host.close()
    assert [one.secret for one in person.asked] == [True, True]
    assert f"passphrase of {tmp_path}/locked" in person.asked[0].label
    assert person.asked[1].lines == ("That was not the passphrase.",)
    # The next link needs nobody.
    again = await connect_ssh(sshd.spec, settings, prompts=prompts)
    await again.close()
    assert len(person.asked) == 2


async def test_a_key_that_the_host_does_not_want_is_not_asked_about(sshd: Sshd, tmp_path: Path) -> None:
    settings = await locked_key(tmp_path / "locked", sshd, public=True)
    (sshd.folder / "authorized_keys").write_text("")
    person = Person()
    with pytest.raises(StageError, match=r"E105 .* the server offers publickey"):
        await connect_ssh(sshd.spec, settings, prompts=asked_by(person))
    assert person.asked == []


@pytest.mark.parametrize("public", [True, False])
async def test_a_passphrase_that_is_wrong_twice_is_not_asked_for_again(
    sshd: Sshd, tmp_path: Path, *, public: bool
) -> None:
    settings = await locked_key(tmp_path / "locked", sshd, public=public)
    person = Person("wrong", "wrong", "open sesame")
    with pytest.raises(StageError, match="was wrong twice") as refused:
        await connect_ssh(sshd.spec, settings, prompts=asked_by(person))
    assert (refused.value.stage, refused.value.final, len(person.asked)) == (Stage.AUTH, True, 2)


async def test_a_password_is_asked_for_once_more_when_it_was_rejected(with_password: Sshd) -> None:
    person = Person("wrong", PASSWORD)
    prompts = asked_by(person)
    host = await connect_ssh(with_password.spec, with_password.settings(), prompts=prompts)
    await host.close()
    assert len(person.asked) == 2
    assert all(one.secret for one in person.asked)
    assert "It was rejected." in person.asked[1].lines
    again = await connect_ssh(with_password.spec, with_password.settings(), prompts=prompts)
    await again.close()
    assert len(person.asked) == 2


async def test_a_password_rejected_twice_ends_the_login_and_stays_asked_no_more(with_password: Sshd) -> None:
    person = Person("wrong", "wronger", PASSWORD)
    with pytest.raises(StageError, match=r"E105 .* the server offers .*keyboard-interactive") as refused:
        await connect_ssh(with_password.spec, with_password.settings(), prompts=asked_by(person))
    assert (refused.value.stage, refused.value.final, len(person.asked)) == (Stage.AUTH, True, 2)


async def test_a_kept_password_that_changed_is_asked_for_again(with_password: Sshd) -> None:
    person = Person(PASSWORD, "other-horse-8")
    prompts = asked_by(person)
    await (await connect_ssh(with_password.spec, with_password.settings(), prompts=prompts)).close()
    with_password.set_password("other-horse-8")
    try:
        await (await connect_ssh(with_password.spec, with_password.settings(), prompts=prompts)).close()
    finally:
        with_password.set_password(PASSWORD)
    assert len(person.asked) == 2


async def test_nobody_who_answers_is_told_after_the_limit(with_password: Sshd) -> None:
    async def silent(_: Prompt) -> str | None:
        await asyncio.sleep(60)
        return None

    with pytest.raises(StageError, match="nobody answered within 1 s") as refused:
        await connect_ssh(with_password.spec, with_password.settings(), prompts=Prompts(silent, limit=1.0))
    assert refused.value.final


async def test_a_locked_key_is_named_also_where_the_host_would_take_a_password(tmp_path: Path) -> None:
    with prepared(extra="PasswordAuthentication yes\nPubkeyAuthentication yes\n") as one:
        one.start()
        settings = await locked_key(tmp_path / "locked", one, public=True)
        with pytest.raises(StageError, match=rf"E105 {tmp_path}/locked needs its passphrase, and there is nobody here"):
            await connect_ssh(one.spec, settings)


async def test_a_login_that_needs_a_person_says_so_where_there_is_none(with_password: Sshd) -> None:
    with pytest.raises(StageError, match=r"E105 .* there is nobody here to ask"):
        await connect_ssh(with_password.spec, with_password.settings())


async def test_no_secret_is_logged(with_password: Sshd, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    asyncssh.set_debug_level(2)
    try:
        prompts = asked_by(Person(PASSWORD))
        await (await connect_ssh(with_password.spec, with_password.settings(), prompts=prompts)).close()
    finally:
        asyncssh.set_debug_level(1)
    assert caplog.records
    assert PASSWORD not in caplog.text
    assert PASSWORD not in repr(prompts)


class _TwoFactors(asyncssh.SSHServer):
    """A server that wants a password and a code, in one round, as PAM modules ask."""

    def begin_auth(self, username: str) -> bool:  # noqa: ARG002
        return True

    def kbdint_auth_supported(self) -> bool:
        return True

    def get_kbdint_challenge(
        self,
        username: str,  # noqa: ARG002
        lang: str,  # noqa: ARG002
        submethods: str,  # noqa: ARG002
    ) -> tuple[str, str, str, Sequence[tuple[str, bool]]]:
        return "", "Two factors, please", "", [("Password: ", False), ("Verification code: ", False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:  # noqa: ARG002
        return list(responses) == [PASSWORD, "123456"]


async def test_a_second_factor_is_asked_for_and_not_kept(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    server = await asyncssh.listen("127.0.0.1", 0, server_factory=_TwoFactors, server_host_keys=[key])
    port = server.sockets[0].getsockname()[1]
    known = tmp_path / "known"
    known.write_text(f"[127.0.0.1]:{port} {key.export_public_key().decode()}")
    settings = SshSettings(config_files=(), known_hosts_files=(known,), key_files=(), use_key_agent=False)
    person = Person(PASSWORD, "000000", PASSWORD, "123456", "123456")
    prompts = asked_by(person)
    spec = HostSpec("box", "127.0.0.1", "me", port)
    async with server:
        await (await connect_ssh(spec, settings, prompts=prompts)).close()
        assert [one.label for one in person.asked] == ["password of me@127.0.0.1", "Verification code"] * 2
        assert "Two factors, please" in person.asked[0].lines
        await (await connect_ssh(spec, settings, prompts=prompts)).close()
    # The password was kept, the code was asked for.
    assert [one.label for one in person.asked][4:] == ["Verification code"]


# --- host keys


async def test_an_unknown_key_is_accepted_by_the_word_and_written_as_openssh_would(sshd: Sshd, tmp_path: Path) -> None:
    known = tmp_path / "ssh" / "known"
    settings = sshd.settings(known_hosts_files=(known,))
    person = Person("yes")
    await (await connect_ssh(sshd.spec, settings, prompts=asked_by(person))).close()
    fingerprint = asyncssh.read_public_key(sshd.folder / "host_key.pub").get_fingerprint()
    (asked,) = person.asked
    assert not asked.secret
    assert any(fingerprint in line for line in asked.lines)
    assert any("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in line for line in asked.lines)
    assert known.stat().st_mode & 0o777 == 0o600
    argv = ["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", str(known)]
    assert await (await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)).wait() == 0
    # Known from now on, and its change is no question.
    await (await connect_ssh(sshd.spec, settings)).close()
    sshd.stop()
    sshd.new_host_key()
    sshd.start()
    with pytest.raises(StageError, match=rf"E103 .* HAS CHANGED.*{known} line 1") as changed:
        await connect_ssh(sshd.spec, settings, prompts=asked_by(person))
    assert (changed.value.final, len(person.asked)) == (True, 1)


@pytest.mark.parametrize("answer", ["y", "", "no", None])
async def test_an_unknown_key_that_is_not_accepted_is_refused_and_not_written(
    sshd: Sshd, tmp_path: Path, answer: str | None
) -> None:
    known = tmp_path / "known"
    with pytest.raises(StageError, match="E102"):
        await connect_ssh(sshd.spec, sshd.settings(known_hosts_files=(known,)), prompts=asked_by(Person(answer)))
    assert not known.exists()


async def test_names_are_hashed_where_the_configuration_wants_it(sshd: Sshd, tmp_path: Path) -> None:
    config, known = tmp_path / "config", tmp_path / "known"
    known.write_text("other ssh-ed25519 AAAA without a newline")
    config.write_text(
        f"Host box\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user.pw_name}\n"
        f" UserKnownHostsFile {known}\n HashKnownHosts yes\n"
    )
    settings = sshd.settings(config_files=(config,), known_hosts_files=None)
    spec = HostSpec("box", "box")
    await (await connect_ssh(spec, settings, prompts=asked_by(Person("yes")))).close()
    lines = known.read_text().splitlines()
    assert lines[1].startswith("|1|")
    await (await connect_ssh(spec, settings)).close()
    argv = ["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", str(known)]
    assert await (await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)).wait() == 0


def test_an_alias_stands_for_the_host_without_a_port(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    (tmp_path / "known").write_text(f"lab-box {key.export_public_key().decode()}")
    known = KnownHosts([tmp_path / "known"], alias="lab-box")
    (found,) = known("10.1.2.3", "10.1.2.3", 2222)[0]
    assert found.export_public_key() == key.export_public_key()
    assert known_name("10.1.2.3", 2222, "lab-box") == "lab-box"
    assert (known_name("Box", 22), known_name("Box", 2222)) == ("box", "[box]:2222")


async def _certified(sshd: Sshd, authority: asyncssh.SSHKey, principal: str) -> None:
    host_key = asyncssh.read_public_key(sshd.folder / "host_key.pub")
    certificate = authority.generate_host_certificate(host_key, "a host", principals=[principal])
    (sshd.folder / "host_key-cert.pub").write_bytes(certificate.export_certificate())
    sshd.stop()
    sshd.extra = f"HostCertificate {sshd.folder}/host_key-cert.pub"
    sshd.start()


async def test_a_certified_host_is_known_by_its_authority(sshd: Sshd) -> None:
    authority, other = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    await _certified(sshd, authority, "127.0.0.1")
    known = sshd.folder / "known_hosts"
    plain = known.read_text()
    known.write_text(f"@cert-authority [127.0.0.1]:* {authority.export_public_key().decode()}")
    await (await connect_ssh(sshd.spec, sshd.settings())).close()
    # Where no authority is known, the plain key under the certificate counts.
    known.write_text(plain)
    await (await connect_ssh(sshd.spec, sshd.settings())).close()
    known.write_text(f"@cert-authority [127.0.0.1]:* {other.export_public_key().decode()}")
    with pytest.raises(StageError, match="E103 ") as refused:
        await connect_ssh(sshd.spec, sshd.settings(), prompts=asked_by(Person("yes")))
    assert f"is signed by ssh-ed25519 {authority.get_fingerprint()}" in refused.value.text
    assert "known_hosts line 1" in refused.value.text.replace(str(known), "known_hosts")
    known.write_text(
        f"@cert-authority * {authority.export_public_key().decode()}@revoked * {authority.export_public_key().decode()}"
    )
    with pytest.raises(StageError, match=r"E103 .*revoked"):
        await connect_ssh(sshd.spec, sshd.settings(), prompts=asked_by(Person("yes")))


async def test_a_certificate_for_another_host_is_refused(sshd: Sshd) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    await _certified(sshd, authority, "somewhere.else")
    (sshd.folder / "known_hosts").write_text(f"@cert-authority * {authority.export_public_key().decode()}")
    with pytest.raises(StageError, match=r"E103 .*rincipal"):
        await connect_ssh(sshd.spec, sshd.settings())
