"""The machine as lines: NUMA domains as boxes with their CPUs, memory and GPUs; then what happened, who, and links."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ddconsole.core import states as st
from ddconsole.core.host_state import GpuState, HostState, NumaNode
from ddconsole.core.run_state import RunState
from screens.hardware_text import bar, number, number_ranges, share, throttling
from screens.spans import EMPTY, Line, Role, Span, cut, fitted, joined, line, shown
from screens.widgets.status_header import age_in_words
from screens.widgets.time_series import graph

GIB = float(1 << 30)
OLD_AFTER = 10.0
"""Seconds after which a sample is said to be old: the agent takes one a second."""
SECTIONS = ("time series", "processes", "links")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What the host screen shows."""

    host: str
    machine: HostState | None
    history: Sequence[HostState]
    state: RunState
    now: float

    @property
    def age(self) -> float:
        """Seconds since the sample."""
        return max(0.0, self.now - self.machine.at) if self.machine is not None else 0.0

    @property
    def old(self) -> bool:
        """The values are not of now."""
        return self.age > OLD_AFTER


def host_lines(facts: HostFacts, size: tuple[int, int], section: int) -> list[Line]:
    """The machine in `size` (cells, lines): the overview, and below it a section, or all where there is room."""
    width, height = size
    machine = facts.machine
    if machine is None:
        return [EMPTY, line((f"  no sample of {shown(facts.host)} yet", Role.DIM))]
    lines = [*_head(facts, machine, width), *_nodes(facts, machine, width)]
    sections: tuple[Callable[[HostFacts, HostState, int], list[Line]], ...] = (_series, _processes, _links)
    if width >= 110 and height >= 36:
        for make in sections:
            lines += [EMPTY, *make(facts, machine, width)]
        return lines
    return [*lines, *sections[section % len(sections)](facts, machine, width)]


def _head(facts: HostFacts, machine: HostState, width: int) -> list[Line]:
    first: list[Span] = [(f" {shown(machine.hostname.value or facts.host)}", Role.TITLE)]
    if machine.simulated:
        first.append((" SIMULATED ", Role.ALARM))
    if facts.old:
        first.append((f"no answer for {age_in_words(facts.age)}: values are old", Role.BAD))
    driver = machine.driver
    first.append(
        (f"driver {shown(driver.value)}" if driver.known else f"no driver: {shown(driver.unavailable)}", _d(facts))
    )
    if machine.cuda_driver.known:
        first.append((f"CUDA {shown(machine.cuda_driver.value)}", Role.DIM))
    cpus = f"CPU {number(machine.cpu_percent, ' %')} of {number(machine.cpu_count)}"
    load = machine.load.value
    first += [(cpus, _d(facts)), (f"load {load[0]:.1f}" if load else "", Role.DIM)]
    return [fitted(first, width), _memory(facts, machine, width)]


def _memory(facts: HostFacts, machine: HostState, width: int) -> Line:
    total, free = machine.memory_total, machine.memory_available
    used = None if total.value is None or free.value is None else total.value - free.value
    size = 10 if width < 110 else 20
    portion = used / total.value if used is not None and total.value else None
    told = "n/a" if used is None else f"{used / GIB:,.0f} of {number(total, ' GiB', scale=GIB)}"
    spans: list[Span] = [
        (" memory", Role.DIM),
        (told, _d(facts)),
        (f"shm free {number(machine.shm_free, ' GiB', scale=GIB)}", Role.DIM),
    ]
    spans += [
        (f"{cut(shown(one.path), 20)} free {number(one.free, ' GiB', scale=GIB)}", Role.DIM) for one in machine.disks
    ]
    head = (*bar(portion, size, Role.DIM if facts.old else Role.ACCENT), ("  ", Role.PLAIN))
    return (*joined([spans[0], (" ", Role.PLAIN)], ""), *head, *fitted(spans[1:], width - size - 12))


def _d(facts: HostFacts) -> Role:
    return Role.DIM if facts.old else Role.PLAIN


# --- NUMA domains


def _nodes(facts: HostFacts, machine: HostState, width: int) -> list[Line]:
    users = gpu_users(facts.state)
    lines: list[Line] = []
    housed: set[int] = set()
    for node in machine.nodes:
        gpus = [gpu for gpu in machine.gpus if gpu.index in node.gpus]
        housed |= {gpu.index for gpu in gpus}
        lines += _box(_node_title(node, width), [_gpu(facts, gpu, users, width - 4) for gpu in gpus], width)
    homeless = [gpu for gpu in machine.gpus if gpu.index not in housed]
    if homeless:
        title: Line = ((" NUMA node not known ", Role.WARN),)
        lines += _box(title, [_gpu(facts, gpu, users, width - 4) for gpu in homeless], width)
    if not machine.gpus:
        count = machine.gpu_count
        why = "the driver counts none" if count.known else shown(count.unavailable)
        lines.append(line((f" no GPU: {why}", Role.WARN)))
    return lines


