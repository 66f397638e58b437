"""The sections of the host screen below the overview: what happened, health, who is on the GPUs, and the links."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

from ddconsole.core.host_state import DeviceOpener, GpuState, HostState, PairState
from screens.hardware_text import number, number_ranges, rate, trouble_of
from screens.host_facts import GIB, HostFacts, gpu_users
from screens.spans import EMPTY, Line, Role, Span, cut, joined, line, shown
from screens.widgets.time_series import braille, graph

_TALL = 36
"""Lines from which a graph has more than one."""
_CPU_HEAD = "CPU"


def _heading(text: str) -> Line:
    return line((f" {text}", Role.ACCENT))


def _beside(blocks: Sequence[Sequence[Line]], cell: int, each: int) -> list[Line]:
    """Blocks of lines in `each` columns of `cell` characters."""
    lines: list[Line] = []
    for start in range(0, len(blocks), each):
        for row in zip_longest(*blocks[start : start + each], fillvalue=EMPTY):
            spans: list[Span] = [(" ", Role.PLAIN)]
            for one in row:
                spans += [*one, (" " * max(0, cell - sum(len(text) for text, _ in one)), Role.PLAIN)]
            lines.append(tuple(spans))
    return lines


# --- time series


def _series(facts: HostFacts, machine: HostState, size: tuple[int, int]) -> list[Line]:
    """Utilisation of each GPU over the last minutes, and of the CPUs; gaps where nothing was read."""
    width, height = size
    if len(facts.history) < 2:
        return [_heading("time series"), line((" not enough samples yet", Role.DIM))]
    minutes = (facts.history[-1].at - facts.history[0].at) / 60
    cell = 38 if width < 110 else 44
    make = _graph if height >= _TALL else _sparkline
    series: list[tuple[str, Sequence[float | None], str]] = [
        (_CPU_HEAD, [one.cpu_percent.value for one in facts.history], ""),
        *((f"GPU {gpu.index}", _utilisation(facts, gpu), number(gpu.power, " W")) for gpu in machine.gpus),
    ]
    blocks = [make(title, values, beside, cell - 2) for title, values, beside in series]
    heading = f"utilisation, last {minutes:.0f} min, and power now"
    return [_heading(heading), *_beside(blocks, cell, max(1, (width - 1) // cell))]


def _utilisation(facts: HostFacts, gpu: GpuState) -> list[float | None]:
    found = [one.gpu(gpu.index) for one in facts.history]
    return [None if one is None or one.utilisation.value is None else float(one.utilisation.value) for one in found]


def _graph(title: str, values: Sequence[float | None], beside: str, width: int) -> list[Line]:
    lines = graph(title, values, (width, 3), 100.0, "%")
    return [joined([*lines[0][:2], (beside, Role.DIM)], " "), *lines[1:]]


def _sparkline(title: str, values: Sequence[float | None], beside: str, width: int) -> list[Line]:
    """One line, four dots high: title, graph, newest value."""
    newest = values[-1] if values else None
    told = f"{'no reading' if newest is None else f'{newest:.0f} %':>5} {beside:>6}"
    [dots] = braille(values, max(1, width - 8 - len(told)), 1, 100.0)
    return [((f"{title:<7}", Role.DIM), (dots, Role.LIVE), (f" {told}", Role.STRONG))]


# --- health


def _health(_facts: HostFacts, machine: HostState, size: tuple[int, int]) -> list[Line]:
    """What went wrong since the driver was loaded, and what goes over the links."""
    lines = [_heading("health, and traffic of the links")]
    well = [gpu.index for gpu in machine.gpus if not trouble_of(gpu) and gpu.utilisation.known]
    for gpu in machine.gpus:
        lines += [line((f" GPU {gpu.index:<2} ", Role.PLAIN), (shown(one), Role.BAD)) for one in trouble_of(gpu)]
    if well:
        lines.append(joined([(f" GPU {number_ranges(well)}:", Role.PLAIN), *_known_to_be_well(machine, well)], " "))
    counters = [_counters(gpu, size[0]) for gpu in machine.gpus if gpu.utilisation.known]
    return [*lines, *(line((" ", Role.PLAIN), *one) for one in counters)]


def _known_to_be_well(machine: HostState, gpus: Sequence[int]) -> list[Span]:
    """What was looked at: what is not known is not called well."""
    looked = [gpu for gpu in machine.gpus if gpu.index in gpus]
    asked = {
        "ECC": all(gpu.ecc_uncorrected.known for gpu in looked),
        "remapped rows": all(gpu.remapped_rows.known for gpu in looked),
        "no Xid": all(gpu.xids.known for gpu in looked),
        "no reset wanted": all(gpu.recovery_action.known for gpu in looked),
        "PCIe errors": all(gpu.aer_uncorrected.known for gpu in looked),
    }
    well = ", ".join(name for name, known in asked.items() if known)
    unknown = ", ".join(name for name, known in asked.items() if not known)
    return [
        (f"well: {well}" if well else "", Role.GOOD),
        (f"not known: {unknown}" if unknown else "", Role.DIM),
    ]


def _counters(gpu: GpuState, width: int) -> Line:
    slowed = [one.value for one in (gpu.thermally_slowed, gpu.thermally_slowed_by_hardware) if one.value is not None]
    spans: list[Span] = [
        (f"GPU {gpu.index:<2}", Role.PLAIN),
        (f"↑{rate(gpu.pcie_sent):>9} ↓{rate(gpu.pcie_received):>9}", Role.STRONG),
        (f"slowed by heat {sum(slowed):,.0f} s" if slowed else "slowed by heat n/a", Role.DIM),
        (f"by power cap {number(gpu.power_capped, ' s')}", Role.DIM),
        (f"replays {number(gpu.pcie_replays)}", Role.DIM),
    ]
    if width >= 110:
        persistent = {True: "on", False: "off", None: "n/a"}[gpu.persistence.value]
        spans += [
            (f"ECC {number(gpu.ecc_corrected)}+{number(gpu.ecc_uncorrected)}", Role.DIM),
            (f"persistence {persistent}", Role.DIM),
        ]
    return joined(spans)


# --- processes


def _processes(facts: HostFacts, machine: HostState, size: tuple[int, int]) -> list[Line]:
    """Who holds GPU memory as the driver says, and who has the device open as this container sees it."""
    lines = [_heading("processes on the GPUs")]
    launch = facts.state.live_launch()
    users = gpu_users(facts.state)
    for gpu in machine.gpus:
        if not gpu.processes.known:
            lines.append(line((f" GPU {gpu.index}  {shown(gpu.processes.unavailable)}", Role.DIM)))
            continue
        names = {one.pid: one for one in gpu.openers.value or ()}
        ours = gpu.index in users and launch is not None
        whose = f"launch {launch.number}'s GPU" if ours and launch is not None else "no launch of this run is here"
        role = Role.DIM if ours else Role.WARN
        held = gpu.processes.require()
        for one in held:
            memory = "memory not told" if one.memory_bytes is None else f"{one.memory_bytes / GIB:,.1f} GiB"
            who = _who(names.get(one.pid), size[0] - 62)
            lines.append(
                line((f" GPU {gpu.index:<2} pid {one.pid:<8} {memory:>12}  ", Role.PLAIN), (whose, role), (who, role))
            )
        lines += _openers_beside(gpu, {one.pid for one in held}, size[0])
    return lines if len(lines) > 1 else [*lines, line((" none", Role.DIM))]


def _who(opener: DeviceOpener | None, width: int) -> str:
    return "" if opener is None else f"  {cut(f'{shown(opener.user)}: {shown(opener.command)}', max(12, width))}"


def _openers_beside(gpu: GpuState, listed: set[int], width: int) -> list[Line]:
    """Processes here whose pids are not in the driver's list: it may number them as the host does."""
    beside = [one for one in gpu.openers.value or () if one.pid not in listed]
    return [
        line((f" GPU {gpu.index:<2} opened by {one.pid:<8}{_who(one, width - 28)}", Role.DIM)) for one in beside[:4]
    ]


