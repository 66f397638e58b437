"""From a command line to a server that can be measured: wait, watch the log, ask, and never take another's answer."""

import asyncio
import socket
import time
from collections.abc import Callable
from dataclasses import replace

from ddconsole.core.clock import Clock
from ddconsole.core.events import LaunchStarting
from ddconsole.core.states import Cause, Retry
from ddconsole.core.wire import DecodeFigures
from ddconsole.engines.engine import (
    DecodeLine,
    Engine,
    LogNotice,
    LogReader,
    Readiness,
    ServerApi,
    ServerStart,
    Step,
)
from ddconsole.engines.failures import classify
from ddconsole.runner.identity import describe, identify, listening_pids
from ddconsole.runner.live_file import LiveFile
from ddconsole.runner.log_limit import LogLimit
from ddconsole.runner.log_tail import LogTail
from ddconsole.runner.server_process import ServerProcess

_PROGRESS_STEP = 0.1
"""A start's progress is written down when it grew by so much: it is for watching."""
_TAIL = 8000
"""Lines of the log that a failure is classified from: a server without its detokenizer decodes on for a minute."""
_RECORD = 1.0
"""Real seconds between two walks over /proc while a server starts: that is when it makes its processes."""
_FATAL_GRACE = 10.0
"""Seconds that a server gets to end by itself after it printed that it cannot go on."""


class LaunchFailure(Exception):
    """The server cannot be measured, and why."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause.text)
        self.cause = cause


class LogWatch:
    """Reads the server's log as it grows: steps of the start into events, decode figures into the live file."""

    def __init__(
        self,
        launch: int,
        tail: LogTail,
        reader: LogReader,
        live: LiveFile,
        on_step: Callable[[LaunchStarting], None],
        clock: Clock,
    ) -> None:
        self._launch = launch
        self._tail = tail
        self._limit = LogLimit(tail.path)
        self.reader = reader
        self._live = live
        self._on_step = on_step
        self._clock = clock
        self._shown: Step | None = None
        self.fatal: LogNotice | None = None
        """The first line that a living server should not have printed."""
        self._fatal_at = 0.0

    def look(self, *, starting: bool) -> None:
        """Take what came since the last look, and keep what the log takes of the disk within bounds."""
        self._limit.look()
        for line in self._tail.read():
            for item in self.reader.feed(line):
                if isinstance(item, Step) and starting:
                    self._show(item)
                elif isinstance(item, DecodeLine):
                    self._live.decode(
                        DecodeFigures(
                            self._launch,
                            self._clock.now(),
                            item.output_rate,
                            item.running,
                            item.queued,
                            item.acceptance_length,
                        )
                    )
                elif isinstance(item, LogNotice) and item.fatal and self.fatal is None:
                    self.fatal = item
                    self._fatal_at = self._clock.monotonic()

    def fallen(self) -> Cause | None:
        """Why a server that still lives is lost: it said so, and did not end in its time of grace."""
        if self.fatal is None:
            return None
        if self.reader.facts.get("bind_failed") or self._clock.monotonic() - self._fatal_at > _FATAL_GRACE:
            return self.fatal.cause
        return None

    def _show(self, step: Step) -> None:
        before = self._shown
        if before is not None and before.name == step.name:
            grown = (step.progress or 0.0) - (before.progress or 0.0)
            if grown < _PROGRESS_STEP:
                return
        self._shown = step
        self._on_step(LaunchStarting(self._launch, step.name, step.progress))


def require_free_port(port: int, host: str = "127.0.0.1") -> None:
    """Refuse to start on a port that somebody holds.

    Raises:
        LaunchFailure: names who listens there, where that can be seen.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            raise LaunchFailure(_port_taken(port, str(problem))) from problem


def _port_taken(port: int, detail: str) -> Cause:
    pids = listening_pids(port)
    owners = [describe(one) for pid in sorted(pids or ()) if (one := identify(pid)) is not None]
    who = "; ".join(owners) or "a process that cannot be seen from here"
    return Cause(
        "PORT-TAKEN",
        f"port {port} is taken by {who}",
        (detail, *owners),
        do=f"end it, or set protocol.port to another port than {port}",
        retry=Retry.AS_IS,
    )


async def wait_until_ready(
    server: ServerProcess,
    engine: Engine,
    start: ServerStart,
    api: ServerApi,
    watch: LogWatch,
    ready_timeout: float,
    unwanted: Callable[[], bool],
    clock: Clock,
) -> Readiness | None:
    """Wait for a server that is ours, answers, and does what was asked; None when it became unwanted.

    Raises:
        LaunchFailure: it died, took too long, or is not what was asked for.
    """
    deadline = clock.monotonic() + ready_timeout
    why = "the server has not opened its port"
    record_at = 0.0
    while True:
        if time.monotonic() >= record_at:
            server.record()
            record_at = time.monotonic() + _RECORD
        watch.look(starting=True)
        if unwanted():
            return None
        if server.exit_status is not None:
            raise LaunchFailure(await death_cause(server, engine, watch, phase="start"))
        fallen = watch.fallen()
        if fallen is not None:
            raise LaunchFailure(fallen)
        if clock.monotonic() > deadline:
            raise LaunchFailure(_too_late(server, ready_timeout, why))
        if _port_is_open(server, start.port):
            readiness = await _ask(engine, api, start, watch)
            if readiness.ready:
                watch.look(starting=True)
                return readiness
            if readiness.cause is not None:
                raise LaunchFailure(readiness.cause)
            why = readiness.why
        await asyncio.sleep(min(clock.real_seconds(0.25), 0.25))


def _port_is_open(server: ServerProcess, port: int) -> bool:
    """Whether our server listens; True too where the listener's owner cannot be seen.

    Raises:
        LaunchFailure: somebody else listens there.
    """
    pids = listening_pids(port)
    if pids and not pids & {one.pid for one in server.members()}:
        raise LaunchFailure(_port_taken(port, "it answers in place of the server that was started"))
    return pids is None or bool(pids)


async def _ask(engine: Engine, api: ServerApi, start: ServerStart, watch: LogWatch) -> Readiness:
    try:
        return await engine.check_ready(api, start, watch.reader)
    except (OSError, TimeoutError) as problem:
        return Readiness(ready=False, why=str(problem) or "no answer")


def _too_late(server: ServerProcess, ready_timeout: float, why: str) -> Cause:
    return Cause(
        "READY-TIMEOUT",
        f"not ready after {ready_timeout:.0f} s: {why}",
        tuple(server.log_tail(8)),
        do="read the server's log; a first start that compiles kernels needs a longer protocol.ready_timeout",
        retry=Retry.AS_IS,
    )


async def death_cause(server: ServerProcess, engine: Engine, watch: LogWatch, phase: str) -> Cause:
    """Why the server died, from the end of its log; its exit status alone says nothing."""
    await asyncio.sleep(0.1)
    watch.look(starting=False)
    cause = classify(engine.kind, server.log_tail(_TAIL), phase, server.exit_status, we_stopped_it=False)
    if cause.id == "UNKNOWN" and not cause.text.startswith("unknown failure"):
        return replace(cause, text=f"{cause.text} (the server ended with status {server.exit_status})")
    return cause
