"""What a container may use and how much it waits: cgroup limits and pressure, as the kernel tells them."""

import re
from pathlib import Path

from ddconsole.core.readings import Reading, read, unavailable

_NO_LIMIT = 1 << 60
"""Version 1 of cgroups writes a number near 2^63 where there is none."""


def memory_limit(root: Path, at: float) -> tuple[Reading[int], Reading[int]]:
    """The smallest memory limit above this process, and what counts against it: also files in tmpfs."""
    found = [pair for folder in _memory_folders(root) if (pair := _limit_of(folder)) is not None]
    if not found:
        reason = "no cgroup above this process limits its memory"
        return unavailable(reason, at, "memory.max"), unavailable(reason, at, "memory.current")
    folder, limit, used = min(found, key=lambda one: one[1])
    return read(limit, at, f"{folder} memory limit"), read(used, at, f"{folder} memory use")


def pressure(root: Path, what: str, at: float) -> Reading[float]:
    """Percent of the last ten seconds in which some task waited for `what`: `cpu`, `memory` or `io`."""
    path = root / "proc/pressure" / what
    try:
        match = re.search(r"some avg10=([\d.]+)", path.read_text())
    except OSError as problem:
        return unavailable(problem.strerror or str(problem), at, str(path))
    return read(float(match[1]), at, str(path)) if match else unavailable("no line `some`", at, str(path))


def _memory_folders(root: Path) -> list[Path]:
    """From this process's cgroup up to the root of what can be seen."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    folders: list[Path] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
        else:
            continue
        own = base / path.strip("/")
        folders += [one for one in (own, *own.parents) if one.is_relative_to(base)]
    return folders


def _limit_of(folder: Path) -> tuple[Path, int, int] | None:
    for limit_name, used_name in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        try:
            limit = (folder / limit_name).read_text().strip()
            used = int((folder / used_name).read_text())
        except (OSError, ValueError):
            continue
        if limit.isdigit() and int(limit) < _NO_LIMIT:
            return folder, int(limit), used
    return None