# --- links


def _links(_facts: HostFacts, machine: HostState, size: tuple[int, int]) -> list[Line]:
    """How the GPUs reach each other: what lies between, and whether direct reads are possible."""
    lines = [_heading("links between GPUs")]
    if not machine.pairs:
        return [*lines, line((" no pair of GPUs", Role.DIM))]
    indices = sorted({index for pair in machine.pairs for index in (pair.a, pair.b)})
    if 7 + 6 * len(indices) <= size[0] and size[1] >= _TALL:
        lines += _matrix(machine.pairs, indices)
    groups: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for pair in machine.pairs:
        ancestor = pair.common_ancestor.value or "n/a"
        nvlink = "NVLink" if pair.nvlink.value else ("no NVLink" if pair.nvlink.known else "NVLink n/a")
        groups.setdefault((shown(ancestor), nvlink, _direct(pair)), []).append((pair.a, pair.b))
    for (ancestor, nvlink, direct), pairs in groups.items():
        names = _pairs_in_words(pairs)
        lines.append(line((f" {ancestor:<9} {nvlink:<10} ", Role.STRONG), (cut(direct, size[0] - 23), Role.PLAIN)))
        lines.append(line((f"   {cut(names, size[0] - 4)}", Role.DIM)))
    return lines


def _direct(pair: PairState) -> str:
    """Direct access by what is said of it: `direct reads, writes: ok, atomics: not supported`."""
    told = {
        "reads": pair.p2p.value or shown(pair.p2p.unavailable),
        "writes": pair.p2p_write.value,
        "atomics": pair.p2p_atomics.value,
    }
    kinds: dict[str, list[str]] = {}
    for name, value in told.items():
        if value is not None:
            kinds.setdefault(shown(value), []).append(name)
    return "direct " + ", ".join(f"{', '.join(names)}: {value}" for value, names in kinds.items())


