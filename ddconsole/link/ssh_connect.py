"""Making an SSH connection: each hop of the way checked, named in errors, and given up when it stands still."""

import asyncio
import os
import re
import shlex
import socket
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from ddconsole.core.visible_text import visible, visible_line
from ddconsole.link.host_key import (
    HostKeyUnknown,
    HostKeyWatch,
    accept,
    checks_off,
    host_key_error,
    no_common_key,
)
from ddconsole.link.host_spec import HostSpec, parse_host
from ddconsole.link.known_hosts import SSH_PORT, KnownHosts, default_files, known_name
from ddconsole.link.login import Login
from ddconsole.link.prompting import Prompts
from ddconsole.link.ssh_config import checks_turned_off, config_files, wants_hashed_names
from ddconsole.link.ssh_settings import SshSettings
from ddconsole.link.stages import Stage, StageError, StageListener

_MOST_HOPS = 8
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa", "id_ed25519_sk", "id_ecdsa_sk")
_LOOK = 0.25
"""Seconds between two looks at whether the server goes on."""

Value = TypeVar("Value")


async def connect_through(
    spec: HostSpec, settings: SshSettings, on_stage: StageListener, prompts: Prompts
) -> asyncssh.SSHClientConnection:
    """Connect to a host, through its hops.

    Raises:
        StageError: the stage says whether the way, a host's key or the login is at fault.
    """
    return await _Way(settings, on_stage, prompts, spec).connect(spec, spec.text)


