"""Bringing the agent to a host: find its Python, upload the bundle beside and rename it, start the agent detached."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from ddconsole.core.visible_text import visible
from ddconsole.link import on_host
from ddconsole.link.bundle import Bundle, BundleExtras, build_bundle
from ddconsole.link.client import AgentError, LinkLost
from ddconsole.link.host_call import HostRefusal, answer_of, new_nonce, program
from ddconsole.link.host_python import ISOLATED, HostFacts, HostPython, probe_host
from ddconsole.link.places import default_cache_directory
from ddconsole.link.ssh_host import HostConnection
from ddconsole.link.stages import Stage, StageError, StageListener, nobody_listens

_UNPACK_TIME = 120.0
_MIB = 1024 * 1024
_ROOM_TO_RUN = 16 * _MIB
"""Bytes for the first journal, logs and results: below a quarter of it a sweep pauses."""


@dataclass(frozen=True, slots=True)
class HostAgent:
    """What is started on a host, and where it keeps things."""

    state: str = ""
    """The state directory, absolute or `~/...`; empty: by the XDG rules, on the host."""
    python: str = ""
    """The interpreter, where the plan names one."""
    serving_python: str = ""
    """The serving environment's, for a host that has no other: nothing of that environment is read or written."""
    module: str = "ddconsole.agent"
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the login environment, such as a rehearsal's clock."""
    extras: BundleExtras = field(default_factory=BundleExtras)
    cache: Path | None = None
    """Where bundles and wheels are kept here; None: by the XDG rules."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What is on a host."""

    bundle: Bundle
    folder: str
    """There."""
    python: HostPython
    """The host's."""
    uploaded: bool
    """It was not there before."""


