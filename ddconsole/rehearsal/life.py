"""How the simulated server lives and dies: what SGLang was seen to do on signals and when a child is lost.

The contract is the table of stops and crashes that was observed on SGLang 0.5.16. Exit statuses follow it: SIGTERM and
every crash end in SIGKILL by its own hand, SIGINT to the main process alone ends with 0.
"""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from ddconsole.core.clock import Clock
from ddconsole.rehearsal.api import Api
from ddconsole.rehearsal.faults import FaultName
from ddconsole.rehearsal.processes import Child, is_stopped, kill_all
from ddconsole.rehearsal.scheduler import DIE, RANK_LOST
from ddconsole.rehearsal.service import Service
from ddconsole.rehearsal.timing import real_wait

DRAIN_FIRST_LOOK = 1.0
DRAIN_INTERVAL = 5.0
DRAIN_KILL = 2.5
"""Simulated seconds: from SIGTERM to the first look at the remaining requests, between looks, from the last look to
the end."""
NOTICE_SECONDS = 0.4
"""Until the main process sees that a child is dead."""
SETTLE_SECONDS = 5.0
COREDUMP_SECONDS = 60.0
SHUTDOWN_SECONDS = 1.5
_LOOK_INTERVAL = 0.05
"""Real seconds between looks for frozen children."""


