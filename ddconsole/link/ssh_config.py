"""What the operator's ssh configuration says of a host: key files, known_hosts files, and what is not honoured."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import asyncssh
from asyncssh.config import SSHClientConfig

from ddconsole.core.visible_text import visible_line
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.ssh_settings import SshSettings

_OWN_CHECK = "host keys are always checked, and an unknown one is asked about"
_NO_FORWARDS = "ddconsole opens what it needs itself and nothing else"
_ONE_CONNECTION = "ddconsole keeps one connection of its own"
_NOT_HONOURED = {
    "StrictHostKeyChecking": _OWN_CHECK,
    "CheckHostIP": "keys are looked up by name only, as OpenSSH does by default",
    "UpdateHostKeys": "known_hosts only ever gets a key that you accepted",
    "VerifyHostKeyDNS": "keys in DNS are not looked up",
    "KnownHostsCommand": "keys are looked up in files only",
    "RevokedHostKeys": "write revoked keys as @revoked lines into known_hosts",
    "ControlMaster": _ONE_CONNECTION,
    "ControlPath": _ONE_CONNECTION,
    "ControlPersist": _ONE_CONNECTION,
    "LocalForward": _NO_FORWARDS,
    "RemoteForward": _NO_FORWARDS,
    "DynamicForward": _NO_FORWARDS,
    "Tunnel": _NO_FORWARDS,
    "ForwardAgent": _NO_FORWARDS,
    "ForwardX11": _NO_FORWARDS,
    "ForwardX11Trusted": _NO_FORWARDS,
    "AddKeysToAgent": "keys are not put into the key agent",
    "RemoteCommand": "ddconsole runs commands of its own",
    "RequestTTY": "ddconsole asks for no terminal on the host",
    "LocalCommand": "no command is run here after the login",
    "PermitLocalCommand": "no command is run here after the login",
    "BatchMode": "a login that needs a person asks",
    "NumberOfPasswordPrompts": "a rejected password is asked for once more, never oftener",
    "ServerAliveInterval": "silence is noticed after 15 seconds in any case",
    "ServerAliveCountMax": "silence is noticed after 15 seconds in any case",
    "ConnectTimeout": "a try to connect takes 15 seconds at most",
    "SecurityKeyProvider": "only security keys in the key agent or built in are used",
    "BindInterface": "use BindAddress",
    "ProxyUseFdpass": "the proxy's stdin and stdout are used",
}
_HARMLESS = {
    "StrictHostKeyChecking": ("yes", "ask"),
    "CheckHostIP": ("no",),
    "ControlMaster": ("no",),
    "ControlPath": ("none",),
    "ControlPersist": ("no",),
    "ForwardAgent": ("no",),
    "ForwardX11": ("no",),
    "ForwardX11Trusted": ("no",),
    "AddKeysToAgent": ("no",),
    "RequestTTY": ("no",),
    "BatchMode": ("no",),
    "PermitLocalCommand": ("no",),
    "UpdateHostKeys": ("no",),
    "VerifyHostKeyDNS": ("no",),
    "Tunnel": ("no",),
}
_SYSTEM_FILE = Path("/etc/ssh/ssh_config")


@dataclass(frozen=True, slots=True)
class SeenOption:
    """An option of the ssh configuration that applies to the host."""

    name: str
    value: str
    place: str
    """`FILE line N`."""


class _Recording(SSHClientConfig):
    """asyncssh's own reading of the files (Host, Match, Include), which also notes options that it passes over."""

    seen: ClassVar[list[SeenOption]] = []

    def _note(self, option: str, args: list[str]) -> None:
        value = visible_line(" ".join(args))
        type(self).seen.append(SeenOption(option, value, f"{self._path} line {self._line_no}"))

    def _only_note(self, option: str, args: list[str]) -> None:
        self._note(option, args)
        args.clear()


def _noting(handler: Callable[..., None]) -> Callable[..., None]:
    def note_and_handle(self: _Recording, option: str, args: list[str]) -> None:
        self._note(option, args)
        handler(self, option, args)

    return note_and_handle


def _handlers() -> dict[str, tuple[str, Callable[..., None]]]:
    noted = [*_NOT_HONOURED, "HashKnownHosts", "UserKnownHostsFile"]
    known: dict[str, tuple[str, Callable[..., None]]] = dict(SSHClientConfig._handlers)  # noqa: SLF001  # see the class
    for name in noted:
        handler = known.get(name.lower())
        known[name.lower()] = (name, _noting(handler[1]) if handler else _Recording._only_note)  # noqa: SLF001
    return known


def config_files(settings: SshSettings) -> list[Path]:
    """The files that are read."""
    if settings.config_files is not None:
        return list(settings.config_files)
    own = Path.home() / ".ssh" / "config"
    return [own] if own.is_file() else []


def seen_options(spec: HostSpec, files: Sequence[Path]) -> list[SeenOption]:
    """What the files say of a host, of the options that this module knows; the first of a name is the one that counts.

    Raises:
        asyncssh.ConfigParseError, ValueError, OSError: a file cannot be read.
    """

    class Recording(_Recording):
        _handlers = _handlers()
        seen: ClassVar[list[SeenOption]] = []

    user: Any = spec.user if spec.user is not None else ()
    port: Any = spec.port if spec.port is not None else ()
    Recording.load(None, [str(one) for one in files], False, False, False, "", user, spec.name, port)
    return Recording.seen


def not_honoured(spec: HostSpec, settings: SshSettings) -> list[str]:
    """Options of the operator's ssh configuration for a host that have no effect here, each with the reason.

    Raises:
        asyncssh.ConfigParseError, ValueError, OSError: a file cannot be read.
    """
    lines: dict[str, str] = {}
    for one in seen_options(spec, config_files(settings)):
        reason = _NOT_HONOURED.get(one.name)
        if reason and one.value.lower() not in _HARMLESS.get(one.name, ()):
            lines.setdefault(one.name, f"{one.name} {one.value} ({one.place}) has no effect: {reason}")
    return list(lines.values())


def checks_turned_off(spec: HostSpec, settings: SshSettings) -> SeenOption | None:
    """The line that would turn the check of host keys off, by leading known_hosts nowhere."""
    for one in seen_options(spec, config_files(settings)):
        if one.name == "UserKnownHostsFile":
            return one if set(one.value.split()) <= {"none", "/dev/null"} else None
    return None


def wants_hashed_names(spec: HostSpec, settings: SshSettings) -> bool:
    """Whether names are hashed in known_hosts (HashKnownHosts); as in OpenSSH, the machine's file counts too."""
    files = config_files(settings)
    if settings.config_files is None and _SYSTEM_FILE.is_file():
        files = [*files, _SYSTEM_FILE]
    try:
        seen = seen_options(spec, files)
    except (asyncssh.ConfigParseError, ValueError, OSError):
        return False
    return next((one.value.lower() in ("yes", "true") for one in seen if one.name == "HashKnownHosts"), False)
