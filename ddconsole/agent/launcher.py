"""Starting runners and finding them again. A launcher is small: start, is it alive, what became of it."""

import asyncio
import contextlib
import json
import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, Protocol

from ddconsole.agent.placement import process_properties
from ddconsole.agent.systemd import Manager, ManagerProblem, host_managers
from ddconsole.core.own_process import own_process
from ddconsole.core.survival import ManagerKind, choose
from ddconsole.runner.belonging import unit_of
from ddconsole.runner.durable import write_json
from ddconsole.runner.handed_environment import hand_over
from ddconsole.runner.identity import ProcessIdentity, identify, start_time
from ddconsole.runner.run_directory import LaunchDirectory, RunDirectory

_STOP_TIME = 120
"""Seconds that a runner gets to stop its server when somebody stops its unit."""

logger = logging.getLogger(__name__)


class Launcher(Protocol):
    """How a runner is started on this host."""

    async def start(self, run: RunDirectory, launch: int) -> None:
        """Start the runner of a launch whose order and control are written.

        Raises:
            OSError: it could not be started.
        """
        ...

    def alive(self, launch: LaunchDirectory) -> bool:
        """Whether the runner of a launch lives."""
        ...

    async def bury(self, launch: LaunchDirectory) -> str:
        """End and forget what the launcher holds of a launch whose runner is gone; what it knows of the end."""
        ...


class ProcessLauncher:
    """A runner as a process in a session of its own: it outlives the agent, which finds it by identity."""

    async def start(self, run: RunDirectory, launch: int) -> None:
        """Start `python -m ddconsole.runner`, its output in `runner.log`."""
        self._start(run, launch)

    @staticmethod
    def _start(run: RunDirectory, launch: int) -> None:
        folder = run.launch(launch)
        argv = own_process("ddconsole.runner", str(run.path), str(launch))
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        log = (os.POSIX_SPAWN_OPEN, 1, str(folder.runner_log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        both = (os.POSIX_SPAWN_DUP2, 1, 2)
        # Not subprocess.Popen: nobody waits for this child, it may well live longer than we do.
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=(nothing, log, both), setsid=True)
        _write_down(folder, pid, {})
        threading.Thread(target=_reap, args=(pid,), name=f"runner {pid}", daemon=True).start()

    def alive(self, launch: LaunchDirectory) -> bool:
        """Whether the process that was written down lives; an ended child of ours is reaped."""
        return _is_alive(launch)

    async def bury(self, launch: LaunchDirectory) -> str:  # noqa: ARG002  # the protocol's
        """Nobody holds it but itself."""
        return ""


class SystemdLauncher:
    """A runner in a transient unit of its own: whatever its server starts stays in the unit's cgroup and ends with it.

    Never a scope: those do not end with their processes' parent, and some managers have none.

    Args:
        otherwise: starts the runner where no manager of systemd works for this login; without it that is an error.
    """

    def __init__(self, otherwise: Launcher | None = None) -> None:
        self._otherwise = otherwise

    async def start(self, run: RunDirectory, launch: int) -> None:
        """Start the runner in the manager that the agent itself would be started in."""
        try:
            await asyncio.to_thread(self._start, run, launch)
        except ManagerProblem as problem:
            run.launch(launch).handed_environment.unlink(missing_ok=True)
            if self._otherwise is None:
                raise OSError(f"{problem}; say protocol.launcher: process") from problem
            logger.info("launch %s is a plain process: %s", launch, problem)
            await self._otherwise.start(run, launch)

    def _start(self, run: RunDirectory, launch: int) -> None:
        choice = choose(host_managers())
        if not choice.manager:
            raise ManagerProblem(choice.reason)
        folder, manager = run.launch(launch), Manager(choice.manager)
        unit = unit_of(folder)
        properties = {
            # The runner is asked and stops its server; then, or when it is gone, all that is left is killed at once.
            "KillMode": "mixed",
            "TimeoutStopSec": str(_STOP_TIME),
            "WorkingDirectory": str(run.path),
            "StandardOutput": f"append:{folder.runner_log}",
            "StandardError": f"append:{folder.runner_log}",
            **process_properties(),
        }
        hand_over(folder.handed_environment)
        argv = own_process("ddconsole.runner", str(run.path), str(launch))
        dropped = manager.start(unit, argv, properties, collect=False)
        if dropped:
            logger.warning("%s was started without %s: this systemd does not know them", unit, ", ".join(dropped))
        pid = int(manager.show(unit, "MainPID").get("MainPID") or 0)
        _write_down(folder, pid, {"manager": choice.manager, "unit": unit})

    def alive(self, launch: LaunchDirectory) -> bool:
        """Whether the process that was written down lives."""
        return _is_alive(launch)

    async def bury(self, launch: LaunchDirectory) -> str:
        """Kill what is left in the unit's cgroup, read how the runner ended, then let the unit be forgotten."""
        launch.handed_environment.unlink(missing_ok=True)
        kind = _manager_of(launch)
        return await asyncio.to_thread(_bury, Manager(kind), unit_of(launch)) if kind else ""


def launcher_of(wanted: str) -> Launcher:
    """The launcher that a plan's `protocol.launcher` names."""
    match wanted:
        case "process":
            return ProcessLauncher()
        case "systemd":
            return SystemdLauncher()
        case _:
            return SystemdLauncher(otherwise=ProcessLauncher())


def _bury(manager: Manager, unit: str) -> str:
    told = ""
    with contextlib.suppress(ManagerProblem):
        seen = manager.show(unit, "LoadState", "ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
        if seen.get("LoadState") == "loaded":
            told = f"{unit}: {seen.get('Result')}, exit {seen.get('ExecMainCode')}/{seen.get('ExecMainStatus')}"
    # The name is the launch's own, so nothing else can be in there. A unit that is gone is refused, which is as good.
    for order in (("kill", "--kill-who=all", "--signal=KILL", unit), ("stop", unit), ("reset-failed", unit)):
        with contextlib.suppress(ManagerProblem):
            manager.ask("--quiet", *order)
    return told


def _reap(pid: int) -> None:
    """Wait for a runner of ours, however long it lives: nobody asks for it any more once its launch is gone."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def _write_down(folder: LaunchDirectory, pid: int, more: Mapping[str, Any]) -> None:
    identity = identify(pid) if pid else None
    if identity is not None:
        told = {"boot": identity.boot, "pid": identity.pid, "started": identity.started, **more}
        write_json(folder.runner, told)


def _is_alive(launch: LaunchDirectory) -> bool:
    identity = runner_identity(launch)
    if identity is None or start_time(identity.pid) != identity.started:
        return False
    with contextlib.suppress(ChildProcessError):
        os.waitpid(identity.pid, os.WNOHANG)
    return identity.alive()


def _manager_of(launch: LaunchDirectory) -> ManagerKind:
    """Who holds the runner, as written when it was started."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        told = json.loads(launch.runner.read_bytes()).get("manager")
        return "user" if told == "user" else "system" if told == "system" else ""
    return ""


def runner_identity(launch: LaunchDirectory) -> ProcessIdentity | None:
    """Who runs a launch, as written when it was started."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        data = json.loads(launch.runner.read_bytes())
        return ProcessIdentity(data["boot"], data["pid"], data["started"])
    return None
