"""Links, clocks, answers and copies, judged where they can be: under load, on GPUs that nobody else uses."""

import statistics
from collections import Counter

from ddconsole.core.host_state import DISTURBING_REASONS, reason_names
from ddconsole.preflight.check import Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.judge_load import are_figures, listed, load_check
from ddconsole.preflight.load_report import LoadReport

_LANE = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
"""GB/s of one lane, by generation."""
_SLOW_COPY, _BAD_COPY = 0.7, 0.4
"""Share of the link's rate; cards of this kind reach 0.85 to 0.9 on metal."""
_SLOW_CLOCK, _BAD_CLOCK = 0.95, 0.85
"""Share of the middle one of all GPUs, or of what was recorded."""


async def _link(facts: Facts, load: LoadReport) -> Verdict:
    """The generation while bytes move: idle cards drop to 1, and one that stays there under load has no other sign."""
    expected_generation, expected_width = facts.plan.expected_link
    evidence: list[str] = []
    low: list[tuple[int, str, bool]] = []
    blind: list[int] = []
    for gpu in load.gpus:
        states = load.during("copy", gpu)
        links = Counter(
            (one.pcie_generation.value, one.pcie_width.value)
            for one in states
            if one.pcie_generation.value is not None and one.pcie_width.value is not None
        )
        if not links:
            blind.append(gpu)
            continue
        generation = expected_generation or states[0].pcie_generation_max.value or 0
        width = expected_width or states[0].pcie_width_max.value or 0
        evidence.append(f"GPU {gpu}: " + ", ".join(f"{g}x{w} in {n} samples" for (g, w), n in links.most_common()))
        below = {link: n for link, n in links.items() if link[0] < generation or link[1] < width}
        if below:
            usual = links.most_common(1)[0][0] in below
            worst = min(below)
            low.append((gpu, f"generation {worst[0]} x{worst[1]}, {generation}x{width} is meant", usual))
    expected = f"generation {expected_generation or 'of card and slot'} x{expected_width or ' of card and slot'}"
    if low:
        observed = ", ".join(f"GPU {gpu}: {text}" for gpu, text, _ in low)
        remedy = "slot, riser, forced generation in the firmware, ASPM; reset the GPU and look again"
        verdict = failed if any(usual for _, _, usual in low) else warned
        return verdict(f"under load {observed}", expected, remedy, evidence, f"GPU {low[0][0]}")
    if blind:
        return unknown(f"the link of GPU {listed(blind)} was not told under load", "", evidence)
    return passed(f"as meant on {len(load.gpus)} GPUs under load", expected, evidence)


async def _clocks(facts: Facts, load: LoadReport) -> Verdict:
    evidence: list[str] = []
    means: dict[int, float] = {}
    reasons: dict[int, int] = {}
    for gpu in load.gpus:
        states = load.during("compute", gpu)
        clocks = [one.sm_clock.value for one in states if one.sm_clock.value is not None]
        if not clocks:
            return unknown(f"the clock of GPU {gpu} was not told under load", "", evidence)
        means[gpu] = statistics.fmean(clocks)
        for one in states:
            reasons[gpu] = reasons.get(gpu, 0) | (one.clock_event_reasons.value or 0)
        most = states[0].sm_clock_max.value
        names = ", ".join(reason_names(reasons[gpu])) or "none"
        evidence.append(f"GPU {gpu}: {means[gpu]:.0f} MHz of {most} on average, held back by: {names}")
    slowed = {gpu: mask & DISTURBING_REASONS for gpu, mask in reasons.items() if mask & DISTURBING_REASONS}
    expected = "all at about the same clock, held back by nothing but the power cap"
    if slowed:
        observed = ", ".join(f"GPU {gpu}: {', '.join(reason_names(mask))}" for gpu, mask in slowed.items())
        remedy = "heat: fans and air flow; power brake: power supplies and cables"
        return failed(f"slowed under load: {observed}", expected, remedy, evidence, f"GPU {next(iter(slowed))}")
    middle = statistics.median(means.values())
    slow = {gpu: mean for gpu, mean in means.items() if mean < _SLOW_CLOCK * middle}
    remedy = "on the host: `nvidia-smi -rgc -rmc` takes locked clocks away; compare power limits and temperatures"
    if slow:
        observed = ", ".join(
            f"GPU {gpu} runs at {mean:.0f} MHz, the others at {middle:.0f}" for gpu, mean in slow.items()
        )
        bad = any(mean < _BAD_CLOCK * middle for mean in slow.values())
        return (failed if bad else warned)(observed, expected, remedy, evidence, f"GPU {next(iter(slow))}")
    caps = [
        (gpu, one.sm_clock_set.value, one.sm_clock_max.value)
        for gpu in load.gpus
        for one in load.during("compute", gpu)[:1]
        if one.sm_clock_set.value and one.sm_clock_max.value and one.sm_clock_set.value < 0.9 * one.sm_clock_max.value
    ]
    if caps and max(means.values()) <= 1.02 * max(set_ for _, set_, _ in caps):
        observed = ", ".join(f"GPU {gpu} is set to {set_} of {most} MHz" for gpu, set_, most in caps)
        return warned(observed, expected, remedy, evidence, f"GPU {caps[0][0]}")
    return passed(f"{middle:.0f} MHz on {len(means)} GPUs", expected, evidence)


