"""One SSH connection to a host: its key always checked, its silence noticed, its commands run through one wrapper."""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from ddconsole.core.visible_text import visible
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.known_hosts import KnownHosts, default_files
from ddconsole.link.stages import Stage, StageError, StageListener, nobody_listens

_SESSIONS = 3
"""Commands and file transfers at a time; sshd allows ten sessions to a connection, the bridge needs some too."""


@dataclass(frozen=True, slots=True)
class SshSettings:
    """How to connect. None leaves a thing to the operator's ssh configuration."""

    config_files: Sequence[Path] | None = None
    """Empty: no ssh configuration at all."""
    known_hosts_files: Sequence[Path] | None = None
    key_files: Sequence[Path] | None = None
    use_key_agent: bool = True
    keepalive_interval: float = 5.0
    """Seconds; with `keepalive_count_max` silence is noticed after interval x (count + 1)."""
    keepalive_count_max: int = 2
    connect_time: float = 15.0
    """Seconds for TCP, or for the proxy."""
    login_time: float = 60.0
    """Seconds for key exchange and login: a key on a token wants to be touched."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended on the host. `status` is -1 when a signal ended it."""

    status: int
    stdout: bytes
    stderr: bytes


class HostConnection:
    """A live connection."""

    def __init__(self, connection: asyncssh.SSHClientConnection, host: str) -> None:
        self.connection = connection
        self.host = host
        self._sessions = asyncio.Semaphore(_SESSIONS)

    @property
    def alive(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        return not self.connection.is_closed()

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline: float = 30.0) -> Completed:
        """Run a command to its end; the login shell gets `shlex.join(argv)`.

        Raises:
            LinkLost: the connection ended first: the command may or may not have done its work.
            AgentError: it took longer than `deadline` seconds, or the host allows no further session.
        """
        async with self._sessions:
            try:
                async with asyncio.timeout(deadline):
                    done = await self.connection.run(shlex.join(argv), input=stdin, encoding=None, check=False)
            except TimeoutError as problem:
                text = f"{self.host}: {argv[0]} did not end within {deadline:.0f} s"
                raise AgentError(text, "look at the host's load and at its login scripts") from problem
            except (asyncssh.Error, OSError) as problem:
                raise self._broken(problem) from problem
        # A lost connection ends `run` like success, but without a status.
        if done.exit_status is None:
            raise LinkLost(f"{self.host}: the connection was lost while {argv[0]} ran", "it may or may not have run")
        return Completed(done.exit_status, _bytes(done.stdout), _bytes(done.stderr))

    @contextlib.asynccontextmanager
    async def sftp(self) -> AsyncIterator[asyncssh.SFTPClient]:
        """File transfer; counts as a session.

        Raises:
            LinkLost, AgentError: as `run`.
        """
        async with self._sessions:
            try:
                client = await self.connection.start_sftp_client()
            except (asyncssh.Error, OSError) as problem:
                raise self._broken(problem) from problem
            try:
                yield client
            finally:
                client.exit()

    def _broken(self, problem: Exception) -> AgentError:
        if isinstance(problem, asyncssh.ChannelOpenError) and self.alive:
            return AgentError(
                f"{self.host}: the host opens no further session: {visible(str(problem))}",
                "its sshd allows MaxSessions of them; close other uses of this connection",
            )
        return LinkLost(f"{self.host}: the connection was lost: {visible(str(problem))}")

    async def close(self) -> None:
        """End the connection."""
        self.connection.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self.connection.wait_closed()
        self.connection.abort()


async def connect_ssh(
    spec: HostSpec, settings: SshSettings, on_stage: StageListener = nobody_listens
) -> HostConnection:
    """Connect and log in.

    Raises:
        StageError: the stage says whether the way, the host's key or the login is at fault.
    """
    on_stage(Stage.CONNECT)
    known, watcher = None, _Watcher()
    try:
        given = _given(spec, settings)
        # `Match exec` of a configuration runs programs: not on the event loop.
        options = await asyncio.to_thread(asyncssh.SSHClientConnectionOptions, **given)
        if options.known_hosts is None and settings.known_hosts_files is None:
            raise _checks_off(spec)
        known = KnownHosts(_known_hosts_files(settings, options))
        connection = await asyncssh.connect(**given, known_hosts=known, client_factory=lambda: watcher)
    except asyncssh.HostKeyNotVerifiable as problem:
        raise _host_key_error(spec, watcher, known, problem) from problem
    except asyncssh.KeyExchangeFailed as problem:
        raise _no_common_key(spec, known, problem) from problem
    except asyncssh.PermissionDenied as problem:
        raise _login_error(spec, watcher, problem) from problem
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, asyncssh.ConfigParseError, ValueError) as problem:
        do = "load an encrypted key with ssh-add, and correct the ssh configuration"
        raise StageError(Stage.AUTH, spec.text, f"E105 {visible(str(problem))}", do, final=True) from problem
    except (asyncssh.Error, OSError, TimeoutError) as problem:
        what = visible(str(problem) or type(problem).__name__)
        do = "check name, port and network; the connection is tried again"
        raise StageError(Stage.CONNECT, spec.text, what, do, final=False) from problem
    return HostConnection(connection, spec.text)


