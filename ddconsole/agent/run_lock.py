"""One writer to a run, also where its folder lies on a disk that knows no locks or shares it with other machines."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import tempfile
from pathlib import Path

from ddconsole.agent.socket_folder import private_folder
from ddconsole.core.visible_text import visible_line

_NETWORK = frozenset(
    (
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "davfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "smb3",
        "smbfs",
        "vboxsf",
        "virtiofs",
        "wekafs",
    )
)
"""Kinds of file systems that other machines may have mounted too: a lock there may hang, or hold here only."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})
_OWNER = ".agent.json"
_LONGEST_HOLDER = 300
"""Bytes of a lock file that are read: who holds it."""


class RunHeld(Exception):
    """Another agent conducts the run; the text says which, and what to do."""


class RunLock:
    """Held for as long as the process lives, or until it is closed.

    On a local disk it is a lock in the run's folder. Elsewhere it is one in a folder of this machine's own, and the
    run's folder says which machine it is: an agent of another machine that finds it there keeps away.

    Args:
        directory: of the run.
        mounts: the text of `/proc/self/mountinfo`; read from there where it is not given.

    Raises:
        RunHeld: another agent has it.
        OSError: the lock cannot be made.
    """

    def __init__(self, directory: Path, mounts: str | None = None) -> None:
        self._owner: Path | None = None
        self._descriptor: int | None = None
        if not on_network(directory, mounts):
            self._descriptor = _locked(directory / ".agent.lock", directory.name)
        if self._descriptor is None:
            self._descriptor = _locked(_place_here(directory), directory.name)
            if self._descriptor is None:
                raise OSError(errno.ENOLCK, "this disk knows no locks", tempfile.gettempdir())
            self._claim(directory)

    def close(self) -> None:
        """Let the run go."""
        if self._owner is not None:
            with contextlib.suppress(OSError):
                self._owner.unlink()
            self._owner = None
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _claim(self, directory: Path) -> None:
        """Write down which machine conducts the run, unless another one says so."""
        path = directory / _OWNER
        here = socket.gethostname()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            there = str(json.loads(path.read_bytes())["host"])
            if there != here:
                self.close()
                raise RunHeld(
                    f"E132 {directory.name} is conducted by the agent of {there}, which shares this folder; stop it "
                    f"there, or remove {path} if that machine is gone"
                )
        fresh = path.with_name(f"{_OWNER}.part")
        fresh.write_text(json.dumps({"host": here}))
        fresh.rename(path)
        self._owner = path


def _place_here(directory: Path) -> Path:
    """Where this machine keeps the lock of a folder that it shares."""
    digest = hashlib.sha256(os.fsencode(directory.resolve())).hexdigest()[:24]
    return private_folder(Path(tempfile.gettempdir()) / f"ddconsole-{os.geteuid()}" / "locks") / f"{digest}.lock"


def on_network(path: Path, mounts: str | None = None) -> bool:
    """Whether a folder lies on a file system that other machines may share."""
    try:
        text = Path("/proc/self/mountinfo").read_text() if mounts is None else mounts
    except OSError:
        return False
    place, kind = "", ""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4].encode().decode("unicode_escape") if len(before.split()) > 4 else ""
        inside = point and (path.resolve().is_relative_to(point))
        # The last of several mounts at one place is the one that is seen.
        if inside and len(point) >= len(place):
            place, kind = point, after.split()[0] if after else ""
    return kind in _NETWORK or kind.startswith("fuse.")


def _locked(path: Path, run: str) -> int | None:
    """A descriptor that holds the lock; None where the disk knows no locks."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as problem:
        holder = os.pread(descriptor, _LONGEST_HOLDER, 0).decode("utf-8", "replace")
        os.close(descriptor)
        who = f" ({visible_line(holder)})" if holder else ""
        raise RunHeld(f"{run} is conducted by another agent{who}") from problem
    except OSError as problem:
        os.close(descriptor)
        if problem.errno not in _NO_LOCKS:
            raise
        path.unlink(missing_ok=True)
        return None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"pid {os.getpid()} on {socket.gethostname()}".encode(), 0)
    return descriptor
