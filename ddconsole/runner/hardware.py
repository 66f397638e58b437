"""What the hardware did while a cell was measured, from the samples that the agent keeps beside the journal."""

import json
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ddconsole.core.host_state import DISTURBING_REASONS, GpuState, HostState, reason_names
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.readings import Reading

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


def hardware_record(samples: Sequence[HostState], gpus: Sequence[int]) -> dict[str, Any]:
    """Per GPU of the deployment: mean and lowest clock, mean power, energy, link, throttling. Empty without samples."""
    record: dict[str, Any] = {"samples": len(samples)}
    record["gpus"] = {
        str(index): _gpu_record([gpu for state in samples if (gpu := state.gpu(index)) is not None]) for index in gpus
    }
    cpu = _values(state.cpu_percent for state in samples)
    if cpu:
        record["cpu_percent"] = statistics.fmean(cpu)
    return record


def disturbances(record: dict[str, Any]) -> tuple[str, ...]:
    """What disturbed the cell, in words."""
    flags = []
    for index, gpu in record.get("gpus", {}).items():
        reasons = gpu.get("throttled_by", [])
        if reasons:
            flags.append(f"GPU {index} was slowed: {', '.join(reasons)}")
    return tuple(flags)


def _gpu_record(states: Sequence[GpuState]) -> dict[str, Any]:
    clocks = _values(state.sm_clock for state in states)
    power = _values(state.power for state in states)
    energy = _values(state.energy for state in states)
    record: dict[str, Any] = {}
    if clocks:
        record["sm_clock_mean"], record["sm_clock_min"] = statistics.fmean(clocks), min(clocks)
    if power:
        record["power_mean"] = statistics.fmean(power)
    if len(energy) > 1:
        record["energy_joules"] = energy[-1] - energy[0]
    links = {
        f"{state.pcie_generation.value}x{state.pcie_width.value}"
        for state in states
        if state.pcie_generation.known and state.pcie_width.known
    }
    record["links"] = sorted(links)
    masks = [int(mask) for mask in _values(state.clock_event_reasons for state in states)]
    disturbing = 0
    for mask in masks:
        disturbing |= mask & DISTURBING_REASONS
    record["throttled_by"] = list(reason_names(disturbing)) if disturbing else []
    return record


def _values(readings: "Iterable[Reading[int] | Reading[float]]") -> list[float]:
    return [float(reading.value) for reading in readings if reading.value is not None]
