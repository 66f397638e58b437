"""The machine as lines: NUMA domains as boxes with their CPUs, memory and GPUs; then what happened, who, and links."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from ddconsole.core.ages import age_in_words
from ddconsole.core.host_state import GpuState, HostState, NumaNode
from screens.hardware_text import bar, number, rate, share, throttling, trouble_of
from screens.host_facts import GIB, HostFacts, gpu_users
from screens.host_sections import SECTIONS
from screens.placement_lines import crossing_lines
from screens.spans import EMPTY, Line, Role, Span, cut, fitted, joined, line, shown

_LEFT = 110
"""Columns of what stands on the left where there is room for two beside each other."""
_FOR_TWO = 170
_PRESSED = 1.0
"""Percent of time in which something waits, from which it is worth a word."""


def host_lines(facts: HostFacts, size: tuple[int, int], section: int) -> list[Line]:
    """The machine in `size` (cells, lines): the overview, and below it a section, or all where there is room."""
    width, height = size
    machine = facts.machine
    if machine is None:
        return [EMPTY, line((f"  no sample of {shown(facts.host)} yet", Role.DIM))]
    lines = [*_head(facts, machine, width), *crossing_lines(facts.state, machine, width)]
    lines += _nodes(facts, machine, width)
    if width >= 110 and height >= 36:
        return [*lines, *_all_sections(facts, machine, size)]
    return [*lines, *SECTIONS[section % len(SECTIONS)](facts, machine, size)]


def _all_sections(facts: HostFacts, machine: HostState, size: tuple[int, int]) -> list[Line]:
    """Every section; where there is room for two beside each other, links stand beside health and processes."""
    width, height = size
    series, health, processes, links = SECTIONS
    if width < _FOR_TWO:
        return [one for make in SECTIONS for one in (EMPTY, *make(facts, machine, size))]
    left, right = (_LEFT, height), (width - _LEFT - 2, height)
    column = [*health(facts, machine, left), EMPTY, *processes(facts, machine, left)]
    beside = links(facts, machine, right)
    rows = zip_longest(column, beside, fillvalue=EMPTY)
    return [EMPTY, *series(facts, machine, size), EMPTY, *((*_filled(one, _LEFT), *other) for one, other in rows)]


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
    first += [(cpus, _d(facts)), (f"load {load[0]:.1f}" if load else "", Role.DIM), *_around(machine)]
    return [fitted(first, width), _memory(facts, machine, width)]


def _around(machine: HostState) -> list[Span]:
    """What waits, what goes over the network, and what watching itself costs."""
    spans: list[Span] = []
    for name, reading in (("memory", machine.pressure_memory), ("I/O", machine.pressure_io)):
        if reading.value is not None and reading.value >= _PRESSED:
            spans.append((f"waits for {name} {reading.value:.0f} %", Role.WARN))
    if machine.network_received.known and machine.network_sent.known:
        down, up = rate(machine.network_received), rate(machine.network_sent)
        spans.append((f"net ↓{down} ↑{up}", Role.DIM))
    if machine.probe_cpu.known:
        quiet = ", quiet" if machine.quiet else ""
        spans.append((f"watching costs {number(machine.probe_cpu, ' %', digits=1)} of a core{quiet}", Role.DIM))
    return spans


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
    limit, limited = machine.memory_limit, machine.memory_limited_use
    if limit.value is not None and limited.value is not None:
        tight = limited.value > 0.9 * limit.value
        text = f"container {limited.value / GIB:,.0f} of {limit.value / GIB:,.0f} GiB"
        spans.append((text, Role.WARN if tight else Role.DIM))
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
    if not gpu.memory_total.known and not gpu.utilisation.known:
        return line((f"{gpu.index:>2} ", Role.STRONG), (shown(gpu.utilisation.unavailable), Role.BAD))
    wide = width >= 106
    size = max(4, min(16, (width - 96) // 3 if wide else (width - 65) // 2))
    trouble = trouble_of(gpu)
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
    if trouble:
        return (*spans, (f"{shown(trouble[0])}  ", Role.BAD), (user, Role.DIM if old else Role.LIVE))
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