class _Watcher(asyncssh.SSHClient):
    """Remembers what a refusal must be able to say."""

    def __init__(self) -> None:
        self.presented: asyncssh.SSHKey | None = None
        self.address = ""
        self.offered: list[str] = []

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.presented = key
        self.address = f"{host} ({addr} port {port})"
        return False

    def public_key_auth_requested(self) -> None:
        self._offer("publickey")

    def password_auth_requested(self) -> None:
        self._offer("password")

    def kbdint_auth_requested(self) -> None:
        self._offer("keyboard-interactive")

    def _offer(self, method: str) -> None:
        if method not in self.offered:
            self.offered.append(method)


def _given(spec: HostSpec, settings: SshSettings) -> dict[str, Any]:
    """What asyncssh is told; the rest comes from the ssh configuration."""
    given: dict[str, Any] = {
        "host": spec.name,
        "keepalive_interval": settings.keepalive_interval,
        "keepalive_count_max": settings.keepalive_count_max,
        "connect_timeout": settings.connect_time,
        "login_timeout": settings.login_time,
    }
    if spec.user is not None:
        given["username"] = spec.user
    if spec.port is not None:
        given["port"] = spec.port
    if settings.config_files is not None:
        given["config"] = [str(one) for one in settings.config_files] or None
    if settings.key_files is not None:
        given["client_keys"] = [str(one) for one in settings.key_files]
    if not settings.use_key_agent:
        given["agent_path"] = None
    return given


def _known_hosts_files(settings: SshSettings, options: asyncssh.SSHClientConnectionOptions) -> Sequence[Path]:
    if settings.known_hosts_files is not None:
        return settings.known_hosts_files
    named = options.known_hosts
    return [Path(str(one)).expanduser() for one in named] if isinstance(named, list) and named else default_files()


def _checks_off(spec: HostSpec) -> StageError:
    return StageError(
        Stage.HOST_KEY,
        spec.text,
        "E104 the ssh configuration turns the check of host keys off (UserKnownHostsFile none)",
        "ddconsole always checks: name a file there for this host, and add the host's key to it",
        final=True,
    )


def _host_key_error(spec: HostSpec, watcher: _Watcher, known: KnownHosts | None, problem: Exception) -> StageError:
    key = watcher.presented
    if key is None or known is None:
        text = f"E103 {visible(str(problem))}"
        places = ", ".join(f"{one.file} line {one.line}" for one in known.revoked) if known else ""
        if places:
            text += f" ({places})"
        return StageError(Stage.HOST_KEY, spec.text, text, "do not connect; ask who runs the host", final=True)
    shown = f"{key.get_algorithm()} {key.get_fingerprint()}"
    if known.keys:
        places = ", ".join(f"{one.file} line {one.line} ({one.key.get_fingerprint()})" for one in known.keys)
        text = f"E103 the host key of {watcher.address} HAS CHANGED: it is now {shown}, known is {places}"
        do = "somebody may listen in: ask who runs the host, and remove that line only when they confirm the new key"
        return StageError(Stage.HOST_KEY, spec.text, text, do, final=True)
    files = ", ".join(str(one) for one in known.files)
    text = f"E102 the host key of {watcher.address} is not known: {shown}; looked in {files}"
    do = (
        "compare it with `ssh-keygen -lf /etc/ssh/ssh_host_"
        f"{_key_name(key)}_key.pub` on the host itself, then accept it once with `ssh {spec.name}`"
    )
    return StageError(Stage.HOST_KEY, spec.text, text, do, final=True)


def _key_name(key: asyncssh.SSHKey) -> str:
    name = key.get_algorithm()
    return "ed25519" if "ed25519" in name else "ecdsa" if "ecdsa" in name else "rsa"


def _no_common_key(spec: HostSpec, known: KnownHosts | None, problem: Exception) -> StageError:
    places = ", ".join(f"{one.file} line {one.line}" for one in known.keys) if known else ""
    text = visible(str(problem)) + (f"; keys of this host stand in {places}" if places else "")
    do = "the host offers no key of a known kind: ask who runs it whether its keys were replaced"
    return StageError(Stage.HOST_KEY, spec.text, text, do, final=True)


def _login_error(spec: HostSpec, watcher: _Watcher, problem: Exception) -> StageError:
    offered = ", ".join(watcher.offered) or "nothing that ddconsole can do"
    text = f"E105 {visible(str(problem))}; the server offers {offered}; tried were the keys of files and key agent"
    do = "log in once with `ssh`, load the key with ssh-add, or name user and IdentityFile in the ssh configuration"
    return StageError(Stage.AUTH, spec.text, text, do, final=True)


def _bytes(output: object) -> bytes:
    return output if isinstance(output, bytes) else b""
