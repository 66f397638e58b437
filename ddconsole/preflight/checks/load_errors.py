"""Links make no errors while bytes move: counters before and after, never what they show since the start.

The rate of packets that are sent again is DCGM's, for a lane and a minute, by generation.
"""

from ddconsole.core.host_state import GpuState
from ddconsole.core.readings import Reading
from ddconsole.preflight.check import Verdict, failed, passed, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.judge_load import load_check
from ddconsole.preflight.load_report import LoadReport

_REPLAYS = {1: 0.12, 2: 0.24, 3: 0.48, 4: 0.96, 5: 1.92, 6: 3.84}
"""Packets sent again for a lane and a minute that are still in order, by generation."""
_CORRECTED = 100
"""Errors that the kernel saw corrected in one run."""


async def _errors(facts: Facts, load: LoadReport) -> Verdict:
    expected = "hardly a packet sent again, no error that the kernel counts"
    evidence: list[str] = []
    bad: list[tuple[int, str]] = []
    suspect: list[tuple[int, str]] = []
    blind: list[int] = []
    untold: list[int] = []
    minutes = max(load.seconds / 60, 1.0)
    for gpu in load.gpus:
        before = facts.host.gpu(gpu) if facts.host else None
        after = load.after.gpu(gpu) if load.after else None
        if before is None or after is None:
            blind.append(gpu)
            continue
        replays = _grown(before.pcie_replays, after.pcie_replays)
        corrected = _grown(before.aer_corrected, after.aer_corrected)
        lost = _grown(before.aer_uncorrected, after.aer_uncorrected)
        told = ("not told" if one is None else str(one) for one in (replays, corrected, lost))
        evidence.append("GPU {}: {} sent again, {} corrected, {} not corrected".format(gpu, *told))
        if replays is None and corrected is None:
            blind.append(gpu)
            continue
        if corrected is None:
            untold.append(gpu)
        allowed = _allowed(before) * minutes
        if lost:
            bad.append((gpu, f"{lost} link errors were not corrected"))
        elif replays is not None and replays > allowed:
            bad.append((gpu, f"{replays} packets were sent again, {allowed:.0f} are usual"))
        elif corrected is not None and corrected >= _CORRECTED:
            suspect.append((gpu, f"{corrected} link errors were corrected"))
    remedy = "reseat the card, riser or retimer; another slot tells whether it is the card; `pcie_aspm=off` on the host"
    if bad or suspect:
        worst = bad or suspect
        observed = ", ".join(f"GPU {gpu}: {text}" for gpu, text in worst)
        return (failed if bad else warned)(observed, expected, remedy, evidence, f"GPU {worst[0][0]}")
    if blind:
        text = f"neither driver nor kernel counted errors of GPU {', '.join(map(str, blind))} before and after"
        return unknown(text, "on the host: `lspci -vvv` of the card, and the kernel's log", evidence)
    only = "; by the driver's count, the kernel tells none here" if untold else ""
    return passed(f"none to speak of on {len(load.gpus)} GPUs{only}", expected, evidence)


def _allowed(gpu: GpuState) -> float:
    """Packets a minute: what is not known of the link is taken to be the narrowest and slowest."""
    return _REPLAYS.get(gpu.pcie_generation_max.value or 1, _REPLAYS[1]) * (gpu.pcie_width_max.value or 1)


def _grown(before: Reading[int], after: Reading[int]) -> int | None:
    if before.value is None or after.value is None:
        return None
    return max(after.value - before.value, 0)


CHECK = load_check("load.errors", "PCIe links make no errors while bytes move", _errors)
