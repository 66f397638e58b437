"""Samples of the machine from a process of their own, with a deadline: the driver can hang, the agent must not."""

import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Self

from ddconsole.core.clock import Clock, SystemClock
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_from_json

LONGEST_LINE = 4 * 1024 * 1024
"""Bytes: sixteen GPUs with their 120 pairs are about 60 KB."""

_KILL_GRACE = 2.0
"""Seconds to wait for a killed probe. One that is stuck in the kernel is left behind: nothing can end it."""

_LAST_WORDS = 0.5
"""Seconds to wait for what an ended probe wrote; another process may hold the pipe open."""


class ProbeProblem(Exception):
    """The probe gave no sample; the text says why, for the operator."""


def probe_command(*arguments: str) -> tuple[str, ...]:
    """The command line of the probe's process."""
    return (sys.executable, "-m", "ddconsole.probe", *arguments)


def probe_environment(added: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, with what it can import."""
    paths = os.pathsep.join(path or str(os.getcwd()) for path in sys.path)  # noqa: PTH109  # a string is what is needed
    return {**os.environ, "PYTHONPATH": paths, **(added or {})}


async def one_sample(
    deadline: float = 30.0, command: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> HostState:
    """The machine now, from a process that is started for it and ended.

    Args:
        deadline: seconds. Without persistence mode the driver takes up to three seconds for each GPU.
        command: what to start instead of the probe.
        environment: added to this process's environment.

    Raises:
        ProbeProblem: no sample within the deadline.
    """
    process = await _start(command or probe_command("--once"), environment)
    try:
        async with asyncio.timeout(deadline):
            out, complaint = await process.communicate()
    except TimeoutError:
        await _end(process)
        raise ProbeProblem(f"the probe gave no sample within {deadline:g} s: the GPU driver may hang") from None
    except asyncio.CancelledError:
        await _end(process)
        raise
    try:
        return host_state_from_json(json.loads(out))
    except ValueError:
        last = complaint.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise ProbeProblem(f"the probe ended with {process.returncode}: {''.join(last) or 'no output'}") from None


class HostMonitor:
    """Keeps the latest sample of the machine, and says so when none comes.

    Use as an async context manager, or `start` and `stop`.

    Args:
        interval: seconds between samples, on the clock.
        deadline: seconds without a sample after which it is silent. Real seconds, as the next one.
        restart_after: seconds between two starts of the probe, at least.
        command: what to start instead of the probe.
        environment: added to this process's environment.
        disks: paths whose file systems are reported too.
        clock: for `silent_since`.
    """

    def __init__(
        self,
        interval: float = 1.0,
        deadline: float = 10.0,
        restart_after: float = 60.0,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        disks: Sequence[str] = (),
        clock: Clock | None = None,
    ) -> None:
        asked = [word for path in disks for word in ("--disk", path)]
        self._command = command or probe_command("--interval", str(interval), *asked)
        self._environment = environment
        self._deadline = deadline
        self._restart_after = restart_after
        self._clock = clock or SystemClock()
        self._task: asyncio.Task[None] | None = None
        self._complaints: deque[str] = deque(maxlen=5)
        self._changed = asyncio.Event()
        self._asked_at = 0.0
        self._process: asyncio.subprocess.Process | None = None
        self._quiet = False
        self.latest: HostState | None = None
        """The last sample, however old: look at `problem` beside it."""
        self.silent_since: float | None = None
        """Wall time of the last sample (or of the start) when none came within the deadline; else None."""
        self.starts = 0
        """How often the probe was started."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def problem(self) -> str | None:
        """`no answer since 12:00:01`, with what the probe last said; None while samples come."""
        if self.silent_since is None:
            return None
        since = datetime.fromtimestamp(self.silent_since, UTC).astimezone().strftime("%H:%M:%S")
        said = f": {self._complaints[-1]}" if self._complaints else ""
        return f"no answer since {since}{said}"

    async def start(self) -> None:
        """Begin to sample."""
        if self._task is None:
            self._asked_at = self._clock.now()
            self._task = asyncio.create_task(self._watch(), name="host monitor")

    async def stop(self) -> None:
        """End the probe's process, and wait for it shortly."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    def be_quiet(self, *, quiet: bool) -> None:
        """While something is measured: leave out what is slow. Says it to the probe when it changes."""
        if quiet != self._quiet:
            self._quiet = quiet
            self._say_quiet()

    def _say_quiet(self) -> None:
        pipe = self._process.stdin if self._process is not None else None
        if pipe is not None and not pipe.is_closing():
            pipe.write(b"quiet on\n" if self._quiet else b"quiet off\n")

    async def samples(self) -> AsyncIterator[HostState | None]:
        """Each sample as it comes, and None each time when the deadline passes without one."""
        while True:
            self._changed.clear()
            await self._changed.wait()
            yield None if self.silent_since is not None else self.latest

    async def _watch(self) -> None:
        """Run the probe for ever: start it, read it, and start another when it ended or hangs."""
        loop = asyncio.get_running_loop()
        while True:
            started = loop.time()
            self.starts += 1
            try:
                await self._run_probe(started + self._restart_after)
            except OSError as problem:
                self._complaints.append(f"the probe could not be started: {problem}")
            self._say_silent()
            await asyncio.sleep(max(0.0, started + self._restart_after - loop.time()))

    async def _run_probe(self, restart_at: float) -> None:
        process = self._process = await _start(self._command, self._environment)
        if self._quiet:
            self._say_quiet()
        complaints = asyncio.create_task(self._read_complaints(process))
        try:
            await self._read_samples(process, restart_at)
        finally:
            await _end(process)
            await asyncio.wait({complaints}, timeout=_LAST_WORDS)
            complaints.cancel()

    async def _read_samples(self, process: asyncio.subprocess.Process, restart_at: float) -> None:
        """Until the probe ends; or until it is silent, and was started long enough ago."""
        if process.stdout is None:
            return
        loop = asyncio.get_running_loop()
        line = asyncio.ensure_future(process.stdout.readline())
        try:
            while True:
                await asyncio.wait({line}, timeout=self._deadline)
                if line.done():
                    if line.exception() or not self._take(line.result()):
                        return
                    line = asyncio.ensure_future(process.stdout.readline())
                    continue
                self._say_silent()
                if loop.time() >= restart_at:
                    return
        finally:
            line.cancel()

    def _take(self, line: bytes) -> bool:
        """Keep a sample. False at the end of the probe's output, and where it is no sample."""
        if not line.endswith(b"\n"):
            return False
        try:
            self.latest = host_state_from_json(json.loads(line))
        except ValueError as problem:
            self._complaints.append(f"the probe said what is no sample: {problem}")
            return False
        self.silent_since = None
        self._complaints.clear()
        self._changed.set()
        return True

    def _say_silent(self) -> None:
        if self.silent_since is None:
            self.silent_since = self.latest.at if self.latest else self._asked_at
        self._changed.set()

    async def _read_complaints(self, process: asyncio.subprocess.Process) -> None:
        while process.stderr is not None and (line := await process.stderr.readline()):
            if text := line.decode("utf-8", "replace").strip():
                self._complaints.append(text[:500])


async def _start(command: Sequence[str], environment: Mapping[str, str] | None) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=probe_environment(environment),
        limit=LONGEST_LINE,
        start_new_session=True,
    )


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill a probe that this process started, and wait for it shortly: one in the kernel cannot be waited for."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), _KILL_GRACE)
    transport = getattr(process, "_transport", None)  # the only way to let the pipes of an unkillable child go
    if transport is not None:
        transport.close()
