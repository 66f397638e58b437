"""Who this console is: the operator, the terminal, and an id that no other process has."""

import getpass
import os
import secrets
import socket
import sys
from contextlib import suppress
from dataclasses import dataclass, field


def operator() -> str:
    """Who gives commands: user@machine."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def terminal() -> str:
    """The terminal as people name it, such as `pts/3`; empty where there is none."""
    with suppress(OSError, ValueError, AttributeError):
        return os.ttyname(sys.__stdin__.fileno()).removeprefix("/dev/")  # type: ignore[union-attr]  # None has no fileno: suppressed
    return ""


@dataclass(frozen=True, slots=True)
class ConsoleIdentity:
    """One console process."""

    by: str = field(default_factory=operator)
    where: str = field(default_factory=terminal)
    """Its terminal, or `command line`."""
    console: str = field(default_factory=lambda: secrets.token_hex(8))
    """Random: two consoles of one operator are two."""
