"""The life of one launch: start, ready, cells, stop. One failure never ends more than it must."""

import asyncio
import errno
import json
import logging
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ddconsole.core.clock import Clock
from ddconsole.core.control import Control, Ending, WantedCell, control_from_json
from ddconsole.core.events import (
    AttemptDone,
    AttemptFailed,
    AttemptInterrupted,
    AttemptStarted,
    AttemptStopped,
    Event,
    LaunchDirty,
    LaunchFailed,
    LaunchGone,
    LaunchReady,
    LaunchStarting,
    LaunchStopping,
)
from ddconsole.core.states import STORAGE, Cause, Retry
from ddconsole.engines.engine import Engine, EngineArgumentError, Readiness, ServerStart
from ddconsole.engines.register import engine as engine_of
from ddconsole.load.prompts import WorkloadTexts
from ddconsole.runner.binding import binding_of
from ddconsole.runner.durable import StorageFailed, in_words
from ddconsole.runner.event_file import EventFile
from ddconsole.runner.gpu_lease import GpuLease
from ddconsole.runner.gpu_memory import GpuMemory, write_level
from ddconsole.runner.live_file import LiveFile
from ddconsole.runner.load_processes import LoadProcesses
from ddconsole.runner.log_tail import LogTail
from ddconsole.runner.measure import CellMeasurement, Interruption, Outcome, ResultNotWritten
from ddconsole.runner.order import LaunchOrder
from ddconsole.runner.run_directory import RunDirectory
from ddconsole.runner.server_api import HttpServerApi
from ddconsole.runner.server_process import ServerProcess
from ddconsole.runner.start import (
    LaunchFailure,
    LogWatch,
    death_cause,
    require_free_port,
    wait_until_ready,
)

_LOOK = 0.2
"""Real seconds between two looks at the control file."""
_RECORD = 2.0
"""Real seconds between two walks over /proc while measuring: one costs about 18 us for each process of the machine."""
_LEASE = 60.0
"""Real seconds without a sign of an agent after which the runner ends by itself."""
_TOLD_TO_END = "something told the runner to end (a signal), as a logout or a shutdown does"
_DISK_RETRY = 2.0
"""Real seconds between two tries to write on a full disk."""

logger = logging.getLogger(__name__)


class ControlWatch:
    """The wanted state as it is on disk now, and whether an agent is still there."""

    def __init__(self, path: Path, now: Callable[[], float]) -> None:
        self._path = path
        self._now = now
        self._seen: tuple[int, int] | None = None
        self._changed = now()
        self.control = Control(0, 0, (), Ending.WAIT)

    def look(self) -> Control:
        """Read the control file; an unreadable one changes nothing."""
        try:
            control = control_from_json(json.loads(self._path.read_bytes()))
        except (OSError, ValueError, KeyError):
            return self.control
        mark = (control.generation, control.lease)
        if mark != self._seen:
            self._seen = mark
            self._changed = self._now()
        self.control = control
        return control

    def lease_ended(self) -> bool:
        """Whether no agent gave a sign of life for a minute."""
        return self._now() - self._changed > _LEASE