def gpu_users(state: RunState) -> Mapping[int, str]:
    """Which cell, or which launch, is on which GPU."""
    launch = state.live_launch()
    if launch is None:
        return {}
    deployment = state.deployments[launch.deployment]
    running = state.running_cell()
    on_it = running is not None and isinstance(running.state, st.Running) and running.state.launch == launch.number
    name = running.cell.id if on_it and running is not None else f"launch {launch.number}"
    return {index: f"{name} {shown(deployment.method)}" for index in deployment.placement.gpus}


def _node_title(node: NumaNode, width: int) -> Line:
    total, free = node.memory_total, node.memory_free
    used = None if total.value is None or free.value is None else total.value - free.value
    portion = used / total.value if used is not None and total.value else None
    memory = "n/a" if used is None else f"{used / GIB:,.0f} of {number(total, ' GiB', scale=GIB)}"
    cpus = shown(node.cpus.value) if node.cpus.known else "n/a"
    return (
        (f" NUMA {node.index}  ", Role.STRONG),
        (f"CPUs {cut(cpus, max(12, width - 52))}  memory ", Role.PLAIN),
        *bar(portion, 8, Role.ACCENT),
        (f" {memory} ", Role.PLAIN),
    )


def _box(title: Line, lines: Sequence[Line], width: int) -> list[Line]:
    used = sum(len(text) for text, _ in title)
    top = line(("┌─", Role.DIM), *title, ("─" * max(0, width - used - 3) + "┐", Role.DIM))
    body = [line(("│ ", Role.DIM), *_filled(one, width - 4), (" │", Role.DIM)) for one in lines]
    return [top, *body, line(("└" + "─" * max(0, width - 2) + "┘", Role.DIM))]


def _filled(the_line: Line, width: int) -> Line:
    """A line cut or filled to `width`."""
    spans: list[Span] = []
    room = width
    for text, role in the_line:
        spans.append((text[:room], role))
        room -= len(text[:room])
    return (*spans, (" " * room, Role.PLAIN))


