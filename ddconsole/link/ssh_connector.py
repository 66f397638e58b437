"""aiohttp over SSH: a channel to the agent's socket for each connection, without any local socket or port.

Where sshd forbids stream forwarding, a command on the host joins its stdin and stdout to the socket instead.
"""

import asyncio
import base64
import inspect
import shlex
from typing import TYPE_CHECKING, Any, TypeAlias

import aiohttp
import asyncssh
from aiohttp.client_proto import ResponseHandler

from ddconsole.core.visible_text import visible
from ddconsole.link import bridge_on_host
from ddconsole.link.client import AgentError
from ddconsole.link.host_call import new_nonce
from ddconsole.link.ssh_sessions import HostSessions

if TYPE_CHECKING:
    from aiohttp.client import ClientTimeout
    from aiohttp.client_reqrep import ClientRequest
    from aiohttp.tracing import Trace

_BRIDGES = 5
"""Connections over bridges at a time: each is a session, of which sshd allows ten to a connection."""
_NOISE = 64 * 1024
"""Bytes that login scripts may print before the bridge speaks."""


_Channel: TypeAlias = "asyncssh.SSHUNIXChannel[bytes] | asyncssh.SSHClientChannel[bytes]"


class _ChannelTransport(asyncio.Transport):
    """What aiohttp writes to: one SSH channel."""

    def __init__(self, channel: _Channel) -> None:
        super().__init__()
        self._channel = channel
        self._closing = False
        self._reading = True

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        # aiohttp would set options on the socket that carries all channels.
        if name in ("socket", "sslcontext", "ssl_object"):
            return default
        return self._channel.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._closing or self._channel.is_closing()

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if not self.is_closing():
            self._channel.write(bytes(data))

    def get_write_buffer_size(self) -> int:
        return int(self._channel.get_write_buffer_size())

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._channel.write_eof()

    def is_reading(self) -> bool:
        return self._reading

    def pause_reading(self) -> None:
        self._reading = False
        self._channel.pause_reading()

    def resume_reading(self) -> None:
        self._reading = True
        self._channel.resume_reading()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._channel.close()

    def abort(self) -> None:
        self._closing = True
        self._channel.abort()


class _ProtocolFeed:
    """Hands a channel's callbacks to an aiohttp protocol."""

    def __init__(self, protocol: ResponseHandler) -> None:
        self.protocol = protocol

    def begin(self, channel: _Channel) -> None:
        self.protocol.connection_made(_ChannelTransport(channel))

    def eof_received(self) -> bool:
        self.protocol.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        # aiohttp hands an error that it does not know through to whoever waits for an answer.
        known = exc is None or isinstance(exc, OSError)
        self.protocol.connection_lost(exc if known else ConnectionResetError(str(exc)))

    def pause_writing(self) -> None:
        self.protocol.pause_writing()

    def resume_writing(self) -> None:
        self.protocol.resume_writing()


class _SocketSession(_ProtocolFeed, asyncssh.SSHUNIXSession[bytes]):
    """A direct channel to a unix socket."""

    def connection_made(self, chan: asyncssh.SSHUNIXChannel[bytes]) -> None:
        self.begin(chan)

    def data_received(self, data: bytes, datatype: int | None) -> None:  # noqa: ARG002  # asyncssh calls it so
        self.protocol.data_received(data)


class _BridgeSession(_ProtocolFeed, asyncssh.SSHClientSession[bytes]):
    """A command's stdin and stdout; what comes before the marker is a login script's and is dropped."""

    def __init__(self, protocol: ResponseHandler, marker: str) -> None:
        super().__init__(protocol)
        self._marker = f"\n{marker}\n".encode()
        self._head: bytes | None = b"\n"
        self._errors = b""
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self.begin(chan)

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype is not None:
            self._errors = (self._errors + data)[-_NOISE:]
        elif self._head is None:
            self.protocol.data_received(data)
        else:
            self._look_for_marker(data)

    def _look_for_marker(self, data: bytes) -> None:
        head = (self._head or b"") + data
        _, found, rest = head.partition(self._marker)
        self._head = None if found else head[-_NOISE:]
        if not found:
            return
        if not self.ready.done():
            self.ready.set_result(None)
        if rest:
            self.protocol.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            said = visible((self._errors or self._head or b"").decode(errors="replace").strip()[-400:])
            self.ready.set_exception(OSError(str(exc) if exc else f"the bridge ended: {said}"))
        super().connection_lost(exc)


