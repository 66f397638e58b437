"""The machine that this process runs on."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil

from ddconsole.preflight import driver_child
from ddconsole.preflight.machine import DeviceOpening, DiskRoom, FileStatus, PortUse, Ran

Value = TypeVar("Value")

_KILL_GRACE = 1.0
"""Seconds to wait for a killed program: one that is stuck in the kernel never ends."""


class LocalMachine:
    """The real thing behind `Machine`. File calls run in threads of their own, programs in their own sessions."""

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        """Run a program without a shell."""
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        out, err = bytearray(), bytearray()
        try:
            async with asyncio.timeout(deadline):
                await asyncio.gather(_read_into(process.stdout, out), _read_into(process.stderr, err), process.wait())
        except TimeoutError:
            await _kill(process)
            return Ran(None, _text(out), _text(err), time.monotonic() - began)
        except asyncio.CancelledError:
            await _kill(process)
            raise
        return Ran(process.returncode, _text(out), _text(err), time.monotonic() - began)

    async def child(self, *arguments: str, deadline: float) -> Ran:
        """Run the driver's child with this interpreter, without anything of this process's paths."""
        return await self.run((sys.executable, "-I", str(Path(driver_child.__file__)), *arguments), deadline)

    async def open_device(self, path: str, deadline: float) -> DeviceOpening:
        """Open in a child."""
        ran = await self.child("open", path, deadline=deadline)
        if ran.exit_code is None:
            return DeviceOpening("TIMEOUT")
        if ran.exit_code != 0:
            raise OSError(f"opening {path} in a child ended with {ran.exit_code}: {ran.err.strip()[-200:]}")
        error = json.loads(ran.out)["error"]
        return DeviceOpening(None if error is None else str(error))

    async def status(self, path: str) -> FileStatus | None:
        """What stands there."""
        try:
            found = await _in_thread(lambda: Path(path).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileStatus(_kind(found.st_mode), found.st_size, os.major(found.st_rdev), stat.S_IMODE(found.st_mode))

    async def read_text(self, path: str) -> str:
        """A small file."""
        return await _in_thread(lambda: Path(path).read_text(encoding="utf-8", errors="replace"))

    async def read_bytes(self, path: str, offset: int, length: int) -> bytes:
        """Part of a file."""

        def work() -> bytes:
            with Path(path).open("rb") as file:
                file.seek(offset)
                return file.read(length)

        return await _in_thread(work)

    async def list_folder(self, path: str) -> tuple[str, ...]:
        """Names in a folder."""
        return await _in_thread(lambda: tuple(sorted(os.listdir(path))))  # noqa: PTH208  # names, not paths

    async def disk_room(self, path: str) -> DiskRoom:
        """Room for a path."""

        def work() -> DiskRoom:
            there = Path(path).absolute()
            while not there.exists() and there != there.parent:
                there = there.parent
            space = os.statvfs(there)
            writable = os.access(there, os.W_OK | os.X_OK) and not space.f_flag & os.ST_RDONLY
            inodes = space.f_favail if space.f_files else None
            return DiskRoom(str(there), space.f_bavail * space.f_frsize, inodes, writable)

        return await _in_thread(work)

    async def port_use(self, port: int) -> PortUse:
        """Bind it for a moment; where that fails, look who listens."""
        return await _in_thread(lambda: _port_use(port))


def _port_use(port: int) -> PortUse:
    with socket.socket() as probe:
        # As servers do: connections of an ended server that linger in TIME_WAIT are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as problem:
            pid = _listener(port)
            return PortUse(free=False, pid=pid, command=_command(pid), error=problem.strerror or str(problem))
    return PortUse(free=True)


def _listener(port: int) -> int | None:
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            local = connection.laddr
            if connection.status == psutil.CONN_LISTEN and local and local.port == port:
                return connection.pid
    return None


def _command(pid: int | None) -> str:
    if pid is None:
        return ""
    with contextlib.suppress(psutil.Error):
        return " ".join(psutil.Process(pid).cmdline()).strip()[:300]
    return ""


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "character" if stat.S_ISCHR(mode) else "other"


async def _in_thread(work: Callable[[], Value]) -> Value:
    """Run `work` in a daemon thread: a file system that hangs must not keep this process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Value] = loop.create_future()

    def settle(set_result: Callable[[Value], None] | Callable[[BaseException], None], value: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(lambda: None if future.done() else set_result(value))  # type: ignore[arg-type]  # one of the two fits

    def run() -> None:
        try:
            settle(future.set_result, work())
        except BaseException as problem:  # noqa: BLE001  # it is raised where the answer is awaited
            settle(future.set_exception, problem)

    threading.Thread(target=run, daemon=True, name="machine").start()
    return await future


async def _read_into(stream: asyncio.StreamReader | None, kept: bytearray) -> None:
    """All that a program says, as it says it: what came before the deadline is not lost."""
    while stream is not None and (piece := await stream.read(65536)):
        kept += piece


def _text(kept: bytearray) -> str:
    return kept.decode("utf-8", "replace")


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the session of a program that this process started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _KILL_GRACE)
    transport = getattr(process, "_transport", None)  # the only way to let the pipes of an unkillable child go
    if transport is not None:
        transport.close()
