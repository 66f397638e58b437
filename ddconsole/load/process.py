"""The load process: tasks come in on stdin, records go out on stdout, one JSON object a line (`codec.py`).

One process serves the cells of one launch, one at a time, or a share of each. It ends when stdin closes, and dies with
its parent.
"""

import asyncio
import ctypes
import logging
import os
import queue
import signal
import sys
import threading
from collections import deque
from typing import BinaryIO

from ddconsole.core.clock import Clock, clock_from_environment
from ddconsole.load.arrival import stamp_arrivals
from ddconsole.load.client import HttpStreamingClient
from ddconsole.load.codec import Cancel, Hello, LineError, Message, Quit, message_line, order_of_line
from ddconsole.load.measurement import Measurement
from ddconsole.load.task import LoadReport, LoadTask
from ddconsole.load.tickets import Tickets
from ddconsole.load.workload import TaskRefusedError, measure, start_measurement

PROGRESS_SECONDS = 0.25
_PR_SET_PDEATHSIG = 1
_log = logging.getLogger(__name__)


class LineWriter:
    """Writes messages from a thread of its own: a reader that is slow must not stop the measuring loop."""

    def __init__(self, output: BinaryIO) -> None:
        self._output = output
        self._messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._thread.start()

    def put(self, message: Message) -> None:
        """Queue one message. Never blocks."""
        self._messages.put(message)

    def close(self, timeout: float) -> None:
        """Wait at most `timeout` seconds until everything queued is written."""
        self._messages.put(None)
        self._thread.join(timeout)

    def _write(self) -> None:
        while (message := self._messages.get()) is not None:
            try:
                self._output.write(message_line(message))
                self._output.flush()
            except OSError:
                return  # nobody reads any more; stdin closes too, and that ends the process


class LoadProcess:
    """Takes orders and measures cells, one at a time.

    Args:
        clock: stamps the records.
        writer: takes what is said.
        tickets: numbers of the requests of closed loops that it shares with other processes.
    """

    def __init__(self, clock: Clock, writer: LineWriter, tickets: Tickets | None = None) -> None:
        self._tickets = tickets
        self._clock = clock
        self._writer = writer
        self._waiting: deque[LoadTask] = deque()
        self._current: tuple[LoadTask, Measurement] | None = None
        self._work = asyncio.Event()
        self._quit = False

    async def serve(self, orders: asyncio.StreamReader) -> None:
        """Until `orders` ends or says quit."""
        self._writer.put(Hello(os.getpid()))
        measuring = asyncio.create_task(self._measure_all())
        await self._take_orders(orders)
        self._quit = True
        self._waiting.clear()
        if self._current is not None:
            self._current[1].cancel()
        self._work.set()
        await measuring

    async def _take_orders(self, orders: asyncio.StreamReader) -> None:
        pieces: list[bytes] = []
        while received := await orders.read(1 << 20):
            *lines, rest = received.split(b"\n")
            for line in lines:
                pieces.append(line)
                whole = b"".join(pieces)
                pieces.clear()
                if whole.strip() and not self._take(whole):
                    return
            pieces.append(rest)

    def _take(self, line: bytes) -> bool:
        """Whether to go on."""
        try:
            order = order_of_line(line)
        except LineError as problem:
            _log.warning("order refused: %s", problem)
            self._writer.put(_nothing_measured(f"order refused: {problem}", cancelled=False))
            return True
        match order:
            case LoadTask():
                self._waiting.append(order)
                self._work.set()
            case Cancel():
                self._cancel(order)
            case Quit():
                return False
        return True

    def _cancel(self, order: Cancel) -> None:
        wanted = (order.cell, order.attempt)
        if self._current is not None and (self._current[0].cell, self._current[0].attempt) == wanted:
            self._current[1].cancel()
            return
        for task in self._waiting:
            if (task.cell, task.attempt) == wanted:
                self._waiting.remove(task)
                self._writer.put(_nothing_measured("cancelled before it began", cancelled=True))
                return
        _log.info("nothing to cancel: %s attempt %d is not here", order.cell, order.attempt)

    async def _measure_all(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            while self._waiting:
                self._writer.put(await self._measure(self._waiting.popleft()))
            if self._quit:
                return

    async def _measure(self, task: LoadTask) -> LoadReport:
        try:
            client = HttpStreamingClient(task.base_url, self._clock)
            measurement = start_measurement(task, client, self._clock, self._writer.put)
            self._current = (task, measurement)
            telling = asyncio.create_task(self._tell_progress(measurement))
            try:
                return await measure(task, measurement, self._tickets)
            finally:
                telling.cancel()
                self._writer.put(measurement.progress())
                self._current = None
        except TaskRefusedError as problem:
            return _nothing_measured(f"task refused: {problem}", cancelled=False)
        except Exception as problem:  # noqa: BLE001  # the runner must hear of a defect here instead of waiting for ever
            _log.exception("the load generator failed on %s attempt %d", task.cell, task.attempt)
            return _nothing_measured(f"the load generator failed: {type(problem).__name__} {problem}", cancelled=False)

    async def _tell_progress(self, measurement: Measurement) -> None:
        while True:
            self._writer.put(measurement.progress())
            await asyncio.sleep(PROGRESS_SECONDS)


def _nothing_measured(why: str, *, cancelled: bool) -> LoadReport:
    return LoadReport(0.0, 0.0, 0.0, cancelled, 0, 0, (why,))


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent dies, and leave at once if it already has."""
    parent = os.getppid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        _log.warning("prctl(PR_SET_PDEATHSIG): %s", os.strerror(ctypes.get_errno()))
    if os.getppid() != parent:
        os._exit(1)


def private_output() -> BinaryIO:
    """The process's stdout for messages alone: whatever else prints goes to stderr from here on."""
    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return output


async def _run(output: BinaryIO, tickets: Tickets | None) -> None:
    stamp_arrivals()
    loop = asyncio.get_running_loop()
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin.buffer)
    writer = LineWriter(output)
    try:
        await LoadProcess(clock_from_environment(), writer, tickets).serve(orders)
    finally:
        writer.close(timeout=5.0)


def main() -> None:
    """`python -m ddconsole.load [TICKETS]`: the descriptor of a pile that was inherited."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C is for the console; the runner says when to stop
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(asctime)s load %(levelname)s %(message)s")
    tickets = Tickets(int(sys.argv[1])) if len(sys.argv) > 1 else None
    asyncio.run(_run(private_output(), tickets))
