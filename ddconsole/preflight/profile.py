"""What a host was when it was good: recorded on demand, compared with ever after."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddconsole.core.host_state import GpuState
from ddconsole.core.readings import Reading
from ddconsole.preflight.facts import Facts

CARD_SETTINGS = {
    "name": "card", "memory": "memory", "vbios": "VBIOS", "link": "link of card and slot", "clock": "highest clock",
    "power": "power limit", "node": "NUMA node", "ecc": "error correction", "persistence": "persistence mode",
}  # fmt: skip
"""What is compared of each card, and what it is called."""


def profile_of(facts: Facts, at: float) -> dict[str, Any]:
    """The host as it is, as JSON. What cannot be read is null and is not compared."""
    host = facts.host
    return {
        "at": at,
        "hostname": host.hostname.value if host else None,
        "driver": host.driver.value if host else None,
        "kernel": host.kernel.value if host else None,
        "build": dict(facts.build) if facts.build else None,
        "cards": [_card(facts, gpu) for gpu in host.gpus] if host else [],
        "all_reduce": _all_reduce(facts),
        "pairs": {f"{pair.a}-{pair.b}": pair.common_ancestor.value for pair in host.pairs} if host else {},
    }


def group_name(gpus: Sequence[int]) -> str:
    """A group of GPUs as a profile names it: `4-5-6-7`."""
    return "-".join(map(str, gpus))


def cards_by_uuid(profile: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The cards of a profile that told who they are."""
    return {str(card["uuid"]): card for card in profile.get("cards", ()) if card.get("uuid")}


def build_key(build: Mapping[str, Any] | None) -> str:
    """What tells one build of an engine from another; empty where nothing does."""
    if not build:
        return ""
    words = [str(build[name]) for name in ("version", "commit", "changes") if build.get(name)]
    return " ".join(words)


def _all_reduce(facts: Facts) -> dict[str, Any]:
    """Rates by group; those of an earlier profile are kept where nothing was put under load now."""
    if facts.load is None:
        return dict((facts.profile or {}).get("all_reduce") or {})
    return {group_name(group): {"rate": found.get("rate")} for group, found in facts.load.collectives.items()}


def _card(facts: Facts, gpu: GpuState) -> dict[str, Any]:
    slow = facts.inventory.gpu(gpu.index)
    ecc = slow.ecc.value if slow else None
    return {
        "uuid": gpu.uuid.value,
        "index": gpu.index,
        "pci": gpu.pci_address.value,
        "name": gpu.name.value,
        "memory": gpu.memory_total.value,
        "vbios": slow.vbios.value if slow else None,
        "link": _link(gpu.pcie_generation_max, gpu.pcie_width_max),
        "clock": gpu.sm_clock_max.value,
        "power": gpu.power_limit.value,
        "node": gpu.numa_node.value,
        "ecc": ecc[0] if ecc is not None else None,
        "persistence": slow.persistence.value if slow else None,
    }


def _link(generation: Reading[int], width: Reading[int]) -> str | None:
    return f"generation {generation.value} x{width.value}" if generation.known and width.known else None
