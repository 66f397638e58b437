"""The agent of a host over SSH: connected to, found or started, and reached through its socket."""

import asyncio
import contextlib

import aiohttp
import asyncssh

from ddconsole.link.client import AgentError, LinkLost, Way
from ddconsole.link.deploy import HostAgent, HostDeployment
from ddconsole.link.handshake import (
    LOOK_TIME,
    START_TIME,
    NobodyThere,
    NotAnswering,
    OtherProtocol,
    ask_hello,
    ask_to_leave,
    new_session,
    wait_for_agent,
)
from ddconsole.link.host_spec import HostSpec
from ddconsole.link.prompting import Prompts
from ddconsole.link.ssh_connector import SshBridgeConnector, SshUnixConnector
from ddconsole.link.ssh_host import HostConnection, connect_ssh
from ddconsole.link.ssh_settings import SshSettings
from ddconsole.link.stages import Stage, StageListener, nobody_listens

_ANEW = "a new one is made"


class SshAgentRoute:
    """Reaches the agent of a host over one SSH connection, and starts it if it is not there.

    Args:
        spec: the host.
        settings: how to connect.
        agent: what to start there.
        start_time: seconds until an agent that was started must answer.
        on_stage: told what is being done.
        prompts: who is asked for passwords and about unknown host keys.
    """

    def __init__(
        self,
        spec: HostSpec,
        settings: SshSettings | None = None,
        agent: HostAgent | None = None,
        *,
        start_time: float = START_TIME,
        on_stage: StageListener = nobody_listens,
        prompts: Prompts | None = None,
    ) -> None:
        self._spec = spec
        self._settings = settings or SshSettings()
        self._agent = agent or HostAgent()
        self._start_time = start_time
        self._on_stage = on_stage
        self._prompts = prompts or Prompts()
        self.host: HostConnection | None = None
        """The connection; replaced after a loss."""
        self._socket = ""
        self.bridged = False
        """sshd forbids stream forwarding: commands on the host carry the bytes."""

    async def open(self) -> aiohttp.ClientSession:
        """A session to the agent, over a new connection when the old one is gone.

        Raises:
            StageError: says at which stage it ended.
            LinkLost: the connection ended meanwhile.
        """
        if self.host is None or not self.host.alive:
            await self.close()
            self.host = await connect_ssh(self._spec, self._settings, self._on_stage, self._prompts)
        try:
            return await self._open(self.host)
        except LinkLost:
            await self.close()
            raise

    @property
    def stands(self) -> bool:
        """Whether the SSH connection stands, as far as is known."""
        return self.host is not None and self.host.alive

    async def look(self) -> Way:
        """Whether the host answers, and whether somebody takes connections at the agent's socket."""
        host = self.host
        if host is None or not host.alive:
            return Way.SILENT
        try:
            async with asyncio.timeout(LOOK_TIME):
                if self.bridged:
                    await host.run(["true"])
                    return Way.UNKNOWN
                # sshd takes the channel only after it has reached the socket.
                _, writer = await host.connection.open_unix_connection(self._socket, encoding=None)
        except asyncssh.ChannelOpenError:
            return Way.NOBODY if self.stands else Way.SILENT
        except (TimeoutError, AgentError, asyncssh.Error, OSError):
            return Way.SILENT
        writer.close()
        return Way.ACCEPTS

    async def close(self) -> None:
        """End the connection; the agent goes on."""
        host, self.host = self.host, None
        if host is not None:
            await host.close()

    async def _open(self, host: HostConnection) -> aiohttp.ClientSession:
        deployment = HostDeployment(host, self._agent, self._on_stage)
        socket = self._socket = await deployment.find()
        self._on_stage(Stage.HANDSHAKE)
        try:
            return await self._reach(host, deployment, socket)
        except NobodyThere:
            pass
        await deployment.start(socket)
        self._on_stage(Stage.HANDSHAKE)
        return await wait_for_agent(
            lambda: self._reach(host, deployment, socket), host.host, deployment.look, self._start_time
        )

    async def _reach(self, host: HostConnection, deployment: HostDeployment, socket: str) -> aiohttp.ClientSession:
        """A session to an agent that answers, by a channel, or over a bridge where channels are forbidden.

        Raises:
            NobodyThere: none answers there.
        """
        try:
            session = await self._greeted(host, SshUnixConnector(host.connection, socket))
        except NobodyThere:
            # A refused channel looks the same when forwarding is forbidden and when no agent is there: ask the host.
            if not (await deployment.look())["answers"]:
                raise
        else:
            self.bridged = False
            return session
        # An agent may have begun to answer between the channel and the question: then a channel works after all.
        with contextlib.suppress(NobodyThere):
            session = await self._greeted(host, SshUnixConnector(host.connection, socket))
            self.bridged = False
            return session
        bridge = SshBridgeConnector(host.sessions, host.host, socket, deployment.python)
        session = await self._greeted(host, bridge)
        self.bridged = True
        return session

    async def _greeted(self, host: HostConnection, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        session = new_session(connector)
        try:
            await ask_hello(session, host.host)
        except NotAnswering as silent:
            await session.close()
            if getattr(connector, "opened", True):
                raise
            # Not even a channel came: the host is silent, not its agent.
            raise LinkLost(f"{host.host}: the host does not answer over the connection", _ANEW) from silent
        except OtherProtocol as other:
            try:
                await ask_to_leave(session, host.host, other)
            finally:
                await session.close()
            raise NobodyThere from other
        except BaseException:
            await session.close()
            raise
        return session