class _Way:
    """One try to reach one host."""

    def __init__(self, settings: SshSettings, on_stage: StageListener, prompts: Prompts, goal: HostSpec) -> None:
        self._settings = settings
        self._on_stage = on_stage
        self._prompts = prompts
        self._goal = goal
        self._hops = 0

    async def connect(
        self, spec: HostSpec, host: str, tunnel: asyncssh.SSHClientConnection | None = None
    ) -> asyncssh.SSHClientConnection:
        """Connect to one host of the way; an unknown key is asked about once."""
        self._on_stage(Stage.CONNECT)
        options = await self._options(spec, host)
        own_tunnel = tunnel is None
        if tunnel is None:
            tunnel = await self._hops_before(options)
        try:
            try:
                return await self._connect_once(spec, host, options, tunnel)
            except HostKeyUnknown as unknown:
                await accept(unknown, self._prompts)
            self._on_stage(Stage.CONNECT)
            return await self._connect_once(spec, host, options, tunnel)
        except BaseException:
            if tunnel is not None and own_tunnel:
                tunnel.abort()
            raise

    # --- what the configuration says

    async def _options(self, spec: HostSpec, host: str) -> asyncssh.SSHClientConnectionOptions:
        """The configuration read once, for what must be known before connecting."""
        try:
            # `Match exec` of a configuration runs programs: not on the event loop.
            off = None
            if self._settings.known_hosts_files is None:
                off = await asyncio.to_thread(checks_turned_off, spec, self._settings)
            options = await asyncio.to_thread(asyncssh.SSHClientConnectionOptions, **self._given(spec))
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, asyncssh.ConfigParseError) as problem:
            raise _bad_configuration(host, problem) from problem
        except (OSError, ValueError) as problem:
            raise _bad_configuration(host, problem) from problem
        if off is not None:
            raise checks_off(host, off)
        return options

    def _given(self, spec: HostSpec) -> dict[str, Any]:
        """What asyncssh is told; the rest comes from the ssh configuration."""
        settings = self._settings
        given: dict[str, Any] = {
            "host": spec.name,
            "config": [str(one) for one in config_files(settings)] or None,
            "keepalive_interval": settings.keepalive_interval,
            "keepalive_count_max": settings.keepalive_count_max,
            # `_watched` keeps the time: asyncssh's own limit would count a person's thinking too.
            "connect_timeout": None,
            "login_timeout": settings.login_time,
            # Keys that need a passphrase come later, when the server wants them.
            "ignore_encrypted": True,
            # Nothing of the operator's goes to the host but the login.
            "agent_forwarding": False,
            "x11_forwarding": False,
            "request_pty": False,
            "command": None,
        }
        if spec.user is not None:
            given["username"] = spec.user
        if spec.port is not None:
            given["port"] = spec.port
        if settings.key_files is not None:
            given["client_keys"] = [str(one) for one in settings.key_files]
        if not settings.use_key_agent:
            given["agent_path"] = None
        return given

    async def _hops_before(self, options: asyncssh.SSHClientConnectionOptions) -> asyncssh.SSHClientConnection | None:
        """The connection to the last hop before a host, or None where there is none."""
        names = options.tunnel if isinstance(options.tunnel, str) else ""
        before: asyncssh.SSHClientConnection | None = None
        for name in (one.strip() for one in names.split(",") if one.strip() and names != "none"):
            self._hops += 1
            if self._hops > _MOST_HOPS:
                text = f"the way leads over more than {_MOST_HOPS} hops"
                do = "look for a ProxyJump that leads back to itself"
                raise StageError(Stage.CONNECT, self._goal.text, text, do, final=True)
            hop = parse_host(name.removeprefix("ssh://"))
            label = f"{self._goal.text}: hop {visible_line(name)}"
            try:
                after = await self.connect(hop, label, before)
            except BaseException:
                if before is not None:
                    before.abort()
                raise
            before = after
        return before

    # --- connecting

    async def _connect_once(
        self,
        spec: HostSpec,
        host: str,
        options: asyncssh.SSHClientConnectionOptions,
        tunnel: asyncssh.SSHClientConnection | None,
    ) -> asyncssh.SSHClientConnection:
        watch = self._watch(spec, host, options)
        locked = await asyncio.to_thread(_locked_keys, self._settings, options)
        certificates = [str(one) for one in _list(options, "CertificateFile")]
        login = Login(f"{options.username}@{spec.name}", watch, self._prompts, locked, certificates, self._on_stage)
        given = {**self._given(spec), "known_hosts": watch.known, "client_factory": lambda: login}
        watch.known(options.host, "", options.port if options.port != SSH_PORT else None)
        if not watch.known.authorities and options.config.get("HostKeyAlgorithms") is None:
            # Without a known authority a certificate proves nothing: the plain key is to be shown.
            given["server_host_key_algs"] = "-*-cert-v01@openssh.com"
        proxy = _Proxy(options) if tunnel is None and options.proxy_command else None
        if proxy is not None:
            given["proxy_command"] = proxy.command
        if tunnel is not None:
            given["tunnel"] = tunnel
        try:
            connection = await self._watched(login, lambda: asyncssh.connect(**given))
        except (asyncssh.Error, OSError, ValueError, _StandsStill) as problem:
            raise _error_of(problem, login, tunnel, proxy, _tried(spec, options)) from problem
        finally:
            if proxy is not None:
                proxy.close()
        # Closing a connection closes the hops before it.
        connection.set_tunnel(tunnel)
        return connection

    def _watch(self, spec: HostSpec, host: str, options: asyncssh.SSHClientConnectionOptions) -> HostKeyWatch:
        alias = options.host_key_alias or None
        files = self._settings.known_hosts_files
        if files is None:
            named = options.known_hosts
            given = [Path(str(one)).expanduser() for one in named] if isinstance(named, list) and named else None
            files = given or default_files()
        return HostKeyWatch(
            host=host,
            alias=spec.text if spec.user is None and spec.port is None else _ssh_words(spec),
            known=KnownHosts(files, alias),
            name=known_name(options.host, options.port, alias),
            hashed=wants_hashed_names(spec, self._settings),
        )

    async def _watched(self, login: Login, connect: Callable[[], Awaitable[Value]]) -> Value:
        """Connect, and give up when the server stands still; a person may take the time that sshd grants.

        Raises:
            _StandsStill: it did not go on.
        """
        connecting = asyncio.ensure_future(connect())
        loop = asyncio.get_running_loop()
        moved, seen = loop.time(), -1
        try:
            while True:
                done, _ = await asyncio.wait({connecting}, timeout=_LOOK)
                if done:
                    return connecting.result()
                now = _received(login.connection)
                if now != seen or login.waits_for_a_person:
                    moved, seen = loop.time(), now
                limit = self._settings.connect_time if login.connection is None else self._settings.server_time
                if loop.time() - moved > limit:
                    raise _StandsStill(login, limit)
        finally:
            if not connecting.done():
                connecting.cancel()
                await asyncio.gather(connecting, return_exceptions=True)


_AGAIN = "it is tried again; look at name, port and network, and whether the host is overloaded or suspended"


class _StandsStill(Exception):
    def __init__(self, login: Login, seconds: float) -> None:
        self.stage = Stage.AUTH if login.begun else Stage.CONNECT
        when = "during the login" if login.begun else "before the login"
        took = f"the server took the connection and then said nothing for {seconds:.0f} s {when}"
        self.text = took if login.connection is not None else f"no connection within {seconds:.0f} s"
        super().__init__(self.text)


