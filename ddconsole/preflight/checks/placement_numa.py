"""The GPUs of a placement hang on one NUMA node, where that is possible."""

from ddconsole.core.placement import better_placement
from ddconsole.preflight.check import Check, Tier, Verdict, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.probe.sampler import gpus_by_node


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    placements = sorted({one.placement.gpus for one in facts.plan.deployments if len(one.placement.gpus) > 1})
    if not placements:
        return skipped("no placement has more than one GPU")
    if facts.host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    nodes = gpus_by_node(facts.host.gpus)
    if len(nodes) == 1 and len(facts.host.nodes) == 1:
        return passed("the host has one NUMA node", "one node")
    evidence = [f"NUMA {node}: GPU {_list(gpus)}" for node, gpus in nodes.items()]
    blind = [gpu for gpu in facts.needed() if not gpu.numa_node.known]
    if blind:
        reasons = ", ".join(f"GPU {gpu.index}: {gpu.numa_node.unavailable}" for gpu in blind)
        return unknown(f"the node is not known of {reasons}", "look at `nvidia-smi topo -m`", evidence)
    crossing = [gpus for gpus in placements if len(_nodes_of(gpus, nodes)) > 1]
    if not crossing:
        return passed(f"{len(placements)} placements, each on one node", "one node each", evidence)
    proposals = [(gpus, better_placement(gpus, nodes)) for gpus in crossing]
    observed = "; ".join(f"GPU {_list(gpus)} cross NUMA {_list(_nodes_of(gpus, nodes))}" for gpus, _ in proposals)
    better = [f"{len(gpus)}: [{_list(other)}]" for gpus, other in proposals if other]
    remedy = (
        f"in the plan: placement: {{{', '.join(better)}}}"
        if better
        else "no node has so many GPUs: expect the hop between sockets in its latency, and compare with a smaller size"
    )
    return warned(observed, "one node each", remedy, evidence, about=f"GPU {_list(crossing[0])}")


def _nodes_of(gpus: tuple[int, ...], nodes: dict[int, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(node for node, there in nodes.items() if set(there) & set(gpus))


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


CHECK = Check(
    "placement.numa",
    "no placement crosses NUMA nodes without need",
    _run,
    needs=("host.reachable", "driver.answers", "gpu.count"),
    tier=Tier.STANDARD,
)
