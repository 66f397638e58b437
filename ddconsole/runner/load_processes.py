"""The load processes of one launch: one, and more for a cell that would take one to its limit."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from ddconsole.core.clock import Clock
from ddconsole.core.records import CellProgress
from ddconsole.load.sharing import (
    in_order,
    processes_for,
    progress_of_all,
    share_of_a_stream,
    shares_of,
    together,
)
from ddconsole.load.task import LoadReport, LoadTask
from ddconsole.load.tickets import Tickets
from ddconsole.load.workload import planned_requests
from ddconsole.runner.load_process import LoadProcess, LoadResult

_BEGIN_AFTER = 0.1
"""Seconds until several processes begin together: each has its task by then."""


class LoadProcesses:
    """Measures cells, with as many processes as each one needs.

    Args:
        log: gets their standard error.
        clock: of the records.
        started: hears the pid of every process.
        cores: that they may run on; None for those of this process.
    """

    def __init__(self, log: Path, clock: Clock, started: Callable[[int], None], cores: int | None = None) -> None:
        self._log = log
        self._clock = clock
        self._started = started
        self._cores = len(os.sched_getaffinity(0)) if cores is None else cores
        self._tickets = Tickets.new()
        self._processes: list[LoadProcess] = []
        self._share_of_a_stream: float | None = None
        self._cancelled: set[tuple[str, int]] = set()

    async def start(self) -> None:
        """Start the first one: it is there before it is needed."""
        await self._have(1)

    @property
    def alive(self) -> bool:
        """Whether they can take a task."""
        return bool(self._processes) and all(one.alive for one in self._processes)

    async def measure(self, task: LoadTask, on_progress: Callable[[CellProgress], None]) -> LoadResult:
        """Run one cell's load to its end. Cancelling this coroutine cancels nothing there: use `cancel`."""
        self._cancelled.discard((task.cell, task.attempt))
        number = processes_for(task.point, self._share_of_a_stream, self._cores)
        await self._have(number)
        if number == 1:
            result = await self._measure(0, task, on_progress)
        else:
            result = await self._shared(task, number, on_progress)
        if result.report is not None:
            self._share_of_a_stream = share_of_a_stream(result.report, task.point) or self._share_of_a_stream
        return result

    async def cancel(self, cell: str, attempt: int) -> None:
        """End the running requests of this attempt; `measure` then returns with what there is."""
        self._cancelled.add((cell, attempt))
        await asyncio.gather(*(one.cancel(cell, attempt) for one in self._processes if one.alive))

    async def close(self) -> None:
        """End all of them."""
        await asyncio.gather(*(one.close() for one in self._processes))
        self._tickets.close()

    async def _have(self, number: int) -> None:
        while len(self._processes) < number:
            process = LoadProcess(self._log, self._tickets)
            self._started(await process.start())
            self._processes.append(process)

    async def _measure(self, index: int, task: LoadTask, on_progress: Callable[[CellProgress], None]) -> LoadResult:
        if (task.cell, task.attempt) in self._cancelled:  # while a process was started
            return LoadResult((), LoadReport(0.0, 0.0, 0.0, True, 0, 0, ("cancelled before it began",)))
        return await self._processes[index].measure(task, on_progress)

    async def _shared(self, task: LoadTask, number: int, on_progress: Callable[[CellProgress], None]) -> LoadResult:
        planned = planned_requests(task)
        self._tickets.put(planned)
        told: dict[int, CellProgress] = {}

        def hear(index: int, progress: CellProgress) -> None:
            told[index] = progress
            if index == 0:
                on_progress(progress_of_all(list(told.values()), planned))

        async def one(index: int, share: LoadTask) -> LoadResult:
            result = await self._measure(index, share, lambda progress: hear(index, progress))
            if result.report is None:
                await self.cancel(task.cell, task.attempt)  # a cell without one of its processes is not what was asked
            return result

        shares = shares_of(task, number, self._clock.monotonic() + _BEGIN_AFTER)
        results = await asyncio.gather(*(one(index, share) for index, share in enumerate(shares)))
        records = in_order(record for result in results for record in result.records)
        reports = [result.report for result in results if result.report is not None]
        if len(reports) < number:
            return LoadResult(records, None, next(result.died for result in results if result.report is None))
        return LoadResult(records, together(reports, records, planned))
