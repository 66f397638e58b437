"""What travels beside the journal and may be dropped: host samples, progress, decode figures."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable
from dataclasses import replace

from ddconsole.core.clock import Clock
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.records import CellProgress
from ddconsole.core.wire import DecodeFigures
from ddconsole.probe.monitor import HostMonitor
from ddconsole.runner.durable import append_line
from ddconsole.runner.run_directory import LaunchDirectory, RunDirectory

_HOST_INTERVAL = 2.0
"""Seconds between two samples of the machine."""
_LARGEST_FILE = 512 * 1024 * 1024
"""Bytes after which telemetry of a run is not kept any more."""

logger = logging.getLogger(__name__)


class Telemetry:
    """The newest values, and the file that a run's host samples go into."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._monitor: HostMonitor | None = None
        self._task: asyncio.Task[None] | None = None
        self._run: RunDirectory | None = None
        self._live: LaunchDirectory | None = None
        self._active: Callable[[], bool] = lambda: False
        self._measuring: Callable[[], bool] = lambda: False
        self._seen = 0
        self._kept_pairs = False
        self.host: HostState | None = None
        self.progress: CellProgress | None = None
        self.decode: DecodeFigures | None = None

    def keep_for(self, run: RunDirectory, active: Callable[[], bool], measuring: Callable[[], bool]) -> None:
        """Keep host samples in this run's `telemetry.jsonl` from now on, for as long as it is active.

        Args:
            run: where they are kept.
            active: whether the run still goes on.
            measuring: whether a cell is being measured: then the probe leaves out what is slow.
        """
        self._run = run
        self._active = active
        self._measuring = measuring
        self._kept_pairs = False
        self.watch()

    def watch(self) -> None:
        """Sample the machine from now on."""
        if self._task is None:
            self._task = asyncio.create_task(self._sample(), name="telemetry")

    async def stop(self) -> None:
        """End the probe."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def problem(self) -> str | None:
        """Why there is no fresh sample, or None."""
        return self._monitor.problem if self._monitor else None

    async def _sample(self) -> None:
        async with HostMonitor(_HOST_INTERVAL, clock=self._clock) as monitor:
            self._monitor = monitor
            async for state in monitor.samples():
                monitor.be_quiet(quiet=self._measuring())
                if state is not None:
                    self.host = state
                    self._keep(state)

    def _keep(self, state: HostState) -> None:
        """One line a sample. Pairs do not change, and are most of its bytes: they stand in the first line only."""
        if self._run is None or not self._active():
            return
        if self._kept_pairs:
            state = replace(state, pairs=())
        self._kept_pairs = True
        path = self._run.path / "telemetry.jsonl"
        # Telemetry is the first thing that a full disk goes without.
        with contextlib.suppress(OSError):
            line = json.dumps(host_state_to_json(state), separators=(",", ":")).encode() + b"\n"
            append_line(path, line, largest=_LARGEST_FILE)

    def look(self, launch: LaunchDirectory | None) -> None:
        """Read the live file of a launch, if it was replaced since the last look."""
        if launch is None:
            self.progress = None
            return
        try:
            changed = launch.live.stat().st_mtime_ns
            if launch == self._live and changed == self._seen:
                return
            data = json.loads(launch.live.read_bytes())
        except (OSError, ValueError):
            return
        self._live, self._seen = launch, changed
        progress, decode = data.get("progress"), data.get("decode")
        self.progress = CellProgress(**progress) if progress else None
        self.decode = DecodeFigures(**decode) if decode else None