async def _copies(facts: Facts, load: LoadReport) -> Verdict:
    evidence: list[str] = []
    shares: dict[int, float] = {}
    for gpu in load.gpus:
        rates = load.copies.get(gpu, {})
        state = facts.host.gpu(gpu) if facts.host else None
        generation = state.pcie_generation_max.value if state else None
        width = state.pcie_width_max.value if state else None
        if not are_figures(rates, "to_gpu", "from_gpu"):
            return unknown(f"no usable figure of GPU {gpu}: {dict(rates)}", "", evidence)
        evidence.append(f"GPU {gpu}: {rates['to_gpu']:.1f} GB/s there, {rates['from_gpu']:.1f} GB/s back")
        if generation is None or width is None or generation not in _LANE:
            return unknown(f"what the link of GPU {gpu} can do is not known", "", evidence)
        shares[gpu] = min(rates["to_gpu"], rates["from_gpu"]) / (_LANE[generation] * width)
    expected = f"{_SLOW_COPY:.0%} of what card and slot can do"
    slow = {gpu: share for gpu, share in shares.items() if share < _SLOW_COPY}
    if slow:
        observed = ", ".join(f"GPU {gpu}: {share:.0%} of its link" for gpu, share in slow.items())
        remedy = "memory of the wrong socket, a switch that is shared, or a link that trained down: see load.link"
        bad = any(share < _BAD_COPY for share in slow.values())
        return (failed if bad else warned)(observed, expected, remedy, evidence, f"GPU {next(iter(slow))}")
    return passed(f"{min(shares.values()):.0%} of the link or better", expected, evidence)


async def _answers(_: Facts, load: LoadReport) -> Verdict:
    expected = "whole numbers come out as on the CPU"
    evidence: list[str] = []
    for gpu in load.gpus:
        found = load.products.get(gpu, {})
        if not are_figures(found, "tflops") or "exact" not in found:
            return unknown(f"no usable figure of GPU {gpu}: {dict(found)}", "", evidence)
        evidence.append(f"GPU {gpu}: {found['tflops']:.0f} TFLOP/s in bfloat16, exact: {found['exact']}")
    wrong = [gpu for gpu in load.gpus if not load.products[gpu]["exact"]]
    if wrong:
        remedy = "do not use it: run NVIDIA's own diagnosis (`dcgmi diag -r 3`), the card is to be replaced"
        return failed(f"GPU {listed(wrong)} computes wrong results", expected, remedy, evidence, f"GPU {wrong[0]}")
    return passed(f"{len(load.gpus)} GPUs compute right", expected, evidence)


async def _peers(_: Facts, load: LoadReport) -> Verdict:
    if len(load.gpus) < 2 or not load.peers:
        return skipped("no two of the GPUs belong to one group") if len(load.gpus) < 2 else unknown("no pair was tried")
    evidence = [
        f"GPU {a} to {b}: {one.get('rate', 0):.1f} GB/s, exact: {one.get('exact')}"
        for (a, b), one in load.peers.items()
    ]
    wrong = [pair for pair, one in load.peers.items() if one.get("exact") is False]
    expected = "the bytes that were sent arrive"
    if wrong:
        remedy = "the IOMMU or ACS is in the way: `iommu=pt`, ACS off; or NCCL_P2P_DISABLE=1 in the plan"
        observed = ", ".join(f"from GPU {a} to GPU {b} other bytes arrive" for a, b in wrong)
        return failed(observed, expected, remedy, evidence, f"GPU {wrong[0][0]}")
    if not all(are_figures(one, "rate") and "exact" in one for one in load.peers.values()):
        return unknown("a pair has no usable figure", "", evidence)
    return passed(
        f"{len(load.peers)} pairs, at least {min(one['rate'] for one in load.peers.values()):.1f} GB/s",
        expected,
        evidence,
    )


CHECKS = (
    load_check("load.answers", "the needed GPUs compute right results", _answers),
    load_check("load.link", "PCIe links are what they should be while bytes move", _link),
    load_check("load.copies", "copies from and to the host are as fast as the link", _copies),
    load_check("load.clocks", "clocks are alike and held back by nothing under load", _clocks),
    load_check("load.peers", "bytes that one GPU sends to another arrive", _peers),
)
