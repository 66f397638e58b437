"""How a rehearsal is started: the server's command, the state folder, the environment."""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ddconsole.core.clock import ENVIRONMENT_VARIABLE
from ddconsole.rehearsal.faults import FaultRule, write_faults
from ddconsole.rehearsal.host import write_host_tree
from ddconsole.rehearsal.state import REHEARSAL_VARIABLE

HOST_FOLDER = "host"
"""Below the state folder: the simulated host's /sys and /proc, for readers that take a root."""


def rehearsal_command() -> tuple[str, ...]:
    """What stands in for the engine's command; SGLang's flags follow it."""
    return (sys.executable, "-m", "ddconsole.rehearsal.server")


def prepare_state(folder: Path, faults: Sequence[FaultRule] = (), service_on_gpu0: bool = False) -> None:
    """Make the state folder of a new rehearsal: nobody holds memory, faults are uncounted.

    Args:
        folder: made when it is not there.
        faults: what is to go wrong.
        service_on_gpu0: whether the operator's unit still runs on GPU 0.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_faults(folder, faults)
    write_host_tree(folder / HOST_FOLDER, service_on_gpu0)


def environment(folder: Path, scale: float, anchor: float | None = None) -> dict[str, str]:
    """What every process of a rehearsal has in its environment.

    Args:
        folder: the state folder.
        scale: how many times faster than real time.
        anchor: the wall time at which the rehearsal's clock and the machine's agree; now, when left out.
    """
    anchored = time.time() if anchor is None else anchor
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != here)]
    return {
        REHEARSAL_VARIABLE: str(folder),
        ENVIRONMENT_VARIABLE: f"{scale}@{anchored}",
        "PYTHONPATH": os.pathsep.join(paths),  # servers start in their launch's folder, not in this one
    }
