"""The server under test as a tree of processes: started in the launch's folder, known by identity, ended in steps."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ddconsole.core.clock import Clock
from ddconsole.engines.engine import ServerCommand, StopStep
from ddconsole.runner.belonging import members_of, record_processes
from ddconsole.runner.binding import Binding
from ddconsole.runner.identity import ProcessIdentity, descendants, describe, identify
from ddconsole.runner.log_tail import last_lines
from ddconsole.runner.run_directory import LaunchDirectory
from ddconsole.runner.shared_memory import SharedMemory

_PR_SET_CHILD_SUBREAPER = 36
_SHORTEST_GRACE = 2.0
"""Real seconds that every step gets, however fast the clock runs: a loaded machine needs them to exit at all."""
_ORPHANS = 0.5
"""Real seconds for children to follow a main process that is gone."""
_LAST_KILL = 30.0
"""Real seconds for SIGKILL to do its work before the launch counts as dirty."""


logger = logging.getLogger(__name__)


def become_subreaper() -> None:
    """Orphans of our server become our children: they are found and reaped here."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


_OOM_SCORE = 500
"""Of a server, children included: where memory runs out, the kernel ends it before runner and agent, which tell why."""


def _let_it_go_first(pid: int) -> None:
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/oom_score_adj").write_text(str(_OOM_SCORE))


class ServerProcess:
    """One server's process tree."""

    def __init__(self, launch: LaunchDirectory, clock: Clock) -> None:
        self._launch = launch
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None
        self._recorded: set[ProcessIdentity] = set()
        self._not_ours: set[int] = set()
        self._written = 0
        self._stopping = False
        self._shared = SharedMemory(launch.shared_memory)
        self.main: ProcessIdentity | None = None

    async def start(self, command: ServerCommand, cwd: Path | None, binding: Binding) -> ProcessIdentity:
        """Start the server, bound to its nodes, its output straight into `server.log`.

        Raises:
            OSError: the program cannot be executed.
        """
        self._launch.server_folder.mkdir(exist_ok=True)
        environment = {**os.environ, **command.env}
        with self._launch.server_log.open("ab", buffering=0) as log:
            self._process = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                cwd=cwd or self._launch.server_folder,
                env=environment,
                start_new_session=True,
                preexec_fn=binding.apply if binding.cpus else None,
            )
        _let_it_go_first(self._process.pid)
        self.main = identify(self._process.pid)
        if self.main is None:
            raise OSError(f"the server (pid {self._process.pid}) was gone at once")
        self._recorded.add(self.main)
        self.record()
        return self.main

    def log_tail(self, lines: int) -> list[str]:
        """The last lines of the server's log."""
        return last_lines(self._launch.server_log, lines)

    def exclude(self, pid: int) -> None:
        """A child of ours that is not the server's: the load process."""
        self._not_ours.add(pid)

    @property
    def exit_status(self) -> int | None:
        """Of the main process; negative for a signal; None while it lives."""
        return self._process.returncode if self._process else None

    async def wait(self) -> int:
        """Wait for the main process's end."""
        assert self._process is not None
        return await self._process.wait()

    def record(self) -> None:
        """Remember the descendants that live now: later they may have left the tree, and this runner may be gone."""
        if self.main is None:
            return
        before = len(self._recorded)
        self._recorded |= descendants(*(one.pid for one in self._recorded if one.alive()))
        if len(self._recorded) == before and before == self._written:
            return
        try:
            record_processes(self._launch, self._recorded)
            self._written = len(self._recorded)
        except OSError as problem:
            logger.warning("the server's processes are not written down: %s", problem)

    def record_shared_memory(self) -> None:
        """Remember which files in /dev/shm the server made. Costs a millisecond or so for each of its processes."""
        self._shared.look(one.pid for one in self.members())

    def members(self) -> set[ProcessIdentity]:
        """Living processes of this launch."""
        self._reap()
        self.record()
        found = {one for one in self._recorded if one.alive()}
        found |= {one for one in descendants(os.getpid()) if one.alive()}
        found |= members_of(self._launch)
        found = {one for one in found if one.pid not in self._not_ours}
        if self._stopping:
            self._shared.look(one.pid for one in found)
        return found

    async def stop(self, steps: Sequence[StopStep], on_step: Callable[[str, float], None]) -> tuple[str, ...]:
        """End the tree, step by step; `on_step` gets each step's name and the wall time of the next.

        Returns:
            What is left, for people; empty when nothing is.
        """
        self._stopping = True
        left = await stop_members(self.members, self.main, steps, on_step, self._clock)
        if not left:
            self._shared.clear()
        return left

    def _reap(self) -> None:
        """Collect zombies that were re-parented to us; the main process is the event loop's to collect."""
        for one in list(self._recorded):
            if self._process is not None and one.pid == self._process.pid:
                continue
            try:
                os.waitpid(one.pid, os.WNOHANG)
            except ChildProcessError:
                continue


async def stop_members(
    members: Callable[[], set[ProcessIdentity]],
    main: ProcessIdentity | None,
    steps: Sequence[StopStep],
    on_step: Callable[[str, float], None],
    clock: Clock,
) -> tuple[str, ...]:
    """End a set of processes by `steps`, then by SIGKILL to all of them; the answer is what is left."""
    for step in steps:
        living = members()
        if not living:
            return ()
        on_step(step.name, clock.now() + step.grace)
        targets: Iterable[ProcessIdentity] = living if step.whole_tree or main not in living else (main,)
        for one in targets:
            if one is not None:
                one.send(step.signal)
        if await _gone(members, max(clock.real_seconds(step.grace), _SHORTEST_GRACE), main):
            return ()
        if main is not None and not main.alive():
            break
    on_step("kill what is left (SIGKILL)", clock.now() + _LAST_KILL)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _LAST_KILL
    while living := members():
        if loop.time() > deadline:
            return tuple(sorted(describe(one) for one in living))
        for one in living:
            one.send(signal.SIGKILL)
        await _gone(members, 0.5)
    return ()


async def _gone(
    members: Callable[[], set[ProcessIdentity]], seconds: float, main: ProcessIdentity | None = None
) -> bool:
    """Wait up to `seconds` of real time until no member is left; looks more rarely as time passes.

    Once the main process is gone its orphans get half a second to follow: nobody is left to tell them to.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    pause = 0.02
    while True:
        if not members():
            return True
        if main is not None and not main.alive():
            deadline = min(deadline, loop.time() + _ORPHANS)
            main = None
        if loop.time() >= deadline:
            return False
        await asyncio.sleep(min(pause, max(deadline - loop.time(), 0.001)))
        pause = min(pause * 1.5, 0.5)
