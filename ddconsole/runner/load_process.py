"""The runner's side of a load process: started once for a launch, one cell at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

from ddconsole.core.own_process import own_process
from ddconsole.core.records import CellProgress, RequestRecord
from ddconsole.load.codec import Cancel, LineError, Message, Order, message_of_line, order_line
from ddconsole.load.task import LoadReport, LoadTask
from ddconsole.load.tickets import Tickets

_LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of one line from the load process: a record holds the whole output text and all chunk gaps."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a cell's load came to. Without a report the process died: `died` says how."""

    records: tuple[RequestRecord, ...]
    report: LoadReport | None
    died: str = ""


class LoadProcess:
    """`python -m ddconsole.load`, its standard error in a file.

    Args:
        log: that file.
        tickets: numbers of requests that it shares with others.
    """

    def __init__(self, log: Path, tickets: Tickets) -> None:
        self._log = log
        self._tickets = tickets
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> int:
        """Start it; its pid."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *own_process("ddconsole.load"),
                str(self._tickets.descriptor),
                pass_fds=(self._tickets.descriptor,),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                limit=_LONGEST_LINE,
            )
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it can take a task."""
        return self._process is not None and self._process.returncode is None

    async def measure(self, task: LoadTask, on_progress: Callable[[CellProgress], None]) -> LoadResult:
        """Run one cell's load to its end. Cancelling this coroutine cancels nothing there: use `cancel`."""
        records: list[RequestRecord] = []
        try:
            await self._send(task)
            async for message in self._messages():
                match message:
                    case RequestRecord():
                        records.append(message)
                    case CellProgress():
                        on_progress(message)
                    case LoadReport():
                        return LoadResult(tuple(records), message)
                    case _:
                        continue
        except (ConnectionError, LineError) as problem:
            return LoadResult(tuple(records), None, f"its stream broke: {problem}")
        status = await self._process.wait() if self._process else None
        return LoadResult(tuple(records), None, f"it ended with status {status}")

    async def cancel(self, cell: str, attempt: int) -> None:
        """End the running requests of this attempt; `measure` then returns with what there is."""
        await self._send(Cancel(cell, attempt))

    async def close(self) -> None:
        """End the process: it goes when its input closes, and is killed when it does not."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), 5)
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _send(self, order: Order) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(order_line(order))
        await self._process.stdin.drain()

    async def _messages(self) -> AsyncIterator[Message]:
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield message_of_line(line)
