"""The groups of GPUs that the run's servers get, against the NUMA nodes: which cross, and what would not."""

from collections.abc import Mapping, Sequence

from ddconsole.core.host_state import HostState
from ddconsole.core.placement import better_placement
from ddconsole.core.run_state import RunState
from screens.hardware_text import number_ranges
from screens.spans import Line, Role, cut, line


def crossing_lines(state: RunState, machine: HostState, width: int) -> list[Line]:
    """A line for each group that crosses nodes; none where no group does."""
    nodes: dict[int, tuple[int, ...]] = {
        node.index: node.gpus for node in machine.nodes if node.gpus and len(machine.nodes) > 1
    }
    return [_crossing(gpus, nodes, width) for gpus in _groups(state) if len(_nodes_of(gpus, nodes)) > 1]


def _groups(state: RunState) -> Sequence[tuple[int, ...]]:
    found = {one.placement.gpus for one in state.deployments.values() if len(one.placement.gpus) > 1}
    return sorted(found, key=lambda gpus: (len(gpus), gpus))


def _nodes_of(gpus: Sequence[int], nodes: Mapping[int, Sequence[int]]) -> list[int]:
    return [node for node, there in nodes.items() if set(there) & set(gpus)]


def _crossing(gpus: tuple[int, ...], nodes: Mapping[int, Sequence[int]], width: int) -> Line:
    where = " and ".join(str(node) for node in _nodes_of(gpus, nodes))
    said = f" TP{len(gpus)} on GPU {number_ranges(gpus)} crosses NUMA {where}"
    other = better_placement(gpus, nodes)
    if not other:
        return line((cut(said, width), Role.WARN), ("  no node has so many", Role.DIM))
    written = f"  better: placement: {{{len(gpus)}: [{', '.join(map(str, other))}]}}"
    if len(said) + len(written) > width:
        written = f"  better: GPU {number_ranges(other)}"
    return line((said, Role.WARN), (written, Role.PLAIN))
