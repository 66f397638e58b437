"""The agent's socket and lock, kept where consoles look for them: something may delete files in /tmp."""

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

from aiohttp import web

from ddconsole.agent.socket_folder import UnsafeSocket, clear_away, identity_of, is_at, listen, lock, private_folder

_LOOK = 3.0
"""Real seconds between two looks: a console that finds nothing waits longer than that for an agent to answer."""

logger = logging.getLogger(__name__)


class Listening:
    """Listens at one path for as long as it serves.

    Args:
        path: of the socket, in a folder of its own.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock_path = Path(f"{path}.lock")
        self._held: int | None = None
        self._listener: socket.socket | None = None
        self._identity: tuple[int, int] | None = None
        self._lock_identity: tuple[int, int] | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._watching: asyncio.Task[None] | None = None

    def begin(self) -> bool:
        """Take the lock and bind; False when another agent has the lock.

        Raises:
            UnsafeSocket: the folder or the path is not as it must be.
            OSError: it cannot be bound.
        """
        private_folder(self._path.parent)
        if self._held is None or not is_at(self._lock_path, self._lock_identity):
            held = lock(self._path)
            if held is None:
                return False
            self.release()
            self._held, self._lock_identity = held, identity_of(self._lock_path)
        self._listener = listen(self._path)
        self._identity = identity_of(self._path)
        return True

    async def serve(self, application: web.Application) -> None:
        """Answer, and make socket and lock anew where they go."""
        assert self._listener is not None
        self._runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await self._runner.setup()
        self._site = web.SockSite(self._runner, self._listener)
        await self._site.start()
        self._watching = asyncio.create_task(self._watch(), name="watch the socket")

    async def end(self) -> None:
        """Answer no longer; the lock stays."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()

    def leave(self) -> None:
        """Let the lock go for good, and leave nothing in /tmp."""
        if self._held is not None and is_at(self._lock_path, self._lock_identity):
            clear_away(self._path)
        self.release()

    def release(self) -> None:
        """Let the lock go."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            if is_at(self._path, self._identity) and is_at(self._lock_path, self._lock_identity):
                continue
            with contextlib.suppress(UnsafeSocket, OSError):
                await self._renew()

    async def _renew(self) -> None:
        """Listen at the path again. Connections that are open stay."""
        before = self._site
        if not self.begin():
            logger.error("%s was deleted, and another agent took its lock", self._lock_path)
            return
        assert self._runner is not None
        assert self._listener is not None
        self._site = web.SockSite(self._runner, self._listener)
        await self._site.start()
        logger.warning("%s was deleted under the agent: made anew", self._path)
        if before is not None:
            await before.stop()