class SshUnixConnector(aiohttp.BaseConnector):
    """Connections are channels to a unix socket of the host.

    Args:
        connection: the live SSH connection.
        path: of the socket, on the host.
    """

    allowed_protocol_schema_set = frozenset({"http", "unix"})

    def __init__(self, connection: asyncssh.SSHClientConnection, path: str) -> None:
        super().__init__()
        self._connection = connection
        self._path = path
        self.opened = False
        """Whether the host has taken a channel."""

    async def _create_connection(  # the method that aiohttp's own connectors override
        self,
        req: "ClientRequest",  # noqa: ARG002  # there is one place to go
        traces: "list[Trace]",  # noqa: ARG002  # nobody traces
        timeout: "ClientTimeout",
    ) -> ResponseHandler:
        protocol: ResponseHandler = self._factory()
        try:
            async with asyncio.timeout(timeout.sock_connect):
                await self._connection.create_unix_connection(
                    lambda: _SocketSession(protocol), self._path, encoding=None
                )
        except (asyncssh.Error, OSError) as problem:
            raise _no_connection(problem) from problem
        self.opened = True
        return protocol


class SshBridgeConnector(aiohttp.BaseConnector):
    """Connections are commands on the host that carry bytes to the socket, for hosts that forbid forwarding.

    Args:
        sessions: of the live link.
        host: as the operator calls it.
        path: of the socket, on the host.
        python: the host's interpreter.
    """

    allowed_protocol_schema_set = frozenset({"http", "unix"})

    def __init__(self, sessions: HostSessions, host: str, path: str, python: str) -> None:
        super().__init__(limit=_BRIDGES)
        self._sessions = sessions
        self._host = host
        self._path = path
        self._python = python

    async def _create_connection(  # the method that aiohttp's own connectors override
        self,
        req: "ClientRequest",  # noqa: ARG002  # there is one place to go
        traces: "list[Trace]",  # noqa: ARG002  # nobody traces
        timeout: "ClientTimeout",
    ) -> ResponseHandler:
        protocol: ResponseHandler = self._factory()
        marker = new_nonce()
        session = _BridgeSession(protocol, marker)
        try:
            async with asyncio.timeout(timeout.sock_connect):
                await self._sessions.begin(
                    lambda one: one.create_session(lambda: session, self._command(marker), encoding=None)
                )
                await session.ready
        except (asyncssh.Error, OSError) as problem:
            protocol.close()
            if isinstance(problem, asyncssh.ChannelOpenError) and self._sessions.alive:
                # No loss of the link, which would only be made again.
                raise AgentError(f"{self._host}: {_NO_SESSION}", _ALLOW) from problem
            raise _no_connection(problem) from problem
        return protocol

    def _command(self, marker: str) -> str:
        # One line without quotes, exclamation marks and newlines inside: any login shell takes it.
        text = f"{inspect.getsource(bridge_on_host)}\nimport sys\nbridge(*sys.argv[1:])\n"
        packed = base64.b64encode(text.encode()).decode()
        program = f"import base64;exec(base64.b64decode({packed!r}))".replace("'", '"')
        return shlex.join([self._python, "-I", "-u", "-c", program, self._path, marker])


_NO_SESSION = (
    "the host opens no further session: its sshd forbids stream forwarding, and MaxSessions allows too few sessions "
    "to do without"
)
_ALLOW = "have its sshd_config say AllowStreamLocalForwarding yes, or MaxSessions 10"


def _no_connection(problem: Exception) -> aiohttp.ClientConnectionError:
    what = str(problem) or type(problem).__name__
    return aiohttp.ClientConnectionError(f"no channel to the agent: {visible(what)}")
