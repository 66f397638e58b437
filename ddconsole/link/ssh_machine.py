"""A machine over SSH for read-only checks: programs run and files are read there, nothing is brought along."""

import time
from collections.abc import Mapping, Sequence

from ddconsole.link.client import AgentError
from ddconsole.link.ssh_host import HostConnection
from ddconsole.preflight.machine import DeviceOpening, DiskRoom, FileStatus, PortUse, Ran

_NOT_HERE = "is not asked of a host that has none of our programs"
_READING = 10.0


class SshMachine:
    """`Machine` for what needs a program or a file there; everything else is refused as an `OSError`."""

    def __init__(self, connection: HostConnection) -> None:
        self._connection = connection

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a program through the login shell.

        Raises:
            OSError: the link was lost, or it did not end in time.
        """
        words = [*(["env", *(f"{name}={value}" for name, value in environment.items())] if environment else []), *argv]
        began = time.monotonic()
        try:
            done = await self._connection.run(words, deadline=deadline)
        except AgentError as problem:
            raise OSError(problem.text) from problem
        out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
        return Ran(done.status, out, err, time.monotonic() - began)

    async def read_text(self, path: str) -> str:
        """A small file.

        Raises:
            FileNotFoundError: it cannot be read; what `cat` says is the reason.
        """
        ran = await self.run(("cat", path), _READING)
        if ran.exit_code != 0:
            raise FileNotFoundError(2, ran.err.strip()[-120:] or "cannot be read", path)
        return ran.out

    async def child(self, *arguments: str, deadline: float) -> Ran:  # noqa: ARG002  # as `Machine` has it
        """Refused."""
        raise OSError(f"{arguments[0]} {_NOT_HERE}")

    async def open_device(self, path: str, deadline: float) -> DeviceOpening:  # noqa: ARG002  # as `Machine` has it
        """Refused: opening a device initialises a GPU."""
        raise OSError(f"opening {path} {_NOT_HERE}")

    async def status(self, path: str) -> FileStatus | None:
        """Refused."""
        raise OSError(f"the status of {path} {_NOT_HERE}")

    async def read_bytes(self, path: str, offset: int, length: int) -> bytes:  # noqa: ARG002  # as `Machine` has it
        """Refused."""
        raise OSError(f"reading {path} {_NOT_HERE}")

    async def list_folder(self, path: str) -> tuple[str, ...]:
        """Refused."""
        raise OSError(f"listing {path} {_NOT_HERE}")

    async def disk_room(self, path: str) -> DiskRoom:
        """Refused."""
        raise OSError(f"the room of {path} {_NOT_HERE}")

    async def port_use(self, port: int) -> PortUse:
        """Refused."""
        raise OSError(f"port {port} {_NOT_HERE}")
