"""Our readings beside nvidia-smi's, on this machine: `python -m tests.benchmarks.beside_nvidia_smi [ROUNDS]`.

Each round reads our sample, asks nvidia-smi, and reads our sample again: a value that nvidia-smi told is as it should
be when it lies between our two, give or take the sensor's resolution. Prints JSON; exit status 1 where one does not.
What moves faster than the two can be asked (power, utilisation and clocks under a load that comes and goes) is told
with how often it lay between.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pynvml

from ddconsole.core.host_state import GpuState, HostState
from ddconsole.core.readings import Reading
from ddconsole.probe.sampler import HostSampler

MIB = 1 << 20


@dataclass
class Compared:
    """One quantity: how it is asked of both, and what came of it."""

    query: str
    ours: Callable[[GpuState], Reading[int] | Reading[float] | Reading[str]]
    scale: float = 1.0
    """What one of nvidia-smi's units is in ours."""
    resolution: float = 0.0
    """In nvidia-smi's units."""
    moves: bool = False
    asked: int = 0
    agreed: int = 0
    worst: float = 0.0
    """The largest distance beyond the resolution, in nvidia-smi's units."""
    example: list[str] = field(default_factory=list)


def quantities() -> list[Compared]:
    """What is compared."""
    return [
        Compared("uuid", lambda gpu: gpu.uuid),
        Compared("memory.total", lambda gpu: gpu.memory_total, MIB, 1),
        Compared("memory.used", lambda gpu: gpu.memory_used, MIB, 1),
        Compared("temperature.gpu", lambda gpu: gpu.temperature, 1, 1),
        Compared("pcie.link.gen.current", lambda gpu: gpu.pcie_generation),
        Compared("pcie.link.gen.max", lambda gpu: gpu.pcie_generation_max),
        Compared("pcie.link.width.current", lambda gpu: gpu.pcie_width),
        Compared("enforced.power.limit", lambda gpu: gpu.power_limit, 1, 0.01),
        Compared("clocks.max.sm", lambda gpu: gpu.sm_clock_max),
        Compared("ecc.errors.uncorrected.volatile.total", lambda gpu: gpu.ecc_uncorrected),
        Compared("power.draw.average", lambda gpu: gpu.power, 1, 0.5, moves=True),
        Compared("power.draw.instant", lambda gpu: gpu.power_now, 1, 0.5, moves=True),
        Compared("clocks.sm", lambda gpu: gpu.sm_clock, 1, 15, moves=True),
        Compared("utilization.gpu", lambda gpu: gpu.utilisation, 1, 1, moves=True),
    ]


def smi(names: Sequence[str]) -> list[list[str]]:
    """What nvidia-smi says, a list for each GPU."""
    argv = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"]
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return [[word.strip() for word in line.split(",")] for line in out.strip().splitlines()]


def compare(one: Compared, theirs: str, before: GpuState, after: GpuState) -> None:
    """Count one answer of nvidia-smi's."""
    values = [reading.value for reading in (one.ours(before), one.ours(after)) if reading.value is not None]
    if theirs.startswith("[") or not values:
        one.example = [theirs, "not told here" if not values else str(values[0])]
        return
    one.asked += 1
    one.example = [theirs, *(str(value) for value in values)]
    if isinstance(values[0], str):
        one.agreed += theirs == values[0]
        return
    numbers = [float(value) / one.scale for value in values]
    beyond = max(min(numbers) - one.resolution - float(theirs), float(theirs) - max(numbers) - one.resolution, 0.0)
    one.agreed += beyond == 0
    one.worst = max(one.worst, beyond)


def main() -> int:
    """Compare for some rounds."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    found = quantities()
    sampler = HostSampler(pynvml, time.time)
    sampler.sample()
    for _ in range(rounds):
        time.sleep(1.1)  # beyond the second for which some readings are kept
        first: HostState = sampler.sample()
        theirs = smi([one.query for one in found])
        time.sleep(1.1)
        second = sampler.sample()
        for before, after, row in zip(first.gpus, second.gpus, theirs, strict=True):
            for one, word in zip(found, row, strict=True):
                compare(one, word, before, after)
    wrong = [one.query for one in found if one.agreed < one.asked and not one.moves]
    table = [
        {
            "query": one.query,
            "agreed": f"{one.agreed}/{one.asked}",
            "worst_beyond": round(one.worst, 3),
            "example": one.example,
            "moves": one.moves,
        }
        for one in found
    ]
    json.dump({"rounds": rounds, "differ": wrong, "quantities": table}, sys.stdout, indent=1)
    print()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
