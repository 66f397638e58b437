"""The kernel knows where the GPUs are, this process may use the CPUs beside them, and nobody moves its memory about."""

from ddconsole.core.host_state import HostState, cpu_numbers
from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.probe.sampler import gpus_by_node

_NEEDS = ("host.reachable", "driver.match", "driver.answers", "gpu.count")
_BALANCING = "/proc/sys/kernel/numa_balancing"


async def _known(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    host = facts.host
    if host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    wanted = facts.plan.expected_nodes
    expected = f"each GPU on one of {wanted} nodes" if wanted else "each GPU on a node that the host has"
    evidence = [
        f"{node.source} GPU {gpu.index}: {node.value if node.known else node.unavailable}"
        for gpu in facts.needed()
        for node in (gpu.numa_node,)
    ]
    if wanted is not None and len(host.nodes) != wanted:
        observed = f"{len(host.nodes)} NUMA nodes"
        remedy = "firmware of the host: nodes per socket (NPS); or correct the plan's `expect: numa_nodes`"
        return failed(observed, expected, remedy, evidence)
    if len(host.nodes) < 2:
        return passed("the host has one NUMA node", expected, evidence)
    blind = [gpu for gpu in facts.needed() if not gpu.numa_node.known]
    if blind:
        observed = "; ".join(f"GPU {gpu.index}: {gpu.numa_node.unavailable}" for gpu in blind)
        return unknown(observed, "look at `nvidia-smi topo -m`; firmware of the host: locality tables", evidence)
    nodes = gpus_by_node(host.gpus)
    if len(host.gpus) > 1 and len(nodes) == 1:
        observed = f"all {len(host.gpus)} GPUs are said to be on node {next(iter(nodes))} of {len(host.nodes)}"
        remedy = "true for a machine with all cards at one socket, else firmware of the host: locality tables"
        return warned(observed, expected, remedy, evidence)
    shown = "; ".join(f"node {node}: GPU {', '.join(map(str, gpus))}" for node, gpus in nodes.items())
    return passed(shown, expected, evidence)


async def _cpus(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    host = facts.host
    if host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    try:
        allowed = _allowed(await facts.machine.read_text("/proc/self/status"))
    except (OSError, ValueError) as problem:
        return unknown(f"/proc/self/status does not tell the allowed CPUs: {problem}")
    needed = sorted({gpu.numa_node.value for gpu in facts.needed() if gpu.numa_node.value is not None})
    if len(host.nodes) < 2 or not needed:
        return skipped("one NUMA node" if len(host.nodes) < 2 else "the GPUs' nodes are not known")
    cpus = _cpus_of(host)
    evidence = [
        f"/proc/self/status Cpus_allowed_list: {len(allowed)} CPUs",
        *(
            f"node {node}: {len(cpus.get(node, set()) & allowed)} of {len(cpus.get(node, ()))} may be used"
            for node in needed
        ),
    ]
    expected = "CPUs of every node that has a needed GPU"
    missing = [node for node in needed if not cpus.get(node, set()) & allowed]
    if missing:
        observed = f"no CPU of node {', '.join(map(str, missing))} may be used: servers there are not bound, silently"
        remedy = "give the container CPUs of both sockets (Proxmox: `cores`, or lxc.cgroup2.cpuset.cpus)"
        return failed(observed, expected, remedy, evidence)
    return passed(f"CPUs of node {', '.join(map(str, needed))}", expected, evidence)


def _allowed(status: str) -> set[int]:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "Cpus_allowed_list":
            return set(cpu_numbers(value.strip()))
    raise ValueError("no Cpus_allowed_list")


def _cpus_of(host: HostState) -> dict[int, set[int]]:
    return {node.index: set(cpu_numbers(node.cpus.value or "")) for node in host.nodes}


async def _binding(facts: Facts) -> Verdict:
    """Whether the kernel lets us bind memory: a container's filter can forbid it, and engines then skip it silently."""
    if not facts.plan.bind_numa:
        return skipped("the plan binds nothing to NUMA nodes")
    if facts.host is None or len(facts.host.nodes) < 2:
        return skipped("one NUMA node")
    ran = await facts.machine.child("bind", deadline=5.0)
    if ran.exit_code != 0:
        return unknown(f"the child that tries it ended with {ran.exit_code}: {ran.err.strip()[-120:]}")
    error = ran.out.strip().strip('"')
    evidence = [f"set_mempolicy(MPOL_BIND) in a child: {error or 'ok'}"]
    if error not in {"", "null"}:
        remedy = "allow set_mempolicy in the container (its seccomp filter), or `bind: none` in the plan"
        return failed(f"binding memory gives {error}", "memory can be bound", remedy, evidence)
    return passed("memory can be bound", "memory can be bound", evidence)


async def _balancing(facts: Facts) -> Verdict:
    if facts.host is not None and len(facts.host.nodes) < 2:
        return skipped("one NUMA node")
    try:
        value = (await facts.machine.read_text(_BALANCING)).strip()
    except FileNotFoundError:
        return passed("this kernel has none", "off")
    evidence = [f"{_BALANCING}: {value}"]
    if value == "0":
        return passed("off", "off", evidence)
    remedy = "on the host: `sysctl kernel.numa_balancing=0`; it stops servers for milliseconds to move their pages"
    return warned("automatic NUMA balancing is on", "off", remedy, evidence)


CHECKS = (
    Check("numa.known", "the kernel knows which socket each needed GPU is on", _known, _NEEDS, tier=Tier.STANDARD),
    Check("numa.cpus", "servers may use the CPUs beside their GPUs", _cpus, _NEEDS),
    Check("numa.binding", "memory can be bound to a NUMA node", _binding, tier=Tier.STANDARD),
    Check(
        "numa.balancing",
        "the kernel does not move memory between nodes by itself",
        _balancing,
        blocks=("comparison",),
        tier=Tier.STANDARD,
    ),
)
