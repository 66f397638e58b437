"""How an operator names a host: `alias`, `user@host`, `user@host:port`, `user@[::1]:port`."""

import re
from dataclasses import dataclass

from ddconsole.core.visible_text import visible
from ddconsole.link.stages import Stage, StageError

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_IPV6 = re.compile(r"\[[0-9A-Fa-f:.]+\]")
_ALLOWED = re.compile(r"[A-Za-z0-9_.:@\[\]-]")
_LONGEST = 255


@dataclass(frozen=True, slots=True)
class HostSpec:
    """A host as named. What is None is left to the ssh configuration."""

    text: str
    name: str
    """An alias of the ssh configuration, a host name or an address."""
    user: str | None = None
    port: int | None = None


def parse_host(text: str) -> HostSpec:
    """Take a host's name apart.

    Raises:
        StageError: E101, it holds what has no place in one, such as options, blanks or shell characters.
    """
    if len(text) > _LONGEST:
        raise _refuse(text[:40] + "…", f"{len(text)} characters are too many")
    for place, character in enumerate(text, start=1):
        if not _ALLOWED.match(character):
            raise _refuse(text, f'illegal character "{visible(character)}" at {place}')
    user, at, rest = text.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _refuse(text, f'"{user}" is no user name')
    address, colon, port = rest, "", ""
    if not _IPV6.fullmatch(rest):
        address, colon, port = rest.rpartition(":") if ":" in rest else (rest, "", "")
    if colon and not (port.isdigit() and 0 < int(port) < 65536):
        raise _refuse(text, f'"{port}" is no port')
    if not (_NAME.fullmatch(address) or _IPV6.fullmatch(address)):
        raise _refuse(text, f'"{address}" is no host name')
    return HostSpec(text, address.strip("[]"), user if at else None, int(port) if colon else None)


def _refuse(text: str, what: str) -> StageError:
    shown = visible(text).replace("\n", "⏎")
    do = "write alias, user@host or user@host:port"
    return StageError(Stage.CONNECT, shown, f"E101 host: {what}", do, final=True)
