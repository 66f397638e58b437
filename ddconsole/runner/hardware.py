"""What the hardware did while a cell was measured, from the samples that the agent keeps beside the journal."""

import json
import statistics
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from ddconsole.core.host_state import DISTURBING_REASONS, GpuProcess, GpuState, HostState, reason_names
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.readings import Reading
from ddconsole.runner.surroundings import surroundings_record, waiting_flags

_SLOWED_AT_LEAST = 0.1
"""Seconds by the driver's counters below which a cell is not flagged."""
_UNDER_LOAD = 50
"""Percent of utilisation from which a link is judged."""
_SAMPLE_TAKES = 1.0
"""Seconds between the first reading of a sample and its end."""
_WINDOW = 8 * 1024 * 1024
"""Bytes from the end of the file that are looked at: hours of samples."""


def samples_between(path: Path, began: float, ended: float) -> list[HostState]:
    """Host samples with a wall time in the interval; empty when nobody took any."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(size - _WINDOW, 0))
            data = file.read()
    except OSError:
        return []
    found: list[HostState] = []
    for line in data.split(b"\n"):
        try:
            state = host_state_from_json(json.loads(line))
        except ValueError:
            continue
        if began <= state.at <= ended:
            found.append(state)
    return found


def hardware_record(
    samples: Sequence[HostState], gpus: Sequence[int], seconds: float, own: Collection[int] = ()
) -> dict[str, Any]:
    """Per GPU of the deployment: clock, power, energy, temperature, NUMA node, link, throttling, foreign processes.

    Empty without samples.

    Args:
        samples: of the time of the cell.
        gpus: indices of the deployment's GPUs.
        seconds: how long the cell took.
        own: pids of the server's processes, as this machine numbers them.
    """
    record: dict[str, Any] = {"samples": len(samples)}
    for index in gpus:
        states = [gpu for state in samples if (gpu := state.gpu(index)) is not None]
        of_gpu = _gpu_record(states, seconds)
        # A look is kept for seconds: one from before the cell may still show the server before this one.
        fresh = [state.processes for state in states if state.processes.at >= samples[0].at - _SAMPLE_TAKES]
        if foreign := foreign_processes(fresh, own):
            of_gpu["foreign"] = foreign
        record.setdefault("gpus", {})[str(index)] = of_gpu
    record.setdefault("gpus", {})
    cpu = _values(state.cpu_percent for state in samples)
    if cpu:
        record["cpu_percent"] = statistics.fmean(cpu)
    record["around"] = surroundings_record(samples)
    return record


def disturbances(record: dict[str, Any]) -> tuple[str, ...]:
    """What disturbed the cell, in words."""
    flags = []
    for index, gpu in record.get("gpus", {}).items():
        reasons = gpu.get("throttled_by", [])
        if reasons:
            flags.append(f"GPU {index} was slowed: {', '.join(reasons)}")
        elif _slowed(gpu) > _SLOWED_AT_LEAST:
            flags.append(f"GPU {index} was slowed by heat or a power brake for {_slowed(gpu):.1f} s")
        for one in gpu.get("foreign", ()):
            held = "" if one["memory_bytes"] is None else f", {one['memory_bytes'] / 2**30:.1f} GiB"
            flags.append(f"GPU {index} was used by another process too: pid {one['pid']}{held}")
        if gpu.get("xids"):
            flags.append(f"GPU {index} reported Xid {', '.join(str(one) for one in gpu['xids'])}")
        if gpu.get("link_below"):
            flags.append(f"GPU {index}'s link was {gpu['link_below']} while it computed")
        if gpu.get("aer_uncorrected"):
            flags.append(f"GPU {index}'s link made {gpu['aer_uncorrected']} errors that were not corrected")
    return (*flags, *waiting_flags(record.get("around", {}), on_gpus=bool(record.get("gpus"))))


def foreign_processes(
    readings: "Sequence[Reading[tuple[GpuProcess, ...]]]", own: Collection[int]
) -> list[dict[str, int | None]]:
    """Processes on a GPU that are not the server's, with the most memory that each was seen to hold.

    Where the driver numbers processes as this machine does, all but the server's own. In a container it may number them
    as the host does: then those that came after the first look, at which the server was there.
    """
    looks = [one.require() for one in readings if one.known]
    most: dict[int, int | None] = {}
    for process in (process for look in looks for process in look):
        held = most.get(process.pid)
        most[process.pid] = max(held or 0, process.memory_bytes) if process.memory_bytes is not None else held
    at_first = {process.pid for process in looks[0]} if looks else set()
    known = set(own) if most.keys() & set(own) else at_first
    foreign = most.keys() - known if known else set()
    return [{"pid": pid, "memory_bytes": most[pid]} for pid in sorted(foreign)]


def _slowed(gpu: dict[str, Any]) -> float:
    """Seconds; what the power cap did is not counted: under full load it is normal."""
    names = ("thermally_slowed", "thermally_slowed_by_hardware", "power_braked")
    return sum(float(gpu.get(f"{name}_seconds", 0.0)) for name in names)


def _gpu_record(states: Sequence[GpuState], seconds: float) -> dict[str, Any]:
    record = _means(states) | _energy(states, seconds)
    for name in ("power_capped", "thermally_slowed", "thermally_slowed_by_hardware", "power_braked"):
        moved = _growth([getattr(state, name) for state in states])
        if moved is not None:
            record[f"{name}_seconds"] = round(moved[0], 3)
    xids = [state.xids.value for state in states if state.xids.value is not None]
    if xids and len(xids[-1]) > len(xids[0]):
        record["xids"] = list(xids[-1][len(xids[0]) :])
    links = {
        f"{state.pcie_generation.value}x{state.pcie_width.value}"
        for state in states
        if state.pcie_generation.known and state.pcie_width.known
    }
    record["links"] = sorted(links)
    below = _link_below(states)
    if below:
        record["link_below"] = below
    for name in ("pcie_replays", "aer_corrected", "aer_uncorrected"):
        moved = _growth([getattr(state, name) for state in states])
        if moved is not None:
            record[name] = int(moved[0])
    masks = [int(mask) for mask in _values(state.clock_event_reasons for state in states)]
    disturbing = 0
    for mask in masks:
        disturbing |= mask & DISTURBING_REASONS
    record["throttled_by"] = list(reason_names(disturbing)) if disturbing else []
    return record


def _means(states: Sequence[GpuState]) -> dict[str, Any]:
    """Clock, power and temperature over the samples, and the NUMA node."""
    clocks = _values(state.sm_clock for state in states)
    power = _values(state.power for state in states)
    temperatures = _values(state.temperature for state in states)
    nodes = _values(state.numa_node for state in states)
    record: dict[str, Any] = {}
    if clocks:
        record["sm_clock_mean"], record["sm_clock_min"] = statistics.fmean(clocks), min(clocks)
    if power:
        record["power_mean"] = statistics.fmean(power)
    if temperatures:
        record["temperature_mean"], record["temperature_max"] = statistics.fmean(temperatures), max(temperatures)
    if nodes and nodes[-1] >= 0:
        record["numa_node"] = int(nodes[-1])
    return record


def _link_below(states: Sequence[GpuState]) -> str:
    """The link that most samples under load had, where that is less than card and slot can do; else nothing.

    Idle cards drop to generation 1 by design, and one glance at a link that is just changing is no fault.
    """
    under_load = [
        (state.pcie_generation.value, state.pcie_width.value)
        for state in states
        if (state.utilisation.value or 0) >= _UNDER_LOAD
        and not state.performance_state.value
        and state.pcie_generation.value is not None
        and state.pcie_width.value is not None
    ]
    if not under_load:
        return ""
    generation, width = statistics.mode(under_load)
    most = (states[-1].pcie_generation_max.value or 0, states[-1].pcie_width_max.value or 0)
    if generation >= most[0] and width >= most[1]:
        return ""
    return f"{generation}x{width} of {most[0]}x{most[1]}"


def _energy(states: Sequence[GpuState], seconds: float) -> dict[str, Any]:
    """Joules of the whole cell: by the card's counter where its readings span half of the cell, else by mean power.

    The counter is read rarely, because a reading costs milliseconds: what is not spanned is taken to draw as much as
    what is.
    """
    moved = _growth([state.energy for state in states])
    if moved is not None and moved[1] >= seconds / 2:
        return {"energy_joules": round(moved[0] / moved[1] * seconds, 3), "energy_from": "counter"}
    power = _values(state.power for state in states)
    if power:
        return {"energy_joules": round(statistics.fmean(power) * seconds, 3), "energy_from": "mean power"}
    return {}


def _growth(readings: "Sequence[Reading[float]]") -> tuple[float, float] | None:
    """How much a counter grew, and in how many seconds, from its first to its last reading; None for less than two."""
    known = [one for one in readings if one.value is not None]
    if not known or known[-1].at <= known[0].at:
        return None
    return max(known[-1].require() - known[0].require(), 0.0), known[-1].at - known[0].at


def _values(readings: "Iterable[Reading[int] | Reading[float]]") -> list[float]:
    return [float(reading.value) for reading in readings if reading.value is not None]