def kill_tree(children: Sequence[Child], log_line: Callable[[str], None]) -> None:
    """SIGKILL to all children and then to this process."""
    pid = os.getpid()
    log_line(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
    kill_all(child.pid for child in children)
    os.kill(pid, signal.SIGKILL)


class Life:
    """The serving server's reactions.

    Args:
        service: the engine.
        api: its HTTP side.
        children: its processes, schedulers first.
        clock: the rehearsal's.
    """

    def __init__(self, service: Service, api: Api, children: Sequence[Child], clock: Clock) -> None:
        self._service = service
        self._api = api
        self._children = list(children)
        self._clock = clock
        self._log = service.log
        self._crashing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.close: Callable[[], Awaitable[None]] | None = None
        """Stops listening; set once the port is open."""
        api.kill = self.kill
        self.done = asyncio.Event()
        """Set when the process may end with status 0."""

    @property
    def _for_ever(self) -> bool:
        fault = self._service.fault
        return fault is not None and fault.fault is FaultName.DRAIN_FOR_EVER

    def watch(self) -> None:
        """Hear signals and the end of children from now on."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._on_terminate)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        loop.add_signal_handler(signal.SIGQUIT, self._on_child_failed)
        for child in self._children:
            loop.add_reader(child.link, self._on_gone, child)
        self._run(self._look_for_frozen())

    def kill(self, which: str) -> None:
        """A fault: let one child die by its own hand, as if killed from outside."""
        child = next(child for child in self._children if child.name.startswith(which))
        if which == "scheduler":
            child.link.send(DIE)
        else:
            kill_all([child.pid])

    def end_children(self) -> None:
        """The last act of an ordinary end."""
        self._crashing = True  # what follows is no crash of a child
        kill_all(child.pid for child in self._children)

    # --- signals -----------------------------------------------------------------------------------------------

    def _run(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_terminate(self) -> None:
        if self._crashing or self._api.draining:
            return
        self._api.draining = True
        if self._service.health_failed:
            self._log.line("Signal SIGTERM received while health check failed. Force exiting.")
            self._run(self._die_after(SETTLE_SECONDS + COREDUMP_SECONDS))
            return
        self._log.line("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self._run(self._drain())

    async def _drain(self) -> None:
        """Wait without limit for running requests, looking every 5 s; then end by SIGKILL."""
        await self._clock.sleep(DRAIN_FIRST_LOOK)
        while True:
            left = list(self._service.sequences) or (["simulated-for-ever"] if self._for_ever else [])
            self._log.line(
                f"Gracefully exiting... Remaining number of requests {len(left)}. "
                f"Remaining requests remaining_rids={left}."
            )
            if not left:
                break
            await self._clock.sleep(DRAIN_INTERVAL)
        await self._die_after(DRAIN_KILL)

    def _on_interrupt(self) -> None:
        if not self._crashing and self.close is not None:
            close, self.close = self.close, None
            self._run(self._shut_down(close))

    async def _shut_down(self, close: Callable[[], Awaitable[None]]) -> None:
        """As uvicorn: no new connections, running requests to their end, then exit status 0."""
        self._log.line("INFO:     Shutting down")
        await close()
        if self._for_ever or not self._api.idle.is_set():
            self._log.line("INFO:     Waiting for connections to close. (CTRL+C to force quit)")
        if self._for_ever:
            return
        await self._api.idle.wait()
        await self._clock.sleep(SHUTDOWN_SECONDS)
        if self._crashing:
            return
        pid = os.getpid()
        self._log.line("INFO:     Waiting for application shutdown.")
        self._log.line("INFO:     Application shutdown complete.")
        self._log.line(f"INFO:     Finished server process [{pid}]")
        self._log.line(f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}")
        self.done.set()

    def _on_child_failed(self) -> None:
        self._log.line("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self._begin_crash()

    # --- lost children -----------------------------------------------------------------------------------------

    def _on_gone(self, child: Child) -> None:
        """Its end of the socket is closed: nothing moves from now on, though it is noticed a little later."""
        asyncio.get_running_loop().remove_reader(child.link)
        if child.name.startswith("scheduler"):
            self._service.batch.freeze()
        elif child.name == "detokenizer":
            self._service.batch.silent = True
        else:
            return
        if not self._crashing:
            self._run(self._notice(child))

    async def _notice(self, child: Child) -> None:
        await self._clock.sleep(NOTICE_SECONDS)
        if self._crashing:
            return
        others = [one for one in self._schedulers() if one is not child]
        if child.name.startswith("scheduler") and others:
            with suppress(OSError):
                others[0].link.send(RANK_LOST)  # its traceback and SIGQUIT are what the main process hears of
            return
        self._log.line(
            f"Subprocess {child.name} (pid={child.pid}) crashed with exit code {_exit_code(child)}. "
            "Triggering SIGQUIT for cleanup..."
        )
        self._on_child_failed()

    def _begin_crash(self) -> None:
        """The handler sleeps in the main thread: from here on nothing answers."""
        if self._crashing:
            return
        self._crashing = True
        self._api.hang = True
        self._service.batch.silent = True
        self._run(self._crash())

    async def _crash(self) -> None:
        self._log.line(f"Sleeping {SETTLE_SECONDS:.0f} seconds before crash diagnostics to let GPU activity settle.")
        schedulers = self._schedulers()
        if len(schedulers) > 1:  # the other ranks lose their peer and end
            kill_all(child.pid for child in schedulers)
        await self._clock.sleep(SETTLE_SECONDS)
        if any(_exit_code(child) is None for child in schedulers):
            self._log.line(f"Waiting {COREDUMP_SECONDS} seconds for CUDA coredumps before exiting.")
            await self._clock.sleep(COREDUMP_SECONDS)
        else:
            self._log.line("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        kill_tree(self._children, self._log.line)

    async def _die_after(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        kill_tree(self._children, self._log.line)

    def _schedulers(self) -> list[Child]:
        return [child for child in self._children if child.name.startswith("scheduler")]

    async def _look_for_frozen(self) -> None:
        """A frozen rank stops the batch; among several ranks, the watchdog of another one ends the server."""
        watchdog = float(self._service.arguments.options.watchdog_timeout)
        schedulers = self._schedulers()
        since: float | None = None
        while not self._crashing:
            await asyncio.sleep(_LOOK_INTERVAL)
            if any(is_stopped(child.pid) for child in schedulers):
                if since is None:
                    since = time.monotonic()
                    self._service.batch.freeze()
                elif len(schedulers) > 1 and time.monotonic() - since > real_wait(self._clock, watchdog):
                    self._log.line(f"Scheduler watchdog timeout (self.watchdog_timeout={watchdog}, self.soft=False)")
                    self._on_child_failed()
            elif since is not None:
                since = None
                self._service.batch.thaw()


def _exit_code(child: Child) -> int | None:
    """As `multiprocessing` tells it: minus the signal's number; None while it lives."""
    try:
        pid, status = os.waitpid(child.pid, os.WNOHANG)
    except ChildProcessError:
        return child.exit_code
    if pid == 0:
        return None
    child.exit_code = os.waitstatus_to_exitcode(status)
    return child.exit_code
