"""One SSH connection to a host: its silence noticed, its commands run through one wrapper."""

import asyncio
import contextlib
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import asyncssh

from ddconsole.core.visible_text import visible
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.prompting import Prompts
from ddconsole.link.ssh_connect import connect_through
from ddconsole.link.ssh_sessions import Another, HostSessions
from ddconsole.link.ssh_settings import SshSettings
from ddconsole.link.stages import StageListener, nobody_listens

__all__ = ["Completed", "HostConnection", "SshSettings", "connect_ssh"]

_Opened = TypeVar("_Opened")

_SESSIONS = 3
"""Commands and file transfers at a time; sshd allows ten sessions to a connection, the bridge needs some too."""
_REFUSED_AGAIN = 4
"""How often a session is asked for again while the host opens no further one: other users of its limit come and go."""
_PAUSE = 0.5
"""Seconds before the first of them; each pause is twice as long."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended on the host. `status` is -1 when a signal ended it."""

    status: int
    stdout: bytes
    stderr: bytes


class HostConnection:
    """A live connection.

    Args:
        connection: to the host.
        host: as the operator calls it.
        another: makes a further connection, for sessions that this one has no place for.
    """

    def __init__(self, connection: asyncssh.SSHClientConnection, host: str, another: Another | None = None) -> None:
        self.connection = connection
        self.host = host
        self.sessions = HostSessions(connection, another)
        self._running = asyncio.Semaphore(_SESSIONS)

    @property
    def alive(self) -> bool:
        """Whether the connection still stands, as far as is known."""
        return self.sessions.alive

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", deadline: float = 30.0) -> Completed:
        """Run a command to its end; the login shell gets `shlex.join(argv)`.

        Raises:
            LinkLost: the connection ended first: the command may or may not have done its work.
            AgentError: it took longer than `deadline` seconds, or the host allows no further session.
        """
        line = shlex.join(argv)
        async with self._running:
            try:
                async with asyncio.timeout(deadline):
                    done = await self._run(line, stdin)
            except TimeoutError as problem:
                text = f"{self.host}: {argv[0]} did not end within {deadline:.0f} s"
                raise AgentError(text, "look at the host's load and at its login scripts") from problem
            except (asyncssh.Error, OSError) as problem:
                raise self._broken(problem) from problem
        # A lost connection ends `run` like success, but without a status.
        if done.exit_status is None:
            raise LinkLost(f"{self.host}: the connection was lost while {argv[0]} ran", "it may or may not have run")
        return Completed(done.exit_status, _bytes(done.stdout), _bytes(done.stderr))

    async def _run(self, line: str, stdin: bytes) -> asyncssh.SSHCompletedProcess:
        process = await self._opened(lambda one: one.create_process(line, input=stdin, encoding=None))
        try:
            return await process.wait(check=False)
        finally:
            # One that takes too long must not keep its session.
            process.close()

    @contextlib.asynccontextmanager
    async def sftp(self) -> AsyncIterator[asyncssh.SFTPClient]:
        """File transfer; counts as a session.

        Raises:
            LinkLost, AgentError: as `run`.
        """
        async with self._running:
            try:
                client = await self._opened(lambda one: one.start_sftp_client())
            except (asyncssh.Error, OSError) as problem:
                raise self._broken(problem) from problem
            try:
                yield client
            finally:
                client.exit()

    async def _opened(self, begin: Callable[[asyncssh.SSHClientConnection], Awaitable[_Opened]]) -> _Opened:
        """Begin a session; one that is refused has not begun, and is asked for again."""
        for tried in range(_REFUSED_AGAIN):
            try:
                return await self.sessions.begin(begin)
            except asyncssh.ChannelOpenError:
                if not self.alive:
                    raise
                await asyncio.sleep(_PAUSE * 2**tried)
        return await self.sessions.begin(begin)

    def _broken(self, problem: Exception) -> AgentError:
        if isinstance(problem, asyncssh.ChannelOpenError) and self.alive:
            return AgentError(
                f"{self.host}: the host opens no further session: {visible(str(problem))}",
                "its sshd allows only so many at a time: raise MaxSessions in its sshd_config to 10",
            )
        return LinkLost(f"{self.host}: the connection was lost: {visible(str(problem))}")

    async def close(self) -> None:
        """End the connection."""
        await self.sessions.close()


async def connect_ssh(
    spec: HostSpec,
    settings: SshSettings,
    on_stage: StageListener = nobody_listens,
    prompts: Prompts | None = None,
) -> HostConnection:
    """Connect and log in, through the hops that the ssh configuration names.

    Args:
        spec: the host.
        settings: how to connect.
        on_stage: told what is being done.
        prompts: who is asked for passwords and about unknown host keys; None: nobody.

    Raises:
        StageError: the stage says whether the way, a host's key or the login is at fault.
    """
    prompts = prompts or Prompts()
    connection = await connect_through(spec, settings, on_stage, prompts)

    async def another() -> asyncssh.SSHClientConnection:
        return await connect_through(spec, settings, nobody_listens, prompts.without_asking())

    return HostConnection(connection, spec.text, another)


def _bytes(output: object) -> bytes:
    return output if isinstance(output, bytes) else b""