class LaunchLife:
    """Runs one launch to its end."""

    def __init__(self, run: RunDirectory, order: LaunchOrder, texts: WorkloadTexts, clock: Clock) -> None:
        self._run = run
        self._order = order
        self._texts = texts
        self._clock = clock
        self._folder = run.launch(order.launch)
        self._events = EventFile(self._folder.events, clock)
        self._live = LiveFile(self._folder.live, clock)
        self._server = ServerProcess(self._folder, clock)
        self._load = self._new_load()
        self._lease = GpuLease(order.gpu_uuids, order.run, simulated=order.simulated)
        self._engine: Engine = engine_of(order.engine["kind"])
        loop = asyncio.get_running_loop()
        self._control = ControlWatch(self._folder.control, loop.time)
        self._told_to_end = False
        self._handled: set[tuple[str, int]] = set()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._end_now)

    def _new_load(self) -> LoadProcesses:
        return LoadProcesses(self._folder.runner_log, self._clock, self._server.exclude)

    def _end_now(self) -> None:
        self._told_to_end = True

    def _unwanted(self) -> bool:
        """Whether the launch as a whole should end at once, before any cell."""
        control = self._control.look()
        if self._told_to_end or control.ending is Ending.NOW or self._control.lease_ended():
            return True
        return control.ending is Ending.FINISH and not control.cells

    async def live(self) -> None:
        """From the order to nothing left: every way out stops the server."""
        memory = GpuMemory(self._order.deployment.placement.gpus)
        before = await memory.used()
        if before is not None:
            write_level(self._folder.gpu_memory, before)
        cause: Cause | None = None
        try:
            await self._start_and_measure()
        except LaunchFailure as failure:
            cause = failure.cause
        except EngineArgumentError as problem:
            cause = Cause("ENGINE-ARGUMENT", f"{problem.field}: {problem.text}", do=problem.do)
        finally:
            self._live.progress(None)
            left = await self._server.stop(self._engine.stop_steps, self._say_stopping)
            await self._load.close()
        if not left:
            left = await self._wait_for_memory(memory, before)
        if cause is not None:
            await self._write(_failed(self._order.launch, cause))
        elif not left:
            await self._write(LaunchGone(self._order.launch))
        if left:
            await self._write(LaunchDirty(self._order.launch, left))

    async def _wait_for_memory(self, memory: GpuMemory, before: dict[int, int] | None) -> tuple[str, ...]:
        if before is None:
            return ()
        self._say_stopping("waiting for GPU memory", self._clock.now() + memory.deadline)
        return await memory.wait_until_back(before)

    def _say_stopping(self, step: str, deadline: float) -> None:
        try:
            self._events.write(LaunchStopping(self._order.launch, step, deadline), durable=False)
        except OSError as problem:
            logger.warning("step %r is not written down: %s", step, problem)

    async def _start_and_measure(self) -> None:
        order = self._order
        if not await self._lease_gpus():
            return
        require_free_port(order.port)
        start = ServerStart(
            deployment=order.deployment,
            command=tuple(order.engine["command"]),
            model=order.model["path"],
            draft=order.model.get("draft"),
            served_name=order.served_name,
            port=order.port,
            known_flags=frozenset(order.known_flags) if order.known_flags is not None else None,
        )
        command = self._engine.server_command(start)
        await self._load.start()
        binding = await binding_of(order.deployment.placement, simulated=order.simulated)
        began = self._clock.monotonic()
        cwd = Path(order.engine["cwd"]) if order.engine.get("cwd") else None
        try:
            main = await self._server.start(command, cwd, binding)
        except (OSError, subprocess.SubprocessError) as problem:
            raise LaunchFailure(
                Cause("EXEC", f"cannot start {command.argv[0]}: {problem}", do="check engine.command and engine.cwd")
            ) from problem
        await self._write(LaunchStarting(order.launch, "process started", None, main.pid, order.port))
        watch = LogWatch(
            order.launch,
            LogTail(self._folder.server_log),
            self._engine.log_reader(),
            self._live,
            self._events.write,
            self._clock,
        )
        async with HttpServerApi(order.port, self._clock) as api:
            readiness = await wait_until_ready(
                self._server,
                self._engine,
                start,
                api,
                watch,
                float(order.protocol.get("ready_timeout", 1200.0)),
                self._unwanted,
                self._clock,
            )
            if readiness is None:
                return
            self._server.record_shared_memory()
            readiness = replace(readiness, build={**readiness.build, "binding": binding.in_words()})
            cells = CellMeasurement(self._run, order, self._engine, start, api, self._load, self._texts, self._clock)
            await self._first_words(cells, readiness, self._clock.monotonic() - began)
            await self._measure_cells(cells, readiness, watch)

    async def _lease_gpus(self) -> bool:
        """Wait until the GPUs are ours; False when the launch became unwanted meanwhile."""
        said = None
        while (waits_for := self._lease.take()) is not None:
            if self._unwanted():
                return False
            if waits_for != said:
                said = waits_for
                await self._write(LaunchStarting(self._order.launch, f"waiting: {waits_for}"))
            await asyncio.sleep(_LOOK * 5)
        return True

    async def _first_words(self, cells: CellMeasurement, readiness: Readiness, start_seconds: float) -> None:
        """The canary: a short generation before anything is measured."""
        canary: dict[str, object] = {}
        if self._order.protocol.get("canary", True):
            await self._have_load(cells)
            told, cause = await cells.canary()
            if cause is not None and not self._load.alive:
                await self._have_load(cells)
                told, cause = await cells.canary()
            if cause is not None:
                raise LaunchFailure(cause)
            canary = dict(told)
        await self._write(LaunchReady(self._order.launch, readiness.effective, readiness.build, start_seconds, canary))

    async def _measure_cells(self, cells: CellMeasurement, readiness: Readiness, watch: LogWatch) -> None:
        while True:
            control = self._control.look()
            if self._told_to_end or control.ending is Ending.NOW or self._control.lease_ended():
                return
            wanted = next((one for one in control.cells if self._key(one) not in self._handled), None)
            if wanted is None:
                if control.ending is Ending.FINISH:
                    return
                if self._server.exit_status is not None:
                    raise LaunchFailure(await death_cause(self._server, self._engine, watch, phase="runtime"))
                watch.look(starting=False)
                await asyncio.sleep(_LOOK)
                continue
            await self._attempt(cells, wanted, readiness, watch)

    @staticmethod
    def _key(wanted: WantedCell) -> tuple[str, int]:
        return wanted.cell.id, wanted.attempt

    async def _attempt(self, cells: CellMeasurement, wanted: WantedCell, readiness: Readiness, watch: LogWatch) -> None:
        """Claim the cell, look once more whether it is wanted, measure it, and write down what came of it."""
        self._handled.add(self._key(wanted))
        cell, attempt, launch = wanted.cell.id, wanted.attempt, self._order.launch
        await self._write(AttemptStarted(cell, attempt, launch, wanted.round, wanted.cell.revision))
        if not self._control.look().wants(cell, attempt):
            await self._write(AttemptStopped(cell, attempt, launch, "withdrawn before it began"))
            return
        death: list[Cause] = []
        interruption = Interruption(lambda: death[0])
        watching = asyncio.create_task(self._watch(wanted, interruption, watch, death))
        try:
            outcome = await cells.measure(wanted, readiness, self._live.progress, interruption)
        except ResultNotWritten as failure:
            outcome = _not_written(failure.problem)
        finally:
            watching.cancel()
        self._live.progress(None)
        await self._write(self._end_of_attempt(wanted, outcome))
        if interruption.died:
            raise LaunchFailure(interruption.cause())
        if outcome.cause is not None and (outcome.server_suspect or self._server.exit_status is not None):
            raise LaunchFailure(outcome.cause)
        await self._have_load(cells)

    async def _have_load(self, cells: CellMeasurement) -> None:
        """Start other load processes where something killed one."""
        if self._load.alive:
            return
        await self._load.close()
        self._load = self._new_load()
        await self._load.start()
        cells.use_load(self._load)

    async def _watch(self, wanted: WantedCell, interruption: Interruption, watch: LogWatch, death: list[Cause]) -> None:
        """While a cell is measured: is it still wanted, does the server live, what does its log say."""
        loop = asyncio.get_running_loop()
        record_at = loop.time()
        while not interruption.any.is_set():
            if self._told_to_end or not self._control.look().wants(*self._key(wanted)):
                interruption.stop()
                return
            watch.look(starting=False)
            if self._server.exit_status is not None:
                death.append(await death_cause(self._server, self._engine, watch, phase="runtime"))
                interruption.server_died()
                return
            fallen = watch.fallen()
            if fallen is not None:
                death.append(fallen)
                interruption.server_died()
                return
            if loop.time() >= record_at:
                self._server.record()
                record_at = loop.time() + _RECORD
            await asyncio.sleep(_LOOK)

    def _end_of_attempt(self, wanted: WantedCell, outcome: Outcome) -> Event:
        cell, attempt, launch = wanted.cell.id, wanted.attempt, self._order.launch
        if outcome.kind == "done":
            return AttemptDone(
                cell, attempt, launch, outcome.sha256, outcome.fingerprint, outcome.figures, outcome.flags
            )
        if outcome.cause is None and self._told_to_end:
            return AttemptInterrupted(cell, attempt, launch, _TOLD_TO_END)
        if outcome.cause is None:
            by = self._control.control.stopped_by.get(cell, "operator")
            return AttemptStopped(cell, attempt, launch, by, outcome.sha256, outcome.figures)
        cause = outcome.cause
        return AttemptFailed(
            cell,
            attempt,
            launch,
            cause.id,
            cause.text,
            cause.evidence,
            cause.do,
            cause.retry,
            outcome.sha256,
            outcome.figures,
        )

    async def _write(self, event: Event) -> None:
        """Write an event down. On a full disk wait until there is space: what was measured stays in memory."""
        while True:
            try:
                self._events.write(event)
            except OSError as problem:
                final = isinstance(problem, StorageFailed) or self._told_to_end
                if final or problem.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                logger.warning("no space for an event, trying again: %s", problem)
                await asyncio.sleep(_DISK_RETRY)
            else:
                return


def _not_written(problem: OSError) -> Outcome:
    cause = Cause(
        STORAGE,
        f"the result could not be written: {in_words(problem)}",
        do="put it right, then resume: the cell is measured again",
        retry=Retry.AS_IS,
    )
    return Outcome("failed", {}, cause=cause)


def _failed(launch: int, cause: Cause) -> LaunchFailed:
    return LaunchFailed(launch, cause.id, cause.text, cause.evidence, cause.do, cause.retry)
