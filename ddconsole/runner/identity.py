"""Who a process is: never a bare pid. And which processes belong to a launch.

Identity is boot token, pid and start time. A process belongs to a launch by its cgroup, by having been recorded as a
descendant, or by its working folder or a log file that it writes (`ddconsole.runner.belonging`): servers retitle their
processes and children leave their process group, but both keep folder and log.
"""

import contextlib
import os
import signal
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddconsole.runner.boot import boot_token

PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """One process, for good: a pid that was used again does not match, nor does one of an earlier boot."""

    boot: str
    pid: int
    started: int
    """Clock ticks after boot (field 22 of /proc/PID/stat)."""

    def alive(self) -> bool:
        """Whether this very process exists and is not a zombie."""
        fields = _stat_fields(self.pid)
        if fields is None or fields[0] in {"Z", "X"} or int(fields[19]) != self.started:
            return False
        return self.boot == boot_token()

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to this very process; False when it is gone. No signal reaches another one."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except (ProcessLookupError, PermissionError):
            return False
        try:
            if not self.alive():
                return False
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        finally:
            os.close(descriptor)
        return True


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a living process."""
    started = start_time(pid)
    return None if started is None else ProcessIdentity(boot_token(), pid, started)


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which a process began; None when there is none."""
    fields = _stat_fields(pid)
    return None if fields is None else int(fields[19])


def _stat_fields(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the name before them may hold blanks and brackets."""
    try:
        text = (PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _all_pids() -> Iterable[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdigit())


def descendants(*pids: int) -> set[ProcessIdentity]:
    """Living descendants of processes, by one walk over /proc."""
    children: dict[int, list[int]] = {}
    for one in _all_pids():
        fields = _stat_fields(one)
        if fields is not None:
            children.setdefault(int(fields[1]), []).append(one)
    found: set[ProcessIdentity] = set()
    waiting = [child for pid in pids for child in children.get(pid, ())]
    while waiting:
        child = waiting.pop()
        waiting.extend(children.pop(child, ()))
        known = identify(child)
        if known is not None:
            found.add(known)
    return found


def members_by_cgroup(unit: str) -> set[ProcessIdentity]:
    """Living processes in the cgroup of a systemd unit, or below it."""
    found: set[ProcessIdentity] = set()
    for pid in _all_pids():
        if _is_in_unit(pid, unit):
            known = identify(pid)
            # Asked again: the pid may have been another's a moment ago.
            if known is not None and known.alive() and _is_in_unit(pid, unit):
                found.add(known)
    return found


def _is_in_unit(pid: int, unit: str) -> bool:
    try:
        text = (PROC / str(pid) / "cgroup").read_text(errors="replace")
    except OSError:
        return False
    return any(unit in line.split("/") for line in text.splitlines())


def members_by_folder(folder: Path, log: Path) -> set[ProcessIdentity]:
    """Living processes whose working folder lies in `folder`, or that hold `log` open for writing."""
    found: set[ProcessIdentity] = set()
    own = os.getpid()
    resolved = os.path.realpath(folder)
    log_identity = _file_identity(log)
    for pid in _all_pids():
        if pid == own:
            continue
        if _works_in(pid, resolved) or (log_identity is not None and _writes_to(pid, log_identity)):
            known = identify(pid)
            if known is not None and known.alive():
                found.add(known)
    return found


def _works_in(pid: int, folder: str) -> bool:
    try:
        where = os.readlink(PROC / str(pid) / "cwd").removesuffix(" (deleted)")
    except OSError:
        return False
    return where == folder or where.startswith(folder + "/")


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _writes_to(pid: int, file: tuple[int, int]) -> bool:
    folder = PROC / str(pid) / "fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            try:
                status = os.stat(folder / name)
            except OSError:
                continue
            if (status.st_dev, status.st_ino) == file and stat.S_ISREG(status.st_mode) and _is_writing(pid, name):
                return True
    return False


def _is_writing(pid: int, descriptor: str) -> bool:
    try:
        text = (PROC / str(pid) / "fdinfo" / descriptor).read_text()
    except OSError:
        return False
    flags = next((line.split()[1] for line in text.splitlines() if line.startswith("flags:")), "0")
    return int(flags, 8) & (os.O_WRONLY | os.O_RDWR) != 0


def listening_pids(port: int) -> set[int] | None:
    """Pids that listen on a TCP port of this machine; None when the socket's owner cannot be seen."""
    inodes = _listening_inodes(port)
    if not inodes:
        return set()
    owners: set[int] = set()
    for pid in _all_pids():
        folder = PROC / str(pid) / "fd"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                with contextlib.suppress(OSError):
                    if os.readlink(folder / name) in inodes:
                        owners.add(pid)
    return owners or None


def _listening_inodes(port: int) -> set[str]:
    found: set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    found.add(f"socket:[{fields[9]}]")
    return found


def describe(process: ProcessIdentity) -> str:
    """A process for people: pid, name and command line; one that no signal reaches, with what it waits for."""
    try:
        name = (PROC / str(process.pid) / "comm").read_text().strip()
        raw = (PROC / str(process.pid) / "cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return f"pid {process.pid} (gone)"
    stuck = _stuck_in(process.pid)
    return f"pid {process.pid} {name}: {raw.decode(errors='replace').strip()[:120]}{stuck}"


def _stuck_in(pid: int) -> str:
    """Where the kernel keeps a process that cannot be ended now (state D), and nothing for others."""
    fields = _stat_fields(pid)
    if fields is None or fields[0] != "D":
        return ""
    try:
        where = (PROC / str(pid) / "wchan").read_text().strip("0\n")
    except OSError:
        where = ""
    return f" [uninterruptible (D) in {where or 'the kernel, which does not say where'}]"
