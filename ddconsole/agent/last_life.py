"""What became of the agent before this one: a note that a clean end takes away tells that there was none, and why."""

import contextlib
import json
import logging
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ddconsole.agent.systemd import host_managers
from ddconsole.core.survival import cgroup_of, survives_logout
from ddconsole.runner.durable import write_whole

NAME = "life.json"
"""In the state folder."""
_TOUCHED_EVERY = 10.0
"""Seconds between two signs of life."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Life:
    """One agent, as it knew itself."""

    boot: str
    keeper: int
    """The process that starts it again when something kills it: its end is told by nobody else."""
    survives: bool | None
    """Whether it outlives the logout of the session that started it."""
    text: str
    remedy: str


class LastLife:
    """The note of this agent and of the one before it.

    Args:
        state: the agent's state folder.
        boot: the boot token of now.
    """

    def __init__(self, state: Path, boot: str) -> None:
        self._path = state / NAME
        self._boot = boot
        self._touched = 0.0

    def explanation(self) -> str:
        """Why the agent before this one may have ended without a word, and what keeps it from that; mostly empty."""
        try:
            before = Life(**json.loads(self._path.read_bytes()))
            heard = self._path.stat().st_mtime
        except (OSError, ValueError, TypeError):
            return ""
        if before.boot != self._boot or before.survives is not False or before.keeper == os.getppid():
            return ""
        at = time.strftime("%H:%M:%S", time.localtime(heard))
        text = f"the agent was ended after {at}, as it is at a logout ({before.text.removeprefix('no: ')})"
        return f"{text}: {before.remedy}" if before.remedy else text

    def begin(self) -> None:
        """Note this agent. Asks systemd, which may take a while."""
        with contextlib.suppress(OSError):
            verdict = survives_logout(host_managers(), cgroup_of(Path("/proc/self/cgroup").read_text()))
            life = Life(self._boot, os.getppid(), verdict.survives, verdict.text, verdict.remedy)
            write_whole(self._path, json.dumps(asdict(life)).encode(), durable=False)

    def touch(self) -> None:
        """A sign of life, now and then."""
        if time.monotonic() - self._touched > _TOUCHED_EVERY:
            self._touched = time.monotonic()
            with contextlib.suppress(OSError):
                os.utime(self._path)

    def end(self) -> None:
        """This agent leaves of its own accord, and leaves nothing unfinished."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)
