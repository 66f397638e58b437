"""The machine that the probe looks at: this one, or the rehearsal's.

The rehearsal is imported by name and only when it is asked for: the probe must not depend on it.
"""

import importlib
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pynvml

from ddconsole.core.host_state import HostState
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml_calls import Nvml

REHEARSAL_VARIABLE = "DDCONSOLE_REHEARSAL"
"""The rehearsal's state folder. When set, GPUs and host are simulated."""

_SOURCE = "rehearsal"


@dataclass(frozen=True, slots=True)
class ProbedMachine:
    """Where readings come from."""

    nvml: Nvml
    root: Path
    """Where /sys and /proc are looked for."""
    simulated: bool


def probed_machine() -> ProbedMachine:
    """This machine, or the simulated one in a rehearsal."""
    folder = os.environ.get(REHEARSAL_VARIABLE)
    if not folder:
        return ProbedMachine(cast("Nvml", pynvml), Path("/"), simulated=False)
    nvml = importlib.import_module("ddconsole.rehearsal.nvml").SimulatedNvml()
    return ProbedMachine(cast("Nvml", nvml), _host_tree(Path(folder)), simulated=True)


def as_rehearsed(state: HostState) -> HostState:
    """The sample with the simulated machine's name, CPUs and memory; what is not simulated is not available."""
    facts: dict[str, Any] = importlib.import_module("ddconsole.rehearsal.host").host_facts()
    none: Reading[Any] = unavailable("not simulated", state.at, _SOURCE)
    return replace(
        state,
        hostname=read(str(facts["hostname"]), state.at, _SOURCE),
        cpu_count=read(int(facts["cpu_count"]), state.at, _SOURCE),
        cpus_allowed=read(int(facts["cpu_count"]), state.at, _SOURCE),
        memory_total=read(int(facts["memory_total"]), state.at, _SOURCE),
        memory_available=read(int(facts["memory_available"]), state.at, _SOURCE),
        cpu_percent=none,
        load=none,
        shm_total=none,
        shm_free=none,
        memory_limit=none,
        memory_limited_use=none,
        pressure_cpu=none,
        pressure_memory=none,
        pressure_io=none,
        network_sent=none,
        network_received=none,
    )


def _host_tree(folder: Path) -> Path:
    """/sys and /proc of the simulated host, written once; several probes may begin at the same time."""
    root = folder / "host"
    if root.exists():
        return root
    draft = folder / f".host.{os.getpid()}"
    importlib.import_module("ddconsole.rehearsal.host").write_host_tree(draft)
    try:
        draft.rename(root)
    except OSError:  # another probe was faster
        shutil.rmtree(draft, ignore_errors=True)
    return root
