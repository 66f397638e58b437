"""Starting runners and finding them again. A launcher is small: start, is it alive, end it."""

import contextlib
import json
import os
from typing import Protocol

from ddconsole.core.own_process import own_process
from ddconsole.runner.durable import write_json
from ddconsole.runner.identity import ProcessIdentity, identify
from ddconsole.runner.run_directory import LaunchDirectory, RunDirectory


class Launcher(Protocol):
    """How a runner is started on this host."""

    def start(self, run: RunDirectory, launch: int) -> None:
        """Start the runner of a launch whose order and control are written.

        Raises:
            OSError: it could not be started.
        """
        ...

    def alive(self, launch: LaunchDirectory) -> bool:
        """Whether the runner of a launch lives."""
        ...


class ProcessLauncher:
    """A runner as a process in a session of its own: it outlives the agent, which finds it by identity."""

    def start(self, run: RunDirectory, launch: int) -> None:
        """Start `python -m ddconsole.runner`, its output in `runner.log`."""
        folder = run.launch(launch)
        argv = own_process("ddconsole.runner", str(run.path), str(launch))
        nothing = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        log = (os.POSIX_SPAWN_OPEN, 1, str(folder.runner_log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        both = (os.POSIX_SPAWN_DUP2, 1, 2)
        # Not subprocess.Popen: nobody waits for this child, it may well live longer than we do.
        pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=(nothing, log, both), setsid=True)
        identity = identify(pid)
        if identity is not None:
            write_json(folder.runner, {"boot": identity.boot, "pid": identity.pid, "started": identity.started})

    def alive(self, launch: LaunchDirectory) -> bool:
        """Whether the process that was written down lives; an ended child of ours is reaped."""
        identity = runner_identity(launch)
        if identity is None:
            return False
        with contextlib.suppress(ChildProcessError):
            os.waitpid(identity.pid, os.WNOHANG)
        return identity.alive()


def runner_identity(launch: LaunchDirectory) -> ProcessIdentity | None:
    """Who runs a launch, as written when it was started."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        data = json.loads(launch.runner.read_bytes())
        return ProcessIdentity(data["boot"], data["pid"], data["started"])
    return None
