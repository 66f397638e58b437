"""The seam between checks and the machine: what a check may look at. Real, recorded or synthetic."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Ran:
    """A program that was run to its end, or to its deadline."""

    exit_code: int | None
    """None: it did not end within the deadline and was killed; `out` and `err` are what it said before."""
    out: str
    err: str
    seconds: float


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What stands under a path; links are followed."""

    kind: str
    """`file`, `folder`, `character`, or `other`."""
    size: int
    major: int = 0
    """Of a device."""
    mode: int = 0
    """Permission bits."""


@dataclass(frozen=True, slots=True)
class DeviceOpening:
    """What came of opening a path for reading and writing, in a process of its own."""

    error: str | None
    """The symbol of the error number (`EPERM`); None: it opened. `TIMEOUT`: it did not return."""


@dataclass(frozen=True, slots=True)
class DiskRoom:
    """The file system that holds a path, or would hold it."""

    path: str
    """The part of the path that exists."""
    free_bytes: int
    free_inodes: int | None
    """None where the file system does not count them."""
    writable: bool


@dataclass(frozen=True, slots=True)
class PortUse:
    """Whether a TCP port can be bound on 127.0.0.1, and by whom it is taken."""

    free: bool
    pid: int | None = None
    command: str = ""
    error: str = ""
    """Why it cannot be bound."""


class Machine(Protocol):
    """What checks ask of the machine. Every answer can hang, so every question is asynchronous.

    Errors of the operating system are raised as `OSError`, unless the answer has a place for them.
    """

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a program without a shell. `environment` is added to this process's.

        Raises:
            OSError: it could not be started.
        """
        ...

    async def child(self, *arguments: str, deadline: float) -> Ran:
        """Run `ddconsole.preflight.driver_child` with this process's interpreter."""
        ...

    async def open_device(self, path: str, deadline: float) -> DeviceOpening:
        """Open for reading and writing, close at once."""
        ...

    async def status(self, path: str) -> FileStatus | None:
        """What stands there; None where nothing does (also for a link to nowhere)."""
        ...

    async def read_text(self, path: str) -> str:
        """A small file, whole."""
        ...

    async def read_bytes(self, path: str, offset: int, length: int) -> bytes:
        """Part of a file; shorter at its end."""
        ...

    async def list_folder(self, path: str) -> tuple[str, ...]:
        """Names in a folder, sorted."""
        ...

    async def disk_room(self, path: str) -> DiskRoom:
        """Room for a path that need not exist yet."""
        ...

    async def port_use(self, port: int) -> PortUse:
        """Whether a server could listen there."""
        ...
