"""The agent of this machine: reached through its unix socket, and started when nobody answers there."""

import asyncio
import importlib.metadata
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

import ddconsole
from ddconsole.link import on_host
from ddconsole.link.client import Way
from ddconsole.link.handshake import (
    LOOK_TIME,
    START_TIME,
    NobodyThere,
    OtherProtocol,
    ask_hello,
    ask_to_leave,
    new_session,
    wait_for_agent,
)
from ddconsole.link.host_call import HostRefusal, call_here
from ddconsole.link.stages import Stage, StageError, StageListener, nobody_listens

LOCAL = "local"
"""The host name that means this machine."""


@dataclass(frozen=True, slots=True)
class AgentCommand:
    """What is executed as the agent; `--state` and `--socket` come behind it."""

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment that the console passes on, such as a rehearsal's clock."""


def installed_agent() -> AgentCommand:
    """The agent of this installation, or of the checkout that the console runs from."""
    try:
        importlib.metadata.distribution("ddconsole")
    except importlib.metadata.PackageNotFoundError:
        root = str(Path(ddconsole.__file__).parent.parent)
        paths = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        return AgentCommand((sys.executable, "-m", "ddconsole.agent"), {"PYTHONPATH": paths})
    return AgentCommand((sys.executable, "-I", "-m", "ddconsole.agent"))


class LocalAgentRoute:
    """Reaches this machine's agent of one state directory, and starts it if it is not there: exactly one.

    Args:
        state: the state directory.
        agent: what to start.
        socket_base: where the socket's folders are made.
        start_time: seconds until an agent that was started must answer.
        on_stage: told what is being done.
    """

    def __init__(
        self,
        state: Path,
        agent: AgentCommand | None = None,
        *,
        socket_base: str = "/tmp",  # noqa: S108  # the folder under it is checked each time
        start_time: float = START_TIME,
        on_stage: StageListener = nobody_listens,
    ) -> None:
        self._state = str(state.absolute())
        self._agent = agent or installed_agent()
        self._start_time = start_time
        self._on_stage = on_stage
        self._log = f"{self._state}/agent.log"
        self._pid = 0
        self._socket_base = socket_base
        self.socket = ""
        """Where the agent listens; known after `open`."""

    stands = True
    """This machine is always reached."""
    bridged = False

    async def look(self) -> Way:
        """Whether somebody takes connections at the socket."""
        try:
            async with asyncio.timeout(LOOK_TIME):
                _, writer = await asyncio.open_unix_connection(self.socket)
        except TimeoutError:
            return Way.UNKNOWN
        except OSError:
            return Way.NOBODY
        writer.close()
        return Way.ACCEPTS

    async def open(self) -> aiohttp.ClientSession:
        """A session to the agent.

        Raises:
            StageError: it cannot be started or does not answer.
        """
        self._on_stage(Stage.CONNECT)
        self._check_socket()
        session = new_session(aiohttp.UnixConnector(self.socket))
        try:
            await self._ensure(session)
        except BaseException:
            await session.close()
            raise
        return session

    async def _ensure(self, session: aiohttp.ClientSession) -> None:
        try:
            await ask_hello(session, LOCAL)
        except NobodyThere:
            await self._start(session)
        except OtherProtocol as other:
            await ask_to_leave(session, LOCAL, other)
            await self._start(session)

    def _check_socket(self) -> None:
        try:
            self.socket = on_host.socket_path(self._state, os.geteuid(), self._socket_base)
            on_host.make_socket_folder(self.socket)
        except on_host.RefusedError as refused:
            raise StageError(Stage.CONNECT, LOCAL, refused.text, refused.do, final=True) from refused
        except OSError as problem:
            raise StageError(Stage.CONNECT, LOCAL, str(problem), "make the folder writable", final=True) from problem

    async def _start(self, session: aiohttp.ClientSession) -> None:
        self._on_stage(Stage.START)
        start = {
            "command": list(self._agent.argv),
            "state": self._state,
            "socket": self.socket,
            "log": self._log,
            "environment": dict(self._agent.environment),
        }
        try:
            self._pid = await call_here("start", start)
        except HostRefusal as refused:
            raise StageError(Stage.START, LOCAL, refused.text, refused.do, final=True) from refused
        self._on_stage(Stage.HANDSHAKE)
        await wait_for_agent(lambda: ask_hello(session, LOCAL), LOCAL, self._look, self._start_time)

    async def _look(self) -> dict[str, Any]:
        return {
            "alive": Path(f"/proc/{self._pid}").exists(),
            "lock": on_host.lock_holder(self.socket),
            "log": on_host.log_tail(self._log),
        }
