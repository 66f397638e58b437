"""What the container's memory limit leaves: tmpfs counts to it, and cannot be given back but by removing files."""

from dataclasses import dataclass

from ddconsole.preflight.machine import Machine

_NO_LIMIT = 1 << 62
"""Version 1 writes a number near 2**63 for none."""


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """The tightest limit over this process, in bytes."""

    limit: int
    used: int
    """All that is charged, page cache with it."""
    shared: int
    """Of that, tmpfs and shared memory: it stays until its files are removed."""
    reclaimable: int
    """Page cache that the kernel can drop."""
    killed: int | None
    """Processes that were killed for memory since the group began; None where it is not told."""
    source: str
    """Where it was read."""

    @property
    def left(self) -> int:
        """Bytes until somebody is killed."""
        return max(self.limit - self.used + self.reclaimable, 0)


async def memory_limit(machine: Machine) -> MemoryLimit | None:
    """The tightest of the control groups that hold this process and of the machine's memory; None if neither is told.

    A Proxmox container sees `max` in its own group, whose parent has the limit; what /proc/meminfo says is right
    there, since lxcfs counts the parents.
    """
    found = [one for folder in await _folders(machine) if (one := await _group(machine, folder)) is not None]
    whole = await _machine(machine)
    return min([*found, *([whole] if whole else [])], key=lambda one: one.left, default=None)


async def _folders(machine: Machine) -> list[str]:
    """Folders of the control groups over this process, its own first."""
    try:
        lines = (await machine.read_text("/proc/self/cgroup")).splitlines()
    except OSError:
        return ["/sys/fs/cgroup"]
    for line in lines:
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "", "")
        if controllers in {"", "memory"} and path.startswith("/"):
            root = "/sys/fs/cgroup/memory" if controllers else "/sys/fs/cgroup"
            parts = [part for part in path.split("/") if part and part != ".."]
            return [root + "".join(f"/{part}" for part in parts[:depth]) for depth in range(len(parts), -1, -1)]
    return ["/sys/fs/cgroup"]


async def _group(machine: Machine, folder: str) -> MemoryLimit | None:
    second = await _number(machine, f"{folder}/memory.max")
    limit = second if second is not None else await _number(machine, f"{folder}/memory.limit_in_bytes")
    if limit is None or limit >= _NO_LIMIT:
        return None
    name = "memory.current" if second is not None else "memory.usage_in_bytes"
    used = await _number(machine, f"{folder}/{name}")
    stat = await _pairs(machine, f"{folder}/memory.stat")
    if used is None or stat is None:
        return None
    shared = stat.get("total_shmem", stat.get("shmem", 0))
    cache = stat.get("total_cache", stat.get("file", 0))
    events = await _pairs(machine, f"{folder}/memory.events")
    killed = events.get("oom_kill") if events is not None else None
    return MemoryLimit(limit, used, shared, max(cache - shared, 0), killed, f"{folder}/memory.max")


async def _machine(machine: Machine) -> MemoryLimit | None:
    facts = await _pairs(machine, "/proc/meminfo")
    if facts is None or "MemTotal" not in facts or "MemAvailable" not in facts:
        return None
    total, free = facts["MemTotal"] * 1024, facts["MemAvailable"] * 1024
    return MemoryLimit(total, total - free, facts.get("Shmem", 0) * 1024, 0, None, "/proc/meminfo")


async def _number(machine: Machine, path: str) -> int | None:
    """A file with one number; `max` and everything else is none."""
    try:
        text = (await machine.read_text(path)).strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


async def _pairs(machine: Machine, path: str) -> dict[str, int] | None:
    """`name value` or `name: value kB` lines."""
    try:
        lines = (await machine.read_text(path)).splitlines()
    except OSError:
        return None
    words = [line.replace(":", " ").split() for line in lines]
    return {one[0]: int(one[1]) for one in words if len(one) > 1 and one[1].isdigit()}
