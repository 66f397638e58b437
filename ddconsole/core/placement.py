"""Which GPUs a deployment gets, and what is wrong with a choice."""

from collections.abc import Mapping, Sequence

from ddconsole.core.sweep import Placement


def default_placement(tensor_parallel: int, bind: str = "none") -> Placement:
    """The first GPUs of the host."""
    return Placement(tuple(range(tensor_parallel)), bind)


def placement_problem(gpus: Sequence[int], tensor_parallel: int, gpu_count: int | None = None) -> str | None:
    """What is wrong with these GPUs for a tensor-parallel size, or None.

    Args:
        gpus: indices of the host's GPUs.
        tensor_parallel: how many a server needs.
        gpu_count: how many the host has, where known.
    """
    doubled = sorted({one for one in gpus if gpus.count(one) > 1})
    if doubled:
        return f"GPU {doubled[0]} is named twice"
    if len(gpus) != tensor_parallel:
        return f"size {tensor_parallel} needs {tensor_parallel} GPUs, {len(gpus)} are named"
    if gpu_count is not None:
        beyond = [one for one in gpus if one >= gpu_count]
        if beyond:
            return f"there is no GPU {beyond[0]}: the host has {gpu_count}, counted from 0"
    return None


def crosses_numa(gpus: Sequence[int], node_by_gpu: Mapping[int, int | None]) -> bool | None:
    """Whether these GPUs sit on more than one NUMA node; None where a node is not known.

    Args:
        gpus: indices of GPUs.
        node_by_gpu: NUMA node of each; None or a negative number where the system does not tell.
    """
    nodes = {node_by_gpu.get(one) for one in gpus}
    told = {node for node in nodes if node is not None and node >= 0}
    if len(told) > 1:
        return True
    return None if len(told) < len(nodes) else False


def nodes_of(gpus: Sequence[int], node_by_gpu: Mapping[int, int | None]) -> tuple[int, ...]:
    """The NUMA nodes of these GPUs, ascending, as far as known."""
    found = {node_by_gpu.get(one) for one in gpus}
    return tuple(sorted(node for node in found if node is not None and node >= 0))


def better_placement(gpus: Sequence[int], gpus_of_node: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """As many GPUs on one node, keeping as many of these as possible; empty where no node has so many."""
    large = [there for there in gpus_of_node.values() if len(there) >= len(gpus)]
    if not large:
        return ()
    there = max(large, key=lambda node: len(set(node) & set(gpus)))
    kept = [gpu for gpu in there if gpu in gpus]
    added = [gpu for gpu in there if gpu not in gpus]
    return tuple(sorted([*kept, *added][: len(gpus)]))
