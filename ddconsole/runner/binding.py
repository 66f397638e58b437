"""Binding a server to the CPUs and the memory of its GPUs' NUMA nodes, before it is executed."""

import ctypes
import os
from dataclasses import dataclass

from ddconsole.core.host_state import cpu_numbers
from ddconsole.core.sweep import Placement
from ddconsole.probe.monitor import ProbeProblem, one_sample

_SET_MEMPOLICY = 238
"""Number of the system call on x86-64."""
_MPOL_BIND = 2
_DEADLINE = 10.0


@dataclass(frozen=True, slots=True)
class Binding:
    """CPUs and memory nodes; `note` says why there are none where some were asked for."""

    cpus: frozenset[int] = frozenset()
    nodes: frozenset[int] = frozenset()
    note: str = ""

    def apply(self) -> None:
        """Bind the calling process and what it starts. Runs between fork and exec: no locks, no allocation to speak of.

        Raises:
            OSError: the kernel refuses.
        """
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)
        if self.nodes and os.uname().machine == "x86_64":
            mask = ctypes.c_ulong(sum(1 << node for node in self.nodes))
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.syscall(_SET_MEMPOLICY, _MPOL_BIND, ctypes.byref(mask), ctypes.c_ulong(64)) != 0:
                raise OSError(ctypes.get_errno(), "set_mempolicy")

    def in_words(self) -> str:
        """For the record: what was bound."""
        if not self.cpus:
            return self.note or "not bound"
        return f"NUMA {','.join(map(str, sorted(self.nodes)))}: {len(self.cpus)} CPUs and their memory"


async def binding_of(placement: Placement, *, simulated: bool) -> Binding:
    """What a placement asks for on this machine; simulated nodes have no CPUs that could be bound to."""
    if placement.bind != "numa" or not placement.gpus:
        return Binding(note="not bound")
    if simulated:
        return Binding(note="simulated: not bound")
    try:
        host = await one_sample(_DEADLINE)
    except ProbeProblem as problem:
        return Binding(note=f"not bound: {problem}")
    nodes: set[int] = set()
    for index in placement.gpus:
        gpu = host.gpu(index)
        if gpu is None or gpu.numa_node.value is None or gpu.numa_node.value < 0:
            return Binding(note=f"not bound: the NUMA node of GPU {index} is not known")
        nodes.add(gpu.numa_node.value)
    allowed = os.sched_getaffinity(0)
    found: set[int] = set()
    for node in host.nodes:
        if node.index in nodes and node.cpus.value:
            found |= set(cpu_numbers(node.cpus.value))
    if not found & allowed:
        return Binding(note="not bound: none of the nodes' CPUs may be used here")
    return Binding(frozenset(found & allowed), frozenset(nodes))
