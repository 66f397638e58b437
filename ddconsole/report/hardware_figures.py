"""What the hardware did during an attempt, from its record: over all GPUs of the deployment."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HardwareFigures:
    """Over the GPUs of one attempt; None where no sample told it."""

    energy: float | None = None
    """Joules of all GPUs together; None unless each of them is known."""
    energy_from: str = ""
    """`counter` or `mean power`; the less exact one where GPUs differ."""
    sm_clock: float | None = None
    """MHz, mean."""
    sm_clock_min: float | None = None
    temperature: float | None = None
    """Degrees Celsius, mean."""
    power: float | None = None
    """Watts of all GPUs together, mean."""
    numa_nodes: tuple[int, ...] | None = None
    """The NUMA nodes that the GPUs hang on."""


def hardware_figures(record: Mapping[str, Any]) -> HardwareFigures | None:
    """From `AttemptFile.hardware`; None where it holds no GPU."""
    told = record.get("gpus")
    gpus = [one for one in told.values() if isinstance(one, Mapping)] if isinstance(told, Mapping) else []
    if not gpus:
        return None
    energies = _numbers(gpus, "energy_joules")
    clocks, lowest = _numbers(gpus, "sm_clock_mean"), _numbers(gpus, "sm_clock_min")
    temperatures, powers = _numbers(gpus, "temperature_mean"), _numbers(gpus, "power_mean")
    nodes = [int(one) for one in _numbers(gpus, "numa_node")]
    sources = {str(one.get("energy_from", "")) for one in gpus}
    return HardwareFigures(
        energy=sum(energies) if len(energies) == len(gpus) else None,
        energy_from=max(sources) if len(energies) == len(gpus) else "",
        sm_clock=statistics.fmean(clocks) if clocks else None,
        sm_clock_min=min(lowest) if lowest else None,
        temperature=statistics.fmean(temperatures) if temperatures else None,
        power=sum(powers) if len(powers) == len(gpus) else None,
        numa_nodes=tuple(sorted(set(nodes))) if len(nodes) == len(gpus) else None,
    )


def _numbers(gpus: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """The values that are plain numbers: the record comes from a file."""
    told = (one.get(name) for one in gpus)
    return [float(one) for one in told if isinstance(one, int | float) and not isinstance(one, bool)]
