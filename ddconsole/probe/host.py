"""The machine around the GPUs: who it is, its CPUs, memory and file systems."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path

import psutil

from ddconsole.core.host_state import DiskSpace
from ddconsole.core.readings import Reading, read, unavailable


@dataclass(frozen=True, slots=True)
class HostSample:
    """What psutil and the kernel say at one moment; the fields are those of `HostState`."""

    cpu_count: Reading[int]
    cpus_allowed: Reading[int]
    cpu_percent: Reading[float]
    load: Reading[tuple[float, float, float]]
    memory_total: Reading[int]
    memory_available: Reading[int]
    page_cache: Reading[int]


def host_sample(at: float, *, cpu_measured: bool) -> HostSample:
    """CPUs and memory now. In a container they are the host's, unless lxcfs stands before them.

    Args:
        at: wall time for the readings.
        cpu_measured: whether psutil was asked before, so that there is an interval to give a percentage of.
    """
    total, free, cache = _memory(at)
    percent = psutil.cpu_percent(interval=None)
    return HostSample(
        cpu_count=_count(psutil.cpu_count(), at),
        cpus_allowed=read(len(os.sched_getaffinity(0)), at, "sched_getaffinity"),
        cpu_percent=read(percent, at, "psutil.cpu_percent")
        if cpu_measured
        else unavailable("the first sample has no interval", at, "psutil.cpu_percent"),
        load=read(os.getloadavg(), at, "getloadavg"),
        memory_total=total,
        memory_available=free,
        page_cache=cache,
    )


class NetworkRate:
    """Bytes a second over all interfaces but loopback, between two samples."""

    def __init__(self) -> None:
        self._before: tuple[float, int, int] | None = None

    def rates(self, at: float) -> tuple[Reading[float], Reading[float]]:
        """Sent and received."""
        source = "psutil.net_io_counters"
        try:
            cards = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        except OSError as problem:
            reason = problem.strerror or str(problem)
            return unavailable(reason, at, source), unavailable(reason, at, source)
        now = (at, sum(card.bytes_sent for card in cards), sum(card.bytes_recv for card in cards))
        before, self._before = self._before, now
        if before is None or at <= before[0]:
            reason = "the first sample has no interval"
            return unavailable(reason, at, source), unavailable(reason, at, source)
        seconds = at - before[0]
        sent, received = (
            float(round(max(new - old, 0) / seconds)) for new, old in zip(now[1:], before[1:], strict=True)
        )
        return read(sent, at, source), read(received, at, source)


def hostname(at: float) -> Reading[str]:
    """What the machine calls itself."""
    name = socket.gethostname()
    return read(name, at, "gethostname") if name else unavailable("it has no name", at, "gethostname")


def boot_token(root: Path, at: float) -> Reading[str]:
    """Changes with every start of the machine and of the container.

    The kernel's boot id (which LXC replaces at each start of a container) and the start time of process 1 (which
    tells the start of other containers). Both mean that /dev/shm is empty again.
    """
    source = "boot_id, /proc/1/stat"
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError as problem:
        return unavailable(problem.strerror or str(problem), at, source)
    try:
        stat = (root / "proc/1/stat").read_text(encoding="utf-8", errors="replace")
        started = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return read(boot, at, source)
    return read(f"{boot}.{started}", at, source)


def kernel(root: Path, at: float) -> Reading[str]:
    """Release of the running kernel: in a container the host's."""
    source = "/proc/sys/kernel/osrelease"
    try:
        return read((root / source.removeprefix("/")).read_text(encoding="ascii").strip(), at, source)
    except OSError as problem:
        return unavailable(problem.strerror or str(problem), at, source)


def disk_space(path: str, at: float) -> DiskSpace:
    """Size and free bytes (for this user) of the file system that holds `path`."""
    try:
        space = os.statvfs(path)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        return DiskSpace(path, unavailable(reason, at, "statvfs"), unavailable(reason, at, "statvfs"))
    return DiskSpace(
        path,
        read(space.f_blocks * space.f_frsize, at, "statvfs"),
        read(space.f_bavail * space.f_frsize, at, "statvfs"),
    )


def _memory(at: float) -> tuple[Reading[int], Reading[int], Reading[int]]:
    """Total, available and page cache. /proc/meminfo is unreadable in a container whose lxcfs was restarted."""
    source = "psutil.virtual_memory"
    try:
        memory = psutil.virtual_memory()
    except OSError as problem:
        nothing: Reading[int] = unavailable(problem.strerror or str(problem), at, source)
        return nothing, nothing, nothing
    # The kernel counts tmpfs to what is cached, but it cannot be dropped.
    cache = max(memory.cached - memory.shared, 0)
    return read(memory.total, at, source), read(memory.available, at, source), read(cache, at, source)


def _count(number: int | None, at: float) -> Reading[int]:
    if number is None:
        return unavailable("psutil does not know", at, "psutil.cpu_count")
    return read(number, at, "psutil.cpu_count")
