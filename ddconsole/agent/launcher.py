"""Starting runners and finding them again. A launcher is small: start, is it alive, end it."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

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

    def __init__(self) -> None:
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def start(self, run: RunDirectory, launch: int) -> None:
        """Start `python -m ddconsole.runner`, its output in `runner.log`, its working folder outside the launch's."""
        folder = run.launch(launch)
        with folder.runner_log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "ddconsole.runner", str(run.path), str(launch)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=run.path,
                start_new_session=True,
                env=os.environ.copy(),
            )
        self._children[folder.path] = process
        identity = identify(process.pid)
        if identity is not None:
            write_json(folder.runner, {"boot": identity.boot, "pid": identity.pid, "started": identity.started})

    def alive(self, launch: LaunchDirectory) -> bool:
        """By the child where it is ours, else by its written identity."""
        child = self._children.get(launch.path)
        if child is not None:
            return child.poll() is None
        identity = runner_identity(launch)
        return identity is not None and identity.alive()


def runner_identity(launch: LaunchDirectory) -> ProcessIdentity | None:
    """Who runs a launch, as written when it was started."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        data = json.loads(launch.runner.read_bytes())
        return ProcessIdentity(data["boot"], data["pid"], data["started"])
    return None
