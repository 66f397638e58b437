"""The operator's known_hosts files, read so that an error can say which line of which file speaks of a host."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh


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
    """What the files say of one host. An instance is asked once, by the connection, as asyncssh wants it asked.

    Lines that cannot be read are left out: one bad line must not take the check of the others away.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self.files = tuple(files)
        self.keys: tuple[KnownKey, ...] = ()
        """The host's keys, with their places."""
        self.revoked: tuple[KnownKey, ...] = ()

    def __call__(
        self, host: str, address: str, port: int | None
    ) -> tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]:
        """Trusted host keys, trusted certificate authorities, revoked keys."""
        lines = [one for file in self.files for one in _readable_lines(file)]
        everything = asyncssh.import_known_hosts("\n".join(one.text for one in lines))
        trusted, authorities, revoked, *_ = everything.match(host, address, port)
        self.keys = _places(lines, list(trusted), host, address, port, revoked=False)
        self.revoked = _places(lines, list(revoked), host, address, port, revoked=True)
        return list(trusted), list(authorities), list(revoked)


def default_files() -> tuple[Path, ...]:
    """Where OpenSSH looks."""
    return (Path.home() / ".ssh" / "known_hosts", Path("/etc/ssh/ssh_known_hosts"))


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
    lines: Sequence[_Line], keys: list[asyncssh.SSHKey], host: str, address: str, port: int | None, *, revoked: bool
) -> tuple[KnownKey, ...]:
    found: list[KnownKey] = []
    for line in lines if keys else ():
        trusted, _, refused, *_ = asyncssh.import_known_hosts(line.text).match(host, address, port)
        found += [KnownKey(line.file, line.number, key) for key in (refused if revoked else trusted) if key in keys]
    return tuple(found)