class _Proxy:
    """A ProxyCommand whose complaints go into a file: asyncssh would take them for the server's words.

    The shell stays, because asyncssh counts a closed standard error as a lost connection.
    """

    def __init__(self, options: asyncssh.SSHClientConnectionOptions) -> None:
        self._said = tempfile.NamedTemporaryFile(prefix="ddconsole-proxy-", mode="rb")  # noqa: SIM115  # see close
        line = shlex.join(options.proxy_command or [])
        self.command = ["sh", "-c", f"{line} 2>>{shlex.quote(self._said.name)}; exit 0"]

    def last_words(self) -> str:
        """The end of what it complained about."""
        return visible_line(self._said.read().decode(errors="replace").strip()[-300:])

    def close(self) -> None:
        """The file goes; a running proxy keeps writing into nothing."""
        self._said.close()


def _received(connection: asyncssh.SSHClientConnection | None) -> int:
    """How many packets have come: asyncssh tells of no smaller step than the whole login."""
    return -1 if connection is None else int(getattr(connection, "_recv_seq", 0))


def _locked_keys(settings: SshSettings, options: asyncssh.SSHClientConnectionOptions) -> list[Path]:
    """Key files of the host that cannot be read without a passphrase."""
    if settings.key_files is not None:
        files = list(settings.key_files)
    else:
        named = [Path(str(one)).expanduser() for one in _list(options, "IdentityFile")]
        files = named or [Path.home() / ".ssh" / name for name in _DEFAULT_KEYS]
    return [one for one in files if _is_locked(one)]


def _is_locked(file: Path) -> bool:
    try:
        asyncssh.read_private_key(file)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as problem:
        return "assphrase" in str(problem)
    except OSError:
        return False
    return False


def _list(options: asyncssh.SSHClientConnectionOptions, name: str) -> list[object]:
    value = options.config.get(name, [])
    return list(value) if isinstance(value, list) else []


def _ssh_words(spec: HostSpec) -> str:
    """The host as `ssh` wants it on its command line."""
    port = f"-p {spec.port} " if spec.port is not None else ""
    return f"{port}{spec.user}@{spec.name}" if spec.user is not None else f"{port}{spec.name}"


def _bad_configuration(host: str, problem: Exception) -> StageError:
    do = "correct the ssh configuration or the key file"
    return StageError(Stage.AUTH, host, f"E105 {visible(str(problem))}", do, final=True)


def _tried(spec: HostSpec, options: asyncssh.SSHClientConnectionOptions) -> str:
    """Where the connection was meant to go, and by whose word where the operator wrote another name."""
    told = f", the HostName of {spec.name} in the ssh configuration" if options.host != spec.name else ""
    return visible_line(f"{options.host} port {options.port}{told}")


def _error_of(
    problem: Exception,
    login: Login,
    tunnel: asyncssh.SSHClientConnection | None,
    proxy: _Proxy | None,
    tried: str,
) -> StageError:
    """What is said of a failed try."""
    watch = login.watch
    match problem:
        case _StandsStill():
            return StageError(problem.stage, watch.host, f"{problem.text} (tried {tried})", _AGAIN, final=False)
        case asyncssh.HostKeyNotVerifiable():
            return host_key_error(watch, problem)
        case asyncssh.KeyExchangeFailed():
            return no_common_key(watch, problem)
        case asyncssh.PermissionDenied():
            return login.refused(problem)
        case asyncssh.DisconnectError() if "authentication failures" in str(problem):
            return login.refused(problem)
        case asyncssh.ConfigParseError() | ValueError():
            return _bad_configuration(watch.host, problem)
        case _:
            return _no_way(watch.host, tunnel, problem, proxy, tried)


def _no_way(
    host: str, tunnel: asyncssh.SSHClientConnection | None, problem: Exception, proxy: _Proxy | None, tried: str
) -> StageError:
    what = f"{visible(_reason(problem))} (tried {tried})"
    if tunnel is not None and isinstance(problem, asyncssh.ChannelOpenError):
        what = f"the hop before it does not lead there: {what}"
    if proxy is not None:
        said = proxy.last_words()
        what += f"; the ProxyCommand said: {said}" if said else "; the ProxyCommand said nothing"
    elif isinstance(problem, ConnectionResetError | asyncssh.ConnectionLost):
        what += "; sshd also hangs up when MaxStartups logins are under way"
    do = "check name, port and network"
    return StageError(Stage.CONNECT, host, what, do, final=False)


def _reason(problem: Exception) -> str:
    """What went wrong in the system's own words, without the numbers and addresses that Python puts around them."""
    if isinstance(problem, OSError):
        # Several addresses of one name were tried in vain: the exception has only a text.
        numbers = set(re.findall(r"\[Errno (\d+)\]", str(problem))) if problem.errno is None else set()
        if isinstance(problem, socket.gaierror):
            return problem.strerror or "the name is not known"
        number = problem.errno if problem.errno is not None else int(numbers.pop()) if len(numbers) == 1 else None
        if number is not None:
            return os.strerror(number)
    return str(problem) or type(problem).__name__
