"""Sessions on a host: where its sshd allows few to a connection, further connections carry the others."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias, TypeVar

import asyncssh

from ddconsole.link.stages import StageError

logger = logging.getLogger(__name__)

_Opened = TypeVar("_Opened")
Another: TypeAlias = Callable[[], Awaitable[asyncssh.SSHClientConnection]]
"""Makes one more connection to the same host without asking anybody; raises `StageError`."""

_FURTHER = 4
"""Connections besides the first one: MaxSessions 2 then gives what 10, sshd's default, gives with one."""


class HostSessions:
    """Begins sessions on a connection to a host, and on further ones once its sshd opens no more there.

    MaxSessions counts the sessions of one connection. A channel to a socket is no session in this sense.

    Args:
        connection: the one that stands for the link.
        another: makes a further one; None: there is none.
    """

    def __init__(self, connection: asyncssh.SSHClientConnection, another: Another | None = None) -> None:
        self._connection = connection
        self._another = another
        self._further: list[asyncssh.SSHClientConnection] = []
        self._making = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether the first connection still stands, as far as is known."""
        return not self._connection.is_closed()

    async def begin(self, how: Callable[[asyncssh.SSHClientConnection], Awaitable[_Opened]]) -> _Opened:
        """Begin a session where one is to be had.

        Args:
            how: begins it on a connection.

        Raises:
            asyncssh.ChannelOpenError: no connection takes one more, or the link is lost: `alive` tells.
            asyncssh.Error, OSError: as `how`.
        """
        try:
            return await how(self._connection)
        except asyncssh.ChannelOpenError as problem:
            if not self.alive:
                raise
            refused = problem
        tried: list[asyncssh.SSHClientConnection] = []
        while True:
            for one in self._untried(tried):
                tried.append(one)
                with contextlib.suppress(asyncssh.ChannelOpenError):
                    return await how(one)
            async with self._making:
                # Somebody else may have made one meanwhile.
                if not self._untried(tried) and not await self._make_one():
                    raise refused

    def _untried(self, tried: Sequence[asyncssh.SSHClientConnection]) -> list[asyncssh.SSHClientConnection]:
        self._further = [one for one in self._further if not one.is_closed()]
        return [one for one in self._further if one not in tried]

    async def _make_one(self) -> bool:
        """Make a further connection; whether there is one more now."""
        another = self._another
        if another is None or len(self._further) >= _FURTHER:
            return False
        try:
            made = await another()
        except StageError as problem:
            logger.info("no further connection: %s", problem)
            if problem.final:
                self._another = None
            return False
        if self._another is not another:
            # All were ended meanwhile.
            made.abort()
            return False
        self._further.append(made)
        return True

    async def close(self) -> None:
        """End all connections."""
        connections = [*self._further, self._connection]
        self._another, self._further = None, []
        for one in connections:
            one.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                for one in connections:
                    await one.wait_closed()
        for one in connections:
            one.abort()