def _gpu(facts: HostFacts, gpu: GpuState, users: Mapping[int, str], width: int) -> Line:
    """One GPU on one line: utilisation, memory, power, temperature, clock, link, and who is on it."""
    old = facts.old
    wide = width >= 106
    size = max(4, min(16, (width - 96) // 3 if wide else (width - 65) // 2))
    user = users.get(gpu.index, "")
    user = user if wide else cut(user, max(0, width - 56 - 2 * size))
    memory = f"{number(gpu.memory_used, '', scale=GIB, digits=1)}/{number(gpu.memory_total, ' GiB', scale=GIB)}"
    power = f"{number(gpu.power)}/{number(gpu.power_limit, ' W')}"
    gap: Span = (" ", Role.PLAIN)
    live, held = (Role.DIM, Role.DIM) if old else (Role.LIVE, Role.ACCENT)
    spans: list[Span] = [(f"{gpu.index:>2} ", Role.DIM if old else Role.STRONG)]
    spans += [*bar(share_of_hundred(gpu), size, live), (f" {number(gpu.utilisation, ' %'):>5} ", _d(facts))]
    spans += [*bar(share(gpu.memory_used, gpu.memory_total), size, held), (f" {memory:>12} ", _d(facts))]
    if wide:
        spans += [*bar(share(gpu.power, gpu.power_limit), size, Role.DIM if old else Role.WARN), gap]
    spans += [(f"{power:>9} ", _d(facts)), (f"{number(gpu.temperature):>3} °C ", _temperature_role(gpu, old=old))]
    text, role = link_span(gpu, old=old)
    spans.append((f"{text:<14} ", role))
    if wide:
        text, role = throttling([gpu], stale=old)
        spans.append((f"{number(gpu.sm_clock, ' GHz', scale=1000, digits=2):>8} ", _d(facts)))
        spans.append((f"{text} ", role if role is Role.BAD else Role.DIM))
    return (*spans, (user, Role.DIM if old else Role.LIVE))


def share_of_hundred(gpu: GpuState) -> float | None:
    """Utilisation from 0 to 1."""
    return None if gpu.utilisation.value is None else gpu.utilisation.value / 100


def _temperature_role(gpu: GpuState, *, old: bool) -> Role:
    if old or gpu.temperature.value is None:
        return Role.DIM
    return Role.WARN if gpu.temperature.value >= 85 else Role.PLAIN


def link_span(gpu: GpuState, *, old: bool) -> Span:
    """PCIe generation x width, now and at most. Idle links drop to generation 1 by design: judged under load only."""
    now = f"{number(gpu.pcie_generation)}x{number(gpu.pcie_width)}"
    most = f"{number(gpu.pcie_generation_max)}x{number(gpu.pcie_width_max)}"
    text = f"PCIe {now}" if now == most else f"PCIe {now}/{most}"
    busy = (gpu.utilisation.value or 0) >= 50
    slower = gpu.pcie_width.known and (gpu.pcie_width.value or 0) < (gpu.pcie_width_max.value or 0)
    slower = slower or (busy and (gpu.pcie_generation.value or 9) < (gpu.pcie_generation_max.value or 0))
    return (text, Role.DIM if old or not slower else Role.WARN)


# --- sections


def _heading(text: str) -> Line:
    return line((f" {text}", Role.ACCENT))


def _series(facts: HostFacts, machine: HostState, width: int) -> list[Line]:
    """Utilisation of each GPU over the last minutes, and of the CPUs; gaps where nothing was read."""
    if len(facts.history) < 2:
        return [_heading("time series"), line((" not enough samples yet", Role.DIM))]
    minutes = (facts.history[-1].at - facts.history[0].at) / 60
    cell = 36 if width < 110 else 44
    each = max(1, width // cell)
    graphs = [
        graph("CPU", [one.cpu_percent.value for one in facts.history], (cell - 3, 3), 100.0, "%"),
        *(_gpu_graph(facts.history, gpu, cell - 3) for gpu in machine.gpus),
    ]
    lines = [_heading(f"utilisation, last {minutes:.0f} min, and power")]
    for start in range(0, len(graphs), each):
        row = graphs[start : start + each]
        for number_of_line in range(max(len(one) for one in row)):
            spans: list[Span] = [(" ", Role.PLAIN)]
            for one in row:
                spans += _filled(one[number_of_line] if number_of_line < len(one) else EMPTY, cell - 1)
                spans.append((" ", Role.PLAIN))
            lines.append(tuple(spans))
    return lines


def _gpu_graph(history: Sequence[HostState], gpu: GpuState, width: int) -> list[Line]:
    found = [one.gpu(gpu.index) for one in history]
    values = [None if one is None or one.utilisation.value is None else float(one.utilisation.value) for one in found]
    lines = graph(f"GPU {gpu.index}", values, (width, 3), 100.0, "%")
    return [joined([*lines[0][:2], (number(gpu.power, " W"), Role.DIM)], " "), *lines[1:]]


def _processes(facts: HostFacts, machine: HostState, width: int) -> list[Line]:
    """Who holds GPU memory: ours by the launch's pid, others as foreign."""
    lines = [_heading("processes on the GPUs")]
    launch = facts.state.live_launch()
    users = gpu_users(facts.state)
    for gpu in machine.gpus:
        if not gpu.processes.known:
            lines.append(line((f" GPU {gpu.index}  {shown(gpu.processes.unavailable)}", Role.DIM)))
            continue
        for one in gpu.processes.require():
            memory = "memory not told" if one.memory_bytes is None else f"{one.memory_bytes / GIB:,.1f} GiB"
            ours = gpu.index in users and launch is not None
            whose = f"launch {launch.number}'s GPU" if ours and launch is not None else "no launch of this run is here"
            role = Role.DIM if ours else Role.WARN
            lines.append(line((f" GPU {gpu.index:<2} pid {one.pid:<8} {memory:>12}  ", Role.PLAIN), (whose, role)))
    return lines if len(lines) > 1 else [*lines, line((" none", Role.DIM))]


def _links(facts: HostFacts, machine: HostState, width: int) -> list[Line]:
    """How the GPUs reach each other: what lies between, and whether direct reads are possible."""
    lines = [_heading("links between GPUs")]
    groups: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for pair in machine.pairs:
        ancestor = pair.common_ancestor.value or "n/a"
        nvlink = "NVLink" if pair.nvlink.value else ("no NVLink" if pair.nvlink.known else "NVLink n/a")
        peer = pair.p2p.value or shown(pair.p2p.unavailable)
        groups.setdefault((shown(ancestor), nvlink, shown(peer)), []).append((pair.a, pair.b))
    for (ancestor, nvlink, peer), pairs in groups.items():
        names = _pairs_in_words(pairs)
        lines.append(line((f" {ancestor:<9} {nvlink:<10} ", Role.STRONG), (f"direct reads: {peer}   ", Role.PLAIN)))
        lines.append(line((f"   {cut(names, width - 4)}", Role.DIM)))
    return lines if len(lines) > 1 else [*lines, line((" no pair of GPUs", Role.DIM))]


def _pairs_in_words(pairs: Sequence[tuple[int, int]]) -> str:
    """`0 with 1-3, 1 with 2-3`."""
    partners: dict[int, list[int]] = {}
    for a, b in pairs:
        partners.setdefault(a, []).append(b)
    return ", ".join(f"{a} with {number_ranges(others)}" for a, others in partners.items())
