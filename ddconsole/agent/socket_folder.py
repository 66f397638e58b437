"""Where the agent listens: a socket in a folder of its own that nobody else can enter."""

import contextlib
import fcntl
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

_LONGEST_PATH = 107
"""Bytes that the kernel takes for a socket's path."""


class UnsafeSocket(Exception):
    """The folder or the socket is not as it must be; the text says what is wrong and what to do."""


def private_folder(path: Path) -> Path:
    """Make `path` and its parent 0700 folders of ours, or refuse.

    Raises:
        UnsafeSocket: a folder is a link, belongs to somebody else, or can be entered by others.
    """
    for folder in (path.parent, path):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise UnsafeSocket(f"E130 {folder} is a symbolic link; remove it")
        if status.st_uid != os.geteuid():
            raise UnsafeSocket(f"E130 {folder} is owned by uid {status.st_uid}; remove it or ask its owner to")
        if status.st_mode & 0o077:
            raise UnsafeSocket(f"E130 {folder} has mode {status.st_mode & 0o777:04o}; chmod 700 {folder}")
    return path


def lock(path: Path) -> int | None:
    """Take the lock of a socket for as long as the process lives; None when another agent has it.

    An agent whose lock file was deleted still has it: two would not know of each other.
    """
    if _holds_deleted_lock(path):
        return None
    file = Path(f"{path}.lock")
    while True:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        about = os.fstat(descriptor)
        if is_at(file, (about.st_dev, about.st_ino)):
            return descriptor
        # An agent that left took the file away after it was opened here: what is locked is nobody's lock.
        os.close(descriptor)


def clear_away(path: Path) -> None:
    """Remove socket, lock and folders of an agent that leaves and still holds the lock; what is in use stays."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        Path(f"{path}.lock").unlink(missing_ok=True)
        path.parent.rmdir()
        path.parent.parent.rmdir()


def _holds_deleted_lock(path: Path) -> bool:
    """Whether another process of ours keeps a lock file open that was deleted under it."""
    wanted = f"{path}.lock (deleted)"
    own = os.getpid()
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == own:
            continue
        if wanted in _open_files(process):
            return True
    return False


def _open_files(process: Path) -> Iterator[str]:
    """Names of a process's open files; none of other users' processes, nor of one that ends meanwhile."""
    with contextlib.suppress(OSError):
        for one in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(one.readlink())


def is_at(path: Path, identity: tuple[int, int] | None) -> bool:
    """Whether the file that had this identity is still the one at `path`."""
    return identity is not None and identity_of(path) == identity


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode of what stands at `path`, or None."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, in place of one that a dead agent left. Take the lock first.

    Raises:
        UnsafeSocket: the path is too long.
        OSError: it cannot be bound.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise UnsafeSocket(f"E131 socket path is {len(os.fsencode(path))} bytes; limit {_LONGEST_PATH}: {path}")
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(128)
    listener.setblocking(False)
    return listener
