"""Memory of simulated GPUs, held by processes that are real."""

from pathlib import Path

from ddconsole.rehearsal.processes import start_ticks
from ddconsole.rehearsal.state import Holder, write_holder

GIB = 1024**3


def hold(folder: Path, gpu: int, pid: int, gib: float) -> None:
    """Have a process hold memory of a GPU until it dies.

    Args:
        folder: of the rehearsal.
        gpu: index.
        pid: of a process that lives.
        gib: how much.
    """
    ticks = start_ticks(pid)
    assert ticks is not None
    write_holder(folder, gpu, Holder(pid, ticks, int(gib * GIB), 0))
