"""Which file system holds a path."""

from dataclasses import dataclass

from ddconsole.preflight.machine import Machine


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/mounts."""

    point: str
    kind: str
    options: str

    @property
    def in_memory(self) -> bool:
        """Whether what stands there is gone after a restart, and counts as memory until then."""
        return self.kind in {"tmpfs", "ramfs", "hugetlbfs"}


async def mount_of(machine: Machine, path: str) -> Mount | None:
    """The mount with the longest matching beginning; None where the table cannot be read."""
    try:
        table = await machine.read_text("/proc/mounts")
    except OSError:
        return None
    words = [line.split() for line in table.splitlines()]
    mounts = [Mount(one[1].replace("\\040", " "), one[2], one[3]) for one in words if len(one) > 3]
    inside = f"{path.rstrip('/')}/"
    holding = [one for one in mounts if inside.startswith(f"{one.point.rstrip('/')}/")]
    return max(holding, key=lambda one: len(one.point), default=None)
