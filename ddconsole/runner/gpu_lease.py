"""One active run per GPU: a lock on the GPU's UUID that the runner holds for as long as it lives."""

import contextlib
import fcntl
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path


def _folder() -> Path:
    """A folder that every user of the machine can put locks into, each removing only their own."""
    folder = Path(tempfile.gettempdir()) / "ddconsole-gpus"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o1777)
        folder.chmod(0o1777)
    return folder


class GpuLease:
    """Locks on GPUs. Simulated GPUs have names of their own, so a rehearsal never waits for a sweep."""

    def __init__(self, uuids: Sequence[str], run: str, *, simulated: bool) -> None:
        self._names = [f"simulated-{uuid}" if simulated else uuid for uuid in sorted(uuids)]
        self._run = run
        self._held: dict[str, int] = {}

    def take(self) -> str | None:
        """Take what is not held yet; None when all are ours, else for whom we wait.

        Raises:
            OSError: a lock file cannot be opened: it belongs to another user who does not share it.
        """
        for name in self._names:
            if name in self._held:
                continue
            path = _folder() / f"{name.replace('/', '-')}.lock"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            with contextlib.suppress(PermissionError):
                os.fchmod(descriptor, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = _holder(descriptor)
                os.close(descriptor)
                return f"GPU {name} is leased by {holder}"
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"run": self._run, "pid": os.getpid()}).encode(), 0)
            self._held[name] = descriptor
        return None

    def give_back(self) -> None:
        """Let the GPUs go."""
        while self._held:
            _, descriptor = self._held.popitem()
            os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        data = json.loads(os.pread(descriptor, 4096, 0))
        return f"run {data['run']} (pid {data['pid']})"
    except (ValueError, KeyError, TypeError):
        return "a run that did not say its name"
