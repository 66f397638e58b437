"""What slots, firmware and kernel let the PCIe links be. What they are is judged under load, by the load tier."""

from ddconsole.core.host_state import GpuState
from ddconsole.preflight.check import Check, Outcome, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts

_NEEDS = ("host.reachable", "driver.match", "driver.answers", "gpu.count")
_ASPM = "/sys/module/pcie_aspm/parameters/policy"
_SLOW_ASPM = frozenset({"powersave", "powersupersave"})


async def _slot(facts: Facts) -> Verdict:
    """Card and slot together. Now and idle says nothing: cards drop to generation 1 when they have nothing to do."""
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    gpus = facts.needed()
    generation, width = facts.plan.expected_link
    expected = (
        f"generation {generation or 'of the card'} x{width or ' of the card'}" if generation or width else "the card's"
    )
    blind = [gpu for gpu in gpus if not gpu.pcie_generation_max.known or not gpu.pcie_width_max.known]
    if blind or not gpus:
        text = "; ".join(f"GPU {gpu.index}: {gpu.pcie_generation_max.unavailable or 'width'}" for gpu in blind)
        return unknown(text or f"no sample of the host: {facts.host_problem}", "in a virtual machine, look at the host")
    evidence = [_line(gpu) for gpu in gpus]
    remedy = "another slot, riser or firmware setting (bifurcation, forced generation); reseat the card"
    low = [gpu for gpu in gpus if _below(gpu, generation, width)]
    if low:
        observed = ", ".join(f"GPU {gpu.index}: {_link(gpu)} at most" for gpu in low)
        return failed(observed, expected, remedy, evidence, f"GPU {low[0].index}")
    slower = [gpu for gpu in gpus if (gpu.pcie_generation_card.value or 0) > gpu.pcie_generation_max.require()]
    if slower and generation is None:
        observed = ", ".join(
            f"GPU {gpu.index}: a generation {gpu.pcie_generation_card.value} card, {_link(gpu)} with its slot"
            for gpu in slower
        )
        return warned(observed, expected, remedy, evidence, f"GPU {slower[0].index}")
    return passed(f"{_link(gpus[0])} on {len(gpus)} GPUs, card and slot", expected, evidence)


def _below(gpu: GpuState, generation: int | None, width: int | None) -> bool:
    return gpu.pcie_generation_max.require() < (generation or 0) or gpu.pcie_width_max.require() < (width or 0)


def _link(gpu: GpuState) -> str:
    return f"generation {gpu.pcie_generation_max.value} x{gpu.pcie_width_max.value}"


def _line(gpu: GpuState) -> str:
    return f"GPU {gpu.index}: card and slot {_link(gpu)}, card alone generation {gpu.pcie_generation_card.value}"


async def _peers(facts: Facts) -> Verdict:
    """What the driver says of direct copies within each group. Its ok is no proof that bytes arrive."""
    groups = sorted({one.placement.gpus for one in facts.plan.deployments if len(one.placement.gpus) > 1})
    if not groups:
        return skipped("no placement has more than one GPU")
    if facts.host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    pairs = {
        (pair.a, pair.b): pair for pair in facts.host.pairs if any({pair.a, pair.b} <= set(group) for group in groups)
    }
    if not pairs:
        return unknown("the driver was not asked about pairs of GPUs")
    evidence = [
        f"nvmlDeviceGetP2PStatus {a}-{b}: {pair.p2p.value or pair.p2p.unavailable}, {pair.common_ancestor.value}"
        for (a, b), pair in pairs.items()
    ]
    blind = [pair for pair in pairs.values() if not pair.p2p.known]
    without = [pair for pair in pairs.values() if pair.p2p.known and pair.p2p.value != "ok"]
    expected = "direct copies between the GPUs of each group"
    if without:
        first = without[0]
        observed = f"{len(without)} of {len(pairs)} pairs cannot, GPU {first.a} and {first.b}: {first.p2p.value}"
        remedy = "copies go through memory of the host, which costs latency: note it, or look at firmware and IOMMU"
        return Verdict(Outcome.WARN, observed, expected, remedy, tuple(evidence), f"GPU {first.a}")
    if blind:
        return unknown(f"GPU {blind[0].a} and {blind[0].b}: {blind[0].p2p.unavailable}", "", evidence)
    return passed(f"{len(pairs)} pairs, by the driver's word", expected, evidence)


async def _iommu(facts: Facts) -> Verdict:
    """A translating IOMMU sends copies between GPUs through the root complex; some came out as zeros."""
    if all(len(one.placement.gpus) < 2 for one in facts.plan.deployments):
        return skipped("no placement has more than one GPU")
    kinds: dict[int, str] = {}
    evidence: list[str] = []
    for gpu in facts.needed():
        path = f"/sys/bus/pci/devices/{gpu.pci_address.value}/iommu_group/type"
        try:
            kinds[gpu.index] = (await facts.machine.read_text(path)).strip()
        except FileNotFoundError:
            evidence.append(f"{path}: none")
            continue
        evidence.append(f"{path}: {kinds[gpu.index]}")
    if not evidence:
        return unknown("no GPU's PCI address is known")
    translating = [index for index, kind in kinds.items() if kind.upper().startswith("DMA")]
    expected = "no translation between GPUs"
    if translating:
        remedy = (
            "prove copies between GPUs with `--tier load`; on the host `iommu=pt` or off, and ACS off on the bridges "
            "where no other guest needs it"
        )
        observed = f"the IOMMU translates for GPU {', '.join(map(str, translating))}"
        return warned(observed, expected, remedy, evidence)
    return passed("no IOMMU translates for them", expected, evidence)


async def _aspm(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    try:
        text = (await facts.machine.read_text(_ASPM)).strip()
    except FileNotFoundError:
        return passed("this kernel does not manage it", "links are not put to sleep")
    chosen = text.partition("[")[2].partition("]")[0] or text
    evidence = [f"{_ASPM}: {text}"]
    if chosen in _SLOW_ASPM:
        remedy = "on the host: kernel parameter pcie_aspm=off, or write `performance` there"
        return warned(f"links are put to sleep ({chosen})", "default, performance or off", remedy, evidence)
    return passed(chosen, "default, performance or off", evidence)


CHECKS = (
    Check("pcie.slot", "card and slot can do what the plan expects of the link", _slot, _NEEDS, tier=Tier.STANDARD),
    Check(
        "p2p.status",
        "the driver allows direct copies within each group",
        _peers,
        _NEEDS,
        ("comparison",),
        tier=Tier.STANDARD,
    ),
    Check("pcie.iommu", "no IOMMU stands between the GPUs", _iommu, _NEEDS, ("comparison",), tier=Tier.STANDARD),
    Check("pcie.aspm", "links are not put to sleep", _aspm, blocks=("comparison",), tier=Tier.STANDARD),
)