class HostDeployment:
    """The agent's files and process on one host.

    Args:
        host: a live connection.
        agent: what to bring.
        on_stage: told what is being done.
    """

    def __init__(self, host: HostConnection, agent: HostAgent, on_stage: StageListener = nobody_listens) -> None:
        self._host = host
        self._agent = agent
        self._on_stage = on_stage
        self._pid = 0
        self._facts: HostFacts | None = None

    async def find(self) -> str:
        """Look for Python and say where the agent's socket is or will be.

        Raises:
            StageError: E140, E141, E131.
            LinkLost: the connection ended.
        """
        self._on_stage(Stage.PYTHON)
        try:
            named, last = ([one] if one else [] for one in (self._agent.python, self._agent.serving_python))
            self._facts = await probe_host(self._host, named, last)
            return on_host.socket_path(self.state, self._facts.uid)
        except on_host.RefusedError as refused:
            raise StageError(Stage.PYTHON, self._host.host, refused.text, refused.do, final=True) from refused

    @property
    def state(self) -> str:
        """The state directory on the host; known after `find`."""
        named = self._agent.state
        if not named:
            return self._known.state
        return f"{self._known.home}{named[1:]}" if named.startswith("~/") else named

    @property
    def python(self) -> str:
        """The host's interpreter; known after `find`."""
        return self._known.python.path

    @property
    def _known(self) -> HostFacts:
        assert self._facts is not None, "find() comes first"
        return self._facts

    @property
    def _agents(self) -> str:
        return f"{self.state}/agent"

    @property
    def _log(self) -> str:
        return f"{self.state}/agent.log"

    async def look(self, folder: str = "") -> Mapping[str, Any]:
        """`on_host.look`, for the agent that was started here."""
        arguments = {"state": self.state, "folder": folder, "pid": self._pid, "log": self._log}
        seen: dict[str, Any] = await self._call(Stage.HANDSHAKE, "look", arguments)
        return seen

    async def start(self, socket: str) -> None:
        """Bring the bundle if it is not there, and start the agent in a session of its own.

        Raises:
            StageError: upload or start failed.
            LinkLost: the connection ended; a broken upload is never started from.
        """
        brought = await self.bring()
        folder = f"{self._agents}/{brought.bundle.name}"
        self._on_stage(Stage.START)
        start = {
            "command": [f"{folder}/bin/python", "-I", "-m", self._agent.module, *self._agent.arguments],
            "state": self.state,
            "socket": socket,
            "log": self._log,
            "environment": dict(self._agent.environment),
            "bundle": folder,
            "python": self.python,
        }
        self._pid = int(await self._call(Stage.START, "start", start))
        await self.clear(brought.bundle)

    async def bring(self) -> Brought:
        """Put the bundle into its folder on the host, if it is not there; nothing is started.

        Raises:
            StageError: it cannot be made here, or has no place there.
            LinkLost: the connection ended; a broken upload is never started from.
        """
        self._on_stage(Stage.UPLOAD)
        bundle = await self._build()
        folder = f"{self._agents}/{bundle.name}"
        seen = await self.look(folder)
        self._check_place(seen["place"], 0 if seen["bundle"] else bundle.size + bundle.unpacked)
        if not seen["bundle"]:
            await self._upload(bundle, folder)
        return Brought(bundle, folder, self._known.python, uploaded=not seen["bundle"])

    async def verify(self, brought: Brought) -> None:
        """Look whether what is on the host is what was brought.

        Raises:
            StageError: E145, something there was changed.
            LinkLost: the connection ended.
        """
        found = await self._call(Stage.UPLOAD, "verify", {"folder": brought.folder}, deadline=_UNPACK_TIME)
        if found != brought.bundle.name:
            text = f"E145 {brought.folder} was changed there: its content is {found}"
            raise self._error(Stage.UPLOAD, text, "remove that folder when no agent runs from it, and prepare anew")

    async def clear(self, keep: Bundle) -> Sequence[str]:
        """Remove older bundles from which nothing runs; their names."""
        removed: list[str] = await self._call(Stage.START, "clear", {"agents": self._agents, "keep": keep.name})
        return removed

    def _check_place(self, place: Mapping[str, Any], needed: int) -> None:
        """Say what keeps an agent from living there, before anything is sent."""
        where, free = place["place"], int(place["free"])
        another = "name another folder in the plan: agent: {state: /path}"
        if place["readonly"]:
            raise self._error(Stage.UPLOAD, f"E142 {self.state} is on a read-only file system ({where})", another)
        if not place["writable"]:
            raise self._error(
                Stage.UPLOAD, f"E142 {self.state}: {where} may not be written to", f"chmod u+rwx it, or {another}"
            )
        if place["noexec"]:
            text = f"E143 {self.state} is on a file system mounted noexec ({where}): no module can be loaded from it"
            raise self._error(Stage.UPLOAD, text, another)
        if needed and free < needed + _ROOM_TO_RUN:
            wants = (needed + _ROOM_TO_RUN) // _MIB + 1
            text = f"E144 {where} has {free // _MIB} MiB free, the agent needs {wants} MiB"
            raise self._error(Stage.UPLOAD, text, f"make room there, or {another}")

    async def _build(self) -> Bundle:
        cache = self._agent.cache or default_cache_directory()
        try:
            return await build_bundle(self._known.python, cache, self._agent.extras)
        except HostRefusal as refused:
            raise self._error(Stage.PYTHON, refused.text, refused.do) from refused
        except OSError as problem:
            raise self._error(Stage.UPLOAD, f"the bundle cannot be made here: {problem}", "make room") from problem

    async def _upload(self, bundle: Bundle, folder: str) -> None:
        part = f"{self._agents}/.{bundle.name}.{secrets.token_hex(4)}.part"
        data = bundle.archive.read_bytes()
        private = asyncssh.SFTPAttrs(permissions=0o700)
        try:
            async with self._host.sftp() as sftp:
                await sftp.makedirs(self._agents, private, exist_ok=True)
                async with sftp.open(part, "wb") as file:
                    await file.write(data)
                    await _sync(file)
        except (asyncssh.SFTPConnectionLost, asyncssh.SFTPNoConnection, ConnectionError) as problem:
            raise LinkLost(f"{self._host.host}: the connection was lost during the upload") from problem
        except (asyncssh.Error, OSError) as problem:
            # SFTP has one word for most of what goes wrong: the host is asked what it is.
            self._check_place((await self.look(folder))["place"], bundle.size + bundle.unpacked)
            do = f"check room and permissions of {self._agents} on the host"
            raise self._error(Stage.UPLOAD, visible(str(problem)), do) from problem
        received = {"part": part, "folder": folder, "size": bundle.size, "sha256": bundle.sha256}
        await self._call(Stage.UPLOAD, "receive", received, deadline=_UNPACK_TIME)

    async def _call(self, stage: Stage, action: str, arguments: dict[str, Any], deadline: float = 30.0) -> Any:
        nonce = new_nonce()
        text = program(nonce, action, arguments)
        try:
            done = await self._host.run([self.python, *ISOLATED, "-"], stdin=text, deadline=deadline)
            return answer_of(nonce, done.stdout, done.stderr, done.status)
        except LinkLost:
            raise
        except (HostRefusal, AgentError) as refused:
            raise self._error(stage, refused.text, refused.do) from refused

    def _error(self, stage: Stage, text: str, do: str) -> StageError:
        return StageError(stage, self._host.host, text, do, final=True)


async def _sync(file: asyncssh.SFTPClientFile) -> None:
    """Make the upload durable where the server can; the checksum decides in any case."""
    try:
        await file.fsync()
    except asyncssh.SFTPOpUnsupported:
        return
