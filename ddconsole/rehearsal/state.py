"""The rehearsal's folder: who holds memory of which simulated GPU, and what else outlives one server."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ddconsole.rehearsal.processes import start_ticks

REHEARSAL_VARIABLE = "DDCONSOLE_REHEARSAL"
"""The state folder. That it is set makes a process part of a rehearsal."""

RELEASE_SECONDS = 0.2
"""Simulated seconds until the memory of a process that died is free (facts: SIGKILL of the main process)."""


class NoRehearsalError(RuntimeError):
    """The environment names no state folder."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a simulated GPU."""

    pid: int
    start_ticks: int
    """Field 22 of /proc/PID/stat: tells the process from a later one with the same number."""
    bytes: int
    utilisation: int
    """Percent."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """What is in use on one simulated GPU."""

    holders: tuple[Holder, ...]
    leaving_bytes: int
    """Memory of processes that died within the last `RELEASE_SECONDS`."""

    @property
    def used_bytes(self) -> int:
        """All memory that is not free."""
        return sum(holder.bytes for holder in self.holders) + self.leaving_bytes

    @property
    def utilisation(self) -> int:
        """Percent; simulated GPUs run one server at a time, so the busiest process speaks for all."""
        return max((holder.utilisation for holder in self.holders), default=0)


def is_rehearsal() -> bool:
    """Whether this process belongs to a rehearsal."""
    return bool(os.environ.get(REHEARSAL_VARIABLE))


def state_folder() -> Path:
    """The folder that the environment names.

    Raises:
        NoRehearsalError: it names none.
    """
    text = os.environ.get(REHEARSAL_VARIABLE, "")
    if not text:
        raise NoRehearsalError(
            f"{REHEARSAL_VARIABLE} is not set: name the rehearsal's state folder in it (ddconsole rehearse does)"
        )
    return Path(text)


def write_whole(path: Path, value: Any) -> None:
    """Replace a JSON file at once, so that readers see the old or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(value, separators=(",", ":")), encoding="utf-8")
    draft.replace(path)


def read_json(path: Path) -> Any:
    """The file's value, or None where it is gone or being made by somebody else."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@contextmanager
def locked(folder: Path, name: str) -> Iterator[None]:
    """Hold the folder's lock `name`, for files that several processes count in."""
    with (folder / f".{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_holder(folder: Path, gpu: int, holder: Holder) -> None:
    """Say what this process holds of a GPU now."""
    place = folder / f"gpu{gpu}"
    place.mkdir(parents=True, exist_ok=True)
    write_whole(place / f"{holder.pid}.json", asdict(holder))


def gpu_use(folder: Path, gpu: int, now: float) -> GpuUse:
    """Who holds what of a GPU. Entries of dead processes are dropped, `RELEASE_SECONDS` after they are first seen.

    Args:
        folder: the state folder.
        gpu: index of the simulated GPU.
        now: seconds of the rehearsal's monotonic clock.
    """
    holders: list[Holder] = []
    leaving = 0
    for path in sorted((folder / f"gpu{gpu}").glob("[0-9]*.json")):
        value = read_json(path)
        if not isinstance(value, dict):
            continue
        holder = Holder(**{name: value[name] for name in Holder.__dataclass_fields__ if name in value})
        if start_ticks(holder.pid) == holder.start_ticks:
            holders.append(holder)
        elif _is_leaving(path, now):
            leaving += holder.bytes
    return GpuUse(tuple(holders), leaving)


def _is_leaving(path: Path, now: float) -> bool:
    """Whether a dead process's memory is still being given back; removes its files when it is not."""
    mark = path.with_suffix(".gone")
    free_at = read_json(mark)
    if free_at is None:
        write_whole(mark, now + RELEASE_SECONDS)
        return True
    if now < float(free_at):
        return True
    path.unlink(missing_ok=True)
    mark.unlink(missing_ok=True)
    return False