def _matrix(pairs: Sequence[PairState], indices: Sequence[int]) -> list[Line]:
    """As `nvidia-smi topo -m`; `!` where direct reads are not possible."""
    found = {(pair.a, pair.b): pair for pair in pairs}
    lines: list[Line] = [line((f"      {''.join(f'{index:>6}' for index in indices)}", Role.DIM))]
    for row in indices:
        spans: list[Span] = [(f" GPU {row:<2}", Role.DIM)]
        for column in indices:
            pair = found.get((min(row, column), max(row, column)))
            spans.append(_matrix_cell(pair, same=row == column))
        lines.append(tuple(spans))
    return lines


def _matrix_cell(pair: PairState | None, *, same: bool) -> Span:
    if same or pair is None:
        return (f"{'·' if same else '?':>6}", Role.DIM)
    blocked = pair.p2p.known and pair.p2p.value != "ok"
    name = "NV" if pair.nvlink.value else shown(pair.common_ancestor.value or "?")
    return (f"{name + ('!' if blocked else ''):>6}", Role.WARN if blocked else Role.PLAIN)


def _pairs_in_words(pairs: Sequence[tuple[int, int]]) -> str:
    """`0 with 1-3, 1 with 2-3`."""
    partners: dict[int, list[int]] = {}
    for a, b in pairs:
        partners.setdefault(a, []).append(b)
    return ", ".join(f"{a} with {number_ranges(others)}" for a, others in partners.items())


SECTIONS: tuple[Callable[[HostFacts, HostState, tuple[int, int]], list[Line]], ...] = (
    _series,
    _health,
    _processes,
    _links,
)
"""In the order in which a key goes through them."""
