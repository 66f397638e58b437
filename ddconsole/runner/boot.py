"""Since when this machine or container runs, and for how long it slept: read here alone.

Tests feed it: `DDCONSOLE_BOOT_FACTS` names a JSON file with any of `token`, `kernel`, `first` and `suspended`, which
then stand for what the kernel says. It is read anew each time.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FACTS_VARIABLE = "DDCONSOLE_BOOT_FACTS"
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Boot:
    """One life of the machine, or of the container."""

    token: str
    """Changes with every boot of the kernel, and in a container with each of its starts."""
    kernel: float
    """Wall time at which the kernel began."""
    first: float
    """Wall time at which process 1 began: of a container, its start."""

    def since(self, last_known: float) -> tuple[str, float]:
        """What happened, and when, if this is another life than the one in which `last_known` (wall time) was.

        A container's boot id can change while the kernel's does not (LXC gives each start one of its own), so the
        kernel's age tells the two apart, and no part of the token.
        """
        if self.kernel > last_known:
            return "host rebooted", self.kernel
        return "container restarted", self.first


def current_boot() -> Boot:
    """The life that this process is part of."""
    facts = _forged()
    # Not btime of /proc/stat: lxcfs gives a container its own start there, which would be counted twice.
    now, age = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
    kernel = float(facts.get("kernel", now - age))
    ticks = _first_ticks()
    first = kernel if ticks is None else now - age + ticks / os.sysconf("SC_CLK_TCK")
    return Boot(boot_token(), kernel, float(facts.get("first", first)))


def boot_token() -> str:
    """Changes with every boot of the kernel; in a container also with the container's own start."""
    forged = _forged().get("token")
    if forged is not None:
        return str(forged)
    return f"{(_PROC / 'sys/kernel/random/boot_id').read_text().strip()}/{_first_ticks()}"


def suspended_seconds() -> float:
    """Seconds that the machine has slept since it was booted: while it sleeps, only one of two clocks goes on."""
    gap = time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)
    return gap + float(_forged().get("suspended", 0.0))


def _first_ticks() -> int | None:
    """Clock ticks after boot at which process 1 began; None where /proc hides it."""
    try:
        text = (_PROC / "1/stat").read_text(errors="replace")
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[19])


def _forged() -> dict[str, Any]:
    path = os.environ.get(FACTS_VARIABLE)
    if not path:
        return {}
    found: dict[str, Any] = json.loads(Path(path).read_bytes())
    return found
