"""The operator's known_hosts files, read so that an error can say which line of which file speaks of a host."""

import base64
import hashlib
import hmac
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh

SSH_PORT = 22


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One key that a line of a file gives for the host."""

    file: Path
    line: int
    """From 1."""
    key: asyncssh.SSHKey


@dataclass(frozen=True, slots=True)
class _Line:
    file: Path
    number: int
    text: str


class KnownHosts:
    """What the files say of one host. An instance is asked by the connection, as asyncssh wants it asked.

    Lines that cannot be read are left out: one bad line must not take the check of the others away. As OpenSSH does by
    default, keys are looked up by name, not by the address that the name has today.

    Args:
        files: in their order.
        alias: the name under which the host stands in the files (HostKeyAlias), without a port.
    """

    def __init__(self, files: Sequence[Path], alias: str | None = None) -> None:
        self.files = tuple(files)
        self.alias = alias
        self.keys: tuple[KnownKey, ...] = ()
        """The host's keys, with their places."""
        self.authorities: tuple[KnownKey, ...] = ()
        """Certificate authorities that may speak for the host."""
        self.revoked: tuple[KnownKey, ...] = ()

    def __call__(
        self,
        host: str,
        address: str,  # noqa: ARG002  # asyncssh gives it; see above
        port: int | None,
    ) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
        """Trusted host keys, trusted certificate authorities, revoked keys."""
        name, number = (self.alias, None) if self.alias else (host, port)
        lines = [one for file in self.files for one in _readable_lines(file)]
        everything = asyncssh.import_known_hosts("\n".join(one.text for one in lines))
        found = [list(keys) for keys in everything.match(name, "", number)[:3]]
        self.keys, self.authorities, self.revoked = (
            _places(lines, keys, name, number, which) for which, keys in enumerate(found)
        )
        return found[0], found[1], found[2]


def default_files() -> tuple[Path, ...]:
    """Where OpenSSH looks."""
    return (Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts"))


def known_name(host: str, port: int, alias: str | None = None) -> str:
    """How a host is written in known_hosts."""
    if alias:
        return alias
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


def append_key(file: Path, name: str, key: asyncssh.SSHKey, *, hashed: bool) -> int:
    """Write a key into a known_hosts file, as OpenSSH does when a person accepts it; the number of its line.

    Raises:
        OSError: the file cannot be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    before = file.read_bytes() if file.exists() else b""
    # A last line without its newline would swallow ours.
    glue = b"" if not before or before.endswith(b"\n") else b"\n"
    algorithm, data, *_ = key.export_public_key("openssh").decode().split()
    line = f"{_hashed(name) if hashed else name} {algorithm} {data}\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "ab") as out:
        out.write(glue + line.encode())
        out.flush()
        os.fsync(out.fileno())
    return (before + glue).count(b"\n") + 1


def _hashed(name: str) -> str:
    salt = secrets.token_bytes(20)
    # The format's own algorithm: names are hidden from a glance, not from an attacker.
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"


def _readable_lines(file: Path) -> list[_Line]:
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return []
    found: list[_Line] = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            asyncssh.import_known_hosts(line)
        except ValueError:
            continue
        found.append(_Line(file, number, line))
    return found


def _places(
    lines: Sequence[_Line], keys: Sequence[asyncssh.SSHKey], host: str, port: int | None, which: int
) -> tuple[KnownKey, ...]:
    found: list[KnownKey] = []
    for line in lines if keys else ():
        spoken = asyncssh.import_known_hosts(line.text).match(host, "", port)[which]
        found += [
            KnownKey(line.file, line.number, key) for key in spoken if isinstance(key, asyncssh.SSHKey) and key in keys
        ]
    return tuple(found)
