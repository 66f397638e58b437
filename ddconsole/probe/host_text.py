"""A machine as text: each NUMA node a box with its CPUs, memory and GPUs, and the links between the GPUs."""

from collections.abc import Sequence
from itertools import zip_longest

from ddconsole.core.host_state import GpuState, HostState, NumaNode, PairState, reason_names
from ddconsole.core.readings import Reading
from ddconsole.core.visible_text import visible_line

UNKNOWN = "?"
_NARROWEST = 40
_SIDE_BY_SIDE = 152
"""Columns from which two boxes stand beside each other."""
_GIB = 1024**3


def host_lines(state: HostState, width: int) -> list[str]:
    """The machine in lines of at most `width` columns (at least 40). Values that are not there show as `?`."""
    width = max(width, _NARROWEST)
    boxes = _boxes(state, width)
    lines = [*_head(state), "", *boxes, *_pair_lines(state, width), *_missing_lines(state)]
    return [_fit(line, width) for line in lines]


def bar(share: float | None, width: int) -> str:
    """A bar of `width` columns, `share` from 0 to 1 of it filled; dots where the share is not known."""
    if share is None:
        return "·" * width
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(width, "░")


def _head(state: HostState) -> list[str]:
    simulated = "SIMULATED  " if state.simulated else ""
    name = visible_line(_or_unknown(state.hostname))
    cpus = _or_unknown(state.cpu_count)
    percent = _or_unknown(state.cpu_percent, "{:.0f}")
    load = " ".join(f"{one:.2f}" for one in state.load.value) if state.load.value else UNKNOWN
    memory_used = _difference(state.memory_total, state.memory_available)
    shm_used = _difference(state.shm_total, state.shm_free)
    head = [
        f"{simulated}{name}  {_gpu_count(state)}",
        f"CPU    {bar(_share(state.cpu_percent.value, 100), 12)} {percent} % of {cpus}  load {load}",
        f"memory {_amount_bar(memory_used, state.memory_total.value, 12)}",
        f"shm    {_amount_bar(shm_used, state.shm_total.value, 12)}  (/dev/shm)",
    ]
    for disk in state.disks:
        used = _difference(disk.total, disk.free)
        head.append(f"disk   {_amount_bar(used, disk.total.value, 12)}  ({visible_line(disk.path)})")
    return head


def _gpu_count(state: HostState) -> str:
    """How many GPUs on which driver, or why there are none."""
    if not state.gpu_count.known:
        return visible_line(f"no GPUs: {state.gpu_count.unavailable}")
    count = state.gpu_count.require()
    driver = f"driver {_or_unknown(state.driver)}  CUDA {_or_unknown(state.cuda_driver)}"
    return f"{count} {'GPU' if count == 1 else 'GPUs'}  {driver}"


def _boxes(state: HostState, width: int) -> list[str]:
    placed = {index for node in state.nodes for index in node.gpus}
    homeless = [gpu for gpu in state.gpus if gpu.index not in placed]
    side_by_side = width >= _SIDE_BY_SIDE and len(state.nodes) > 1
    inner = (width - 2) // 2 if side_by_side else width
    boxes = [
        _box(_node_title(node, inner), [gpu for gpu in state.gpus if gpu.index in node.gpus], inner)
        for node in state.nodes
    ]
    if homeless:
        boxes.append(_box("NUMA node unknown", homeless, inner))
    if not side_by_side:
        return [line for box in boxes for line in box]
    rows: list[str] = []
    for place in range(0, len(boxes), 2):
        right = boxes[place + 1] if place + 1 < len(boxes) else []
        rows.extend(f"{a:<{inner}}  {b}".rstrip() for a, b in zip_longest(boxes[place], right, fillvalue=""))
    return rows


def _node_title(node: NumaNode, width: int) -> str:
    used = _difference(node.memory_total, node.memory_free)
    title = f"NUMA {node.index}  CPUs {_or_unknown(node.cpus)}"
    memory = f"  memory {bar(_share(used, node.memory_total.value), 6)} {_amount(used, node.memory_total.value)}"
    return title + memory if len(title) + len(memory) <= width - 6 else _fit(title, width - 6)


def _box(title: str, gpus: Sequence[GpuState], width: int) -> list[str]:
    inner = width - 4
    body = [line for gpu in gpus for line in gpu_lines(gpu, inner)] or ["no GPU"]
    top = f"┌ {title} "
    return [
        top + "─" * (width - len(top) - 1) + "┐",
        *(f"│ {_fit(line, inner):<{inner}} │" for line in body),
        "└" + "─" * (width - 2) + "┘",
    ]


def gpu_lines(gpu: GpuState, width: int) -> list[str]:
    """One GPU in two lines, or in one with the reason where nothing of it can be read."""
    name = visible_line(_or_unknown(gpu.name)).removeprefix("NVIDIA ")
    if not gpu.memory_total.known and not gpu.utilisation.known:
        return [f"GPU {gpu.index:<2} {name}  not answering: {gpu.memory_total.unavailable}"]
    cells = 10 if width >= 70 else 5
    used, total = gpu.memory_used.value, gpu.memory_total.value
    first = (
        f"GPU {gpu.index:<2} busy {bar(_share(gpu.utilisation.value, 100), cells)} "
        f"{_or_unknown(gpu.utilisation):>3} %  mem {bar(_share(used, total), cells)} {_amount(used, total):<16}"
        f" {_or_unknown(gpu.power, '{:.0f}')}/{_or_unknown(gpu.power_limit, '{:.0f}')} W"
    )
    second = (
        f"   {_fit(name, max(width - 55, 12))}  PCIe {pcie_text(gpu)}  "
        f"{_or_unknown(gpu.sm_clock)}/{_or_unknown(gpu.sm_clock_max)} MHz  "
        f"{_or_unknown(gpu.temperature)} °C  {_reasons(gpu)}"
    )
    return [first, second, *_process_lines(gpu)]


