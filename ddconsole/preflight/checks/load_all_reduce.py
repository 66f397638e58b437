"""What a group of GPUs adds up is right, comes within its time, and goes by the way that is planned."""

from collections.abc import Mapping
from typing import Any

from ddconsole.preflight.check import Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.judge_load import are_figures, listed, load_check
from ddconsole.preflight.load_report import LoadReport
from ddconsole.preflight.profile import group_name

_SLOW, _BAD = 0.85, 0.6
"""Share of the rate that was recorded."""
_DIRECT = frozenset({"PIX", "PXB", "PHB", "SYS", "NVL"})
"""Words of NCCL_P2P_LEVEL that ask for direct copies."""


async def _all_reduce(facts: Facts, load: LoadReport) -> Verdict:
    groups = facts.plan.groups
    if not groups:
        return skipped("no placement has more than one GPU")
    tried = {group: load.collectives[group] for group in groups if group in load.collectives}
    evidence = [_line(group, found) for group, found in tried.items()]
    expected = "sums of whole numbers are right, as fast as recorded, by the planned way"
    for group, found in tried.items():
        about = f"GPU {listed(group)}"
        if "hung" in found:
            remedy = "reset these GPUs on the host; NCCL_P2P_DISABLE=1 in the plan's `engine: env:` goes round it"
            return failed(f"{about}: no end within {found['hung']:g} s", expected, remedy, evidence, about)
        if "problem" in found:
            remedy = "NCCL's own words are above; room in /dev/shm, IOMMU and ACS are the usual causes"
            return failed(f"{about}: {found['problem']}", expected, remedy, evidence, about)
        if found.get("exact") is False:
            remedy = "the IOMMU or ACS is in the way: `iommu=pt`, ACS off; or NCCL_P2P_DISABLE=1 in the plan"
            return failed(f"{about}: the sums are wrong", expected, remedy, evidence, about)
        if not are_figures(found, "latency_us", "rate") or "exact" not in found:
            return unknown(f"{about}: no usable figure", "", evidence)
    missing = [group for group in groups if group not in tried]
    if missing:
        return unknown(f"not tried: GPU {listed(missing[0])}", "ask again when its GPUs are free", evidence)
    return _compared(facts, tried, expected, evidence)


def _compared(
    facts: Facts, tried: Mapping[tuple[int, ...], Mapping[str, Any]], expected: str, evidence: list[str]
) -> Verdict:
    recorded = (facts.profile or {}).get("all_reduce") or {}
    for group, found in tried.items():
        about = f"GPU {listed(group)}"
        before = recorded.get(group_name(group)) or {}
        share = found["rate"] / before["rate"] if are_figures(before, "rate") else 1.0
        if share < _SLOW:
            observed = f"{about}: {found['rate']:.1f} GB/s, {before['rate']:.1f} were recorded"
            remedy = "compare load.link, load.copies and numa.cpus; record it anew if it is meant"
            return (failed if share < _BAD else warned)(observed, expected, remedy, evidence, about)
        ways = found.get("ways") or {}
        asked = facts.plan.engine_env.get("NCCL_P2P_LEVEL", "").upper()
        if asked in _DIRECT and ways and not any(way.startswith("P2P") for way in ways):
            observed = f"{about}: NCCL goes by {', '.join(ways)}, NCCL_P2P_LEVEL={asked} asks for direct copies"
            remedy = "p2p.status and pcie.iommu say why; or take the variable out of the plan"
            return warned(observed, expected, remedy, evidence, about)
    slowest = min(tried.values(), key=lambda one: float(one["rate"]))
    text = f"{len(tried)} groups, at least {slowest['rate']:.1f} GB/s"
    return passed(text, expected, evidence)


def _line(group: tuple[int, ...], found: Mapping[str, Any]) -> str:
    ways = ", ".join(f"{way} x{count}" for way, count in (found.get("ways") or {}).items()) or "not told"
    if not are_figures(found, "latency_us", "rate"):
        return f"GPU {listed(group)}: {found.get('problem') or found.get('hung') or 'no figure'}; ways: {ways}"
    return (
        f"GPU {listed(group)}: {found['latency_us']:.0f} us for 32 KiB, {found['rate']:.1f} GB/s over each link for "
        f"128 MiB, exact: {found.get('exact')}, ways: {ways}"
    )


CHECK = load_check("load.all-reduce", "each group of GPUs adds up right and fast", _all_reduce)
