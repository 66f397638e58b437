"""The groups of GPUs that the run's servers get, against the NUMA nodes: which cross, and what would not."""

from collections.abc import Mapping, Sequence

from ddconsole.core.host_state import HostState
from ddconsole.core.placement import better_placement
from ddconsole.core.run_state import RunState
from screens.hardware_text import number_ranges
from screens.spans import Line, Role, Span, cut, line


def crossing_lines(state: RunState, machine: HostState, width: int) -> list[Line]:
    """A line for each group that crosses nodes; none where no group does."""
    nodes: dict[int, tuple[int, ...]] = {
        node.index: node.gpus for node in machine.nodes if node.gpus and len(machine.nodes) > 1
    }
    return [_crossing(gpus, nodes, width) for gpus in _groups(state) if len(_nodes_of(gpus, nodes)) > 1]


def groups_in_words(state: RunState) -> str:
    """`TP1 on GPU 7, TP4 on 4-7`: what the run's servers get; empty where they get none."""
    placed = sorted({one.placement.gpus for one in state.deployments.values() if one.placement.gpus})
    return ", ".join(f"TP{len(gpus)} on {number_ranges(gpus)}" for gpus in sorted(placed, key=len))


def _groups(state: RunState) -> Sequence[tuple[int, ...]]:
    found = {one.placement.gpus for one in state.deployments.values() if len(one.placement.gpus) > 1}
    return sorted(found, key=lambda gpus: (len(gpus), gpus))


def _nodes_of(gpus: Sequence[int], nodes: Mapping[int, Sequence[int]]) -> list[int]:
    return [node for node, there in nodes.items() if set(there) & set(gpus)]


def _crossing(gpus: tuple[int, ...], nodes: Mapping[int, Sequence[int]], width: int) -> Line:
    where = " and ".join(str(node) for node in _nodes_of(gpus, nodes))
    other = better_placement(gpus, nodes)
    spans: list[Span] = [(f" TP{len(gpus)} on GPU {number_ranges(gpus)} crosses NUMA {where}", Role.WARN)]
    if other:
        spans.append((f"  placement: {{{len(gpus)}: [{', '.join(map(str, other))}]}} would not", Role.PLAIN))
    else:
        spans.append(("  no node has so many", Role.DIM))
    text = "".join(part for part, _ in spans)
    return line(*spans) if len(text) <= width else line((cut(text, width), Role.WARN))