def pcie_text(gpu: GpuState) -> str:
    """The link now over what it can be, generation x width: `1x16 of 5x16`; and the card, where its slot is slower."""
    now = f"{_or_unknown(gpu.pcie_generation)}x{_or_unknown(gpu.pcie_width)}"
    best = f"{_or_unknown(gpu.pcie_generation_max)}x{_or_unknown(gpu.pcie_width_max)}"
    card, slot = gpu.pcie_generation_card.value, gpu.pcie_generation_max.value
    slower = f" (card {card})" if card is not None and slot is not None and card > slot else ""
    return f"{now} of {best}{slower}"


def _process_lines(gpu: GpuState) -> list[str]:
    held = gpu.processes.value or ()
    if not held:
        return []
    texts = [f"{one.pid} {_gib(one.memory_bytes)}" for one in held[:3]]
    more = f" and {len(held) - 3} more" if len(held) > 3 else ""
    return [f"   held by pid {', '.join(texts)}{more}"]


def _reasons(gpu: GpuState) -> str:
    mask = gpu.clock_event_reasons.value
    if mask is None:
        return "clocks: ?"
    return ", ".join(reason_names(mask)) or "not throttled"


def _pair_lines(state: HostState, width: int) -> list[str]:
    """Pairs in groups with the same link, each GPU list in short."""
    if not state.pairs:
        return []
    groups: dict[str, list[PairState]] = {}
    for pair in state.pairs:
        groups.setdefault(_pair_text(pair), []).append(pair)
    lines = ["", "between GPUs"]
    for text, pairs in groups.items():
        lines.append(_fit(f"  {text}: {_pair_list(pairs)}", width))
    return lines


def _pair_text(pair: PairState) -> str:
    words = [_or_unknown(pair.common_ancestor)]
    if pair.nvlink.value:
        words.append("NVLink")
    words.append(f"P2P {_or_unknown(pair.p2p)}")
    return ", ".join(words)


def _pair_list(pairs: Sequence[PairState]) -> str:
    """`0-3` where all pairs among these GPUs are meant, `0-3 to 4-7` where all between two sets are, else the pairs."""
    first, second = sorted({pair.a for pair in pairs}), sorted({pair.b for pair in pairs})
    everyone = sorted({*first, *second})
    if len(pairs) > 1 and len(pairs) == len(everyone) * (len(everyone) - 1) // 2:
        return f"all among {_ranges(everyone)}"
    if len(pairs) == len(first) * len(second):
        return f"{_ranges(first)} to {_ranges(second)}"
    islands = _islands(pairs)
    if sum(len(one) * (len(one) - 1) // 2 for one in islands) == len(pairs):
        return " and ".join(f"among {_ranges(one)}" for one in islands)
    return " ".join(f"{pair.a}-{pair.b}" for pair in pairs)


def _islands(pairs: Sequence[PairState]) -> list[list[int]]:
    """GPUs that hang together by these pairs."""
    islands: list[set[int]] = []
    for pair in pairs:
        touched = [one for one in islands if pair.a in one or pair.b in one]
        islands = [one for one in islands if one not in touched]
        islands.append({pair.a, pair.b}.union(*touched))
    return sorted(sorted(one) for one in islands)


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[str] = []
    start = 0
    for place, number in enumerate(numbers):
        if place + 1 == len(numbers) or numbers[place + 1] != number + 1:
            parts.append(str(number) if place == start else f"{numbers[start]}-{number}")
            start = place + 1
    return ",".join(parts)


def _missing_lines(state: HostState) -> list[str]:
    """Why values are missing, each reason once; unreadable GPUs say it themselves."""
    reasons: dict[tuple[str, str], list[int]] = {}
    for gpu in state.gpus:
        if not gpu.memory_total.known and not gpu.utilisation.known:
            continue
        for name in GpuState.__dataclass_fields__:
            reading = getattr(gpu, name)
            if isinstance(reading, Reading) and reading.unavailable and reading.source:
                reasons.setdefault((name.replace("_", " "), reading.unavailable), []).append(gpu.index)
    lines = [f"  {name} (GPU {_ranges(gpus)}): {reason}" for (name, reason), gpus in reasons.items()]
    return ["", "not available", *lines] if lines else []


def _or_unknown(reading: Reading[str] | Reading[int] | Reading[float], form: str = "{}") -> str:
    return UNKNOWN if reading.value is None else form.format(reading.value)


def _difference(total: Reading[int], free: Reading[int]) -> int | None:
    return None if total.value is None or free.value is None else total.value - free.value


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _amount(used: int | None, total: int | None) -> str:
    return f"{_gib(used, unit='')}/{_gib(total)}"


def _amount_bar(used: int | None, total: int | None, width: int) -> str:
    return f"{bar(_share(used, total), width)} {_gib(used, unit='')} of {_gib(total)} used"


def _gib(amount: int | None, unit: str = " GiB") -> str:
    return UNKNOWN + unit if amount is None else f"{amount / _GIB:.1f}{unit}"


def _fit(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"
