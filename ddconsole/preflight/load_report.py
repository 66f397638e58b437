"""What GPUs did under load: figures of the work, and samples of the machine while it went on."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.host_state import GpuState, HostState


@dataclass(frozen=True, slots=True)
class LoadReport:
    """One load run."""

    gpus: tuple[int, ...] = ()
    """Those that were worked on."""
    busy: tuple[int, ...] = ()
    """Needed ones that were left alone, because somebody uses them."""
    problem: str = ""
    """Why there are no figures."""
    hung: str = ""
    """What had begun and did not end."""
    copies: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """GB/s `to_gpu` and `from_gpu`, by GPU."""
    products: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """`tflops` and `exact`, by GPU."""
    peers: Mapping[tuple[int, int], Mapping[str, Any]] = field(default_factory=dict)
    """`rate` in GB/s and `exact`, by pair."""
    collectives: Mapping[tuple[int, ...], Mapping[str, Any]] = field(default_factory=dict)
    """All-reduce by group: `exact`, `latency_us` of 32 KiB, `rate` in GB/s of 128 MiB, `ways`; or `hung`, `problem`."""
    torch: Mapping[str, Any] = field(default_factory=dict)
    """What the serving environment's torch is and sees."""
    after: HostState | None = None
    """One whole sample when it was over: counters that are read rarely are fresh in it."""
    windows: Mapping[tuple[str, int], tuple[float, float]] = field(default_factory=dict)
    """Wall times of each part of each GPU."""
    samples: tuple[HostState, ...] = ()
    seconds: float = 0.0

    def during(self, part: str, gpu: int) -> list[GpuState]:
        """The GPU's states while a part was done on it; the first moments, in which clocks rise, are left out."""
        began, ended = self.windows.get((part, gpu), (0.0, 0.0))
        first = began + (ended - began) / 4
        states = [state.gpu(gpu) for state in self.samples if first <= state.at <= ended]
        return [one for one in states if one is not None]


def load_report(
    text: str, ended: bool, gpus: Sequence[int], busy: Sequence[int], samples: Sequence[HostState], seconds: float
) -> LoadReport:
    """What the child said, with GPUs as the host numbers them.

    Args:
        text: the child's output.
        ended: False where it was given up at its deadline.
        gpus: the host's numbers, in the order in which torch sees them.
        busy: needed GPUs that were left alone.
        samples: of the machine meanwhile.
        seconds: for all of it.
    """
    copies: dict[int, Mapping[str, float]] = {}
    products: dict[int, Mapping[str, Any]] = {}
    peers: dict[tuple[int, int], Mapping[str, Any]] = {}
    collectives: dict[tuple[int, ...], Mapping[str, Any]] = {}
    windows: dict[tuple[str, int], tuple[float, float]] = {}
    torch: Mapping[str, Any] = {}
    begun: dict[str, Any] = {}
    problem, done = "", False
    for line in _lines(text):
        problem = str(line.get("problem") or problem)
        done = done or bool(line.get("done"))
        torch = line.get("torch") or torch
        if "begin" in line:
            begun = line
        elif "all-reduce" in line:
            collectives[tuple(gpus[one] for one in line["group"])] = line["all-reduce"]
            begun = {}
        elif "peer" in line:
            first, second = line["pair"]
            peers[gpus[first], gpus[second]] = line["peer"]
            begun = {}
        elif "gpu" in line:
            gpu, part = gpus[line["gpu"]], "copy" if "copy" in line else "compute"
            (copies if part == "copy" else products)[gpu] = line[part]
            windows[part, gpu] = (float(begun.get("at", line["at"])), float(line["at"]))
            begun = {}
    hung = _in_words(begun, gpus) if begun and not ended else ""
    if not (problem or hung or done):
        problem = "it ended before it was through" if ended else "it did not begin in time"
    return LoadReport(
        gpus=tuple(gpus),
        busy=tuple(busy),
        problem=problem,
        hung=hung,
        copies=copies,
        products=products,
        peers=peers,
        collectives=collectives,
        torch=torch,
        windows=windows,
        samples=tuple(samples),
        seconds=seconds,
    )


def _in_words(begun: Mapping[str, Any], gpus: Sequence[int]) -> str:
    if "pair" in begun:
        return "a copy from GPU {} to GPU {}".format(*(gpus[one] for one in begun["pair"]))
    if "group" in begun:
        return f"all-reduce on GPU {', '.join(str(gpus[one]) for one in begun['group'])}"
    return f"{begun['begin']} on GPU {gpus[begun['gpu']]}"


def _lines(text: str) -> list[dict[str, Any]]:
    found = []
    for line in text.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
