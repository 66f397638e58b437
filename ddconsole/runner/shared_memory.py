"""What a server leaves in /dev/shm: small files that nobody removes when it is killed, one set for each launch.

Only what is provably the launch's own is removed: a file of ours directly in /dev/shm that was not there before the
launch, that one of its processes had open or mapped for writing, and that nobody holds any more. A model that is staged
there is in none of this: it lies in a folder, was there before, and is only read.
"""

import contextlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path("/dev/shm")  # noqa: S108  # where the C library puts shared memory, whoever asks
_PROC = Path("/proc")

logger = logging.getLogger(__name__)

Identity = tuple[int, int]
"""Device and inode."""


class SharedMemory:
    """The files that a launch's processes made.

    Args:
        notes: where they are written down, for those who come after the runner.
        folder: what is looked at.
    """

    def __init__(self, notes: Path, folder: Path = FOLDER) -> None:
        self._notes = notes
        self._folder = folder
        self._before = set(_files(folder).values())
        self._made: dict[str, Identity] = {}

    def look(self, pids: Iterable[int]) -> None:
        """Note which new files these processes hold for writing."""
        new = {name: one for name, one in _files(self._folder).items() if one not in self._before}
        if not new or new.items() <= self._made.items():
            return
        held = {one for pid in pids for one in _held_for_writing(pid, self._folder)}
        made = {name: one for name, one in new.items() if one in held}
        if made.items() <= self._made.items():
            return
        self._made |= made
        try:
            self._notes.write_text(json.dumps(self._made))
        except OSError as problem:
            logger.warning("files in %s are not written down: %s", self._folder, problem)

    def clear(self) -> tuple[str, ...]:
        """Remove them once no process of the launch lives; the names of those that are gone now."""
        return _clear(self._made, self._folder)


def clear_shared_memory(notes: Path, folder: Path = FOLDER) -> tuple[str, ...]:
    """`SharedMemory.clear` by what a runner wrote down that is gone."""
    made: dict[str, Identity] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
        for name, (device, inode) in json.loads(notes.read_bytes()).items():
            made[str(name)] = (int(device), int(inode))
    return _clear(made, folder)


def _clear(made: dict[str, Identity], folder: Path) -> tuple[str, ...]:
    there = _files(folder)
    left = {name for name, one in made.items() if there.get(name) == one}
    if not left:
        return ()
    held = {one for pid in _all_pids() for one in _held(pid, folder)}
    removed = sorted(name for name in left if made[name] not in held)
    for name in removed:
        with contextlib.suppress(OSError):
            (folder / name).unlink()
    return tuple(removed)


def _files(folder: Path) -> dict[str, Identity]:
    """Plain files of ours directly in `folder`."""
    found: dict[str, Identity] = {}
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            with contextlib.suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid():
                    found[entry.name] = (about.st_dev, about.st_ino)
    return found


def _all_pids() -> Iterator[int]:
    return (int(one.name) for one in _PROC.glob("[0-9]*"))


def _held_for_writing(pid: int, folder: Path) -> Iterator[Identity]:
    """Files below `folder` that a process has mapped shared and writable, or open for writing."""
    yield from (one for one, mode in _mapped(pid, folder) if mode[1] == "w" and mode[3] == "s")
    for number, one in _open(pid, folder):
        with contextlib.suppress(OSError, StopIteration, ValueError):
            lines = (_PROC / str(pid) / "fdinfo" / number).read_text().splitlines()
            flags = int(next(line.split()[1] for line in lines if line.startswith("flags:")), 8)
            if flags & (os.O_WRONLY | os.O_RDWR):
                yield one


def _held(pid: int, folder: Path) -> Iterator[Identity]:
    yield from (one for one, _ in _mapped(pid, folder))
    yield from (one for _, one in _open(pid, folder))


def _mapped(pid: int, folder: Path) -> Iterator[tuple[Identity, str]]:
    """By device and inode: the C library maps a semaphore under a name that it removes, and links it to another one."""
    with contextlib.suppress(OSError):
        for line in (_PROC / str(pid) / "maps").read_text(errors="surrogateescape").splitlines():
            fields = line.split(None, 5)
            if len(fields) == 6 and fields[5].startswith(f"{folder}/"):
                major, minor = (int(part, 16) for part in fields[3].split(":"))
                yield (os.makedev(major, minor), int(fields[4])), fields[1]


def _open(pid: int, folder: Path) -> Iterator[tuple[str, Identity]]:
    with contextlib.suppress(OSError):
        for one in (_PROC / str(pid) / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(one.readlink()).startswith(f"{folder}/"):
                    about = one.stat()
                    yield one.name, (about.st_dev, about.st_ino)
