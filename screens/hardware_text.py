"""GPUs in words: which, where, and what they do, each value or the reason why there is none."""

from collections.abc import Sequence

from ddconsole.core.host_state import DISTURBING_REASONS, GpuState, HostState, reason_names
from ddconsole.core.readings import Reading
from screens.spans import Role, Span


def gpu_numbers(gpus: Sequence[int], host: HostState | None) -> str:
    """`GPU 7 (NUMA 1)`, `GPU 4-7 (NUMA 1)`, `GPU 0-7 (NUMA 0, 1)`."""
    nodes: list[int] = []
    if host is not None:
        found = (host.gpu(index) for index in gpus)
        nodes = sorted({gpu.numa_node.require() for gpu in found if gpu is not None and gpu.numa_node.known})
    where = f" (NUMA {', '.join(map(str, nodes))})" if nodes else ""
    return f"GPU {number_ranges(gpus)}{where}"


def number_ranges(numbers: Sequence[int]) -> str:
    """`0-3,6`: runs of numbers."""
    ordered = sorted(set(numbers))
    runs: list[list[int]] = []
    for number in ordered:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def gpus_in_words(gpus: Sequence[int], host: HostState, *, stale: bool) -> list[Span]:
    """Power, clock and throttling of some GPUs together."""
    found = [gpu for gpu in (host.gpu(index) for index in gpus) if gpu is not None]
    if not found:
        return [("not seen on the host", Role.WARN)]
    role = Role.DIM if stale else Role.PLAIN
    power = [gpu.power.require() for gpu in found if gpu.power.known]
    clocks = [gpu.sm_clock.require() for gpu in found if gpu.sm_clock.known]
    spans: list[Span] = []
    if power:
        spans.append((f"{sum(power):,.0f} W", role))
    if clocks:
        spans.append((f"{min(clocks) / 1000:.2f} GHz", role))
    return [*spans, throttling(found, stale=stale)]


def throttling(gpus: Sequence[GpuState], *, stale: bool = False) -> Span:
    """What holds the clocks down, as far as it disturbs a measurement."""
    told = [gpu.clock_event_reasons for gpu in gpus]
    if not any(reading.known for reading in told):
        return ("throttling unknown", Role.DIM)
    mask = 0
    for reading in told:
        mask |= reading.require() if reading.known else 0
    if mask & DISTURBING_REASONS:
        return (f"throttled: {', '.join(reason_names(mask & DISTURBING_REASONS))}", Role.BAD)
    return ("not throttled", Role.DIM if stale else Role.GOOD)


def number(reading: Reading[int] | Reading[float], unit: str = "", *, scale: float = 1.0, digits: int = 0) -> str:
    """A reading as text; `n/a` where there is none, which is neither zero nor an error."""
    if reading.value is None:
        return "n/a"
    return f"{reading.value / scale:,.{digits}f}{unit}"


_RATE_UNITS = ("B", "kB", "MB", "GB", "TB")


def rate(reading: Reading[float]) -> str:
    """Bytes a second, `1.2 GB/s`; `n/a` where there is none."""
    if reading.value is None:
        return "n/a"
    value, unit = reading.value, 0
    while value >= 1000 and unit < len(_RATE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    digits = 1 if unit and value < 100 else 0
    return f"{value:.{digits}f} {_RATE_UNITS[unit]}/s"


def trouble_of(gpu: GpuState) -> list[str]:
    """What is wrong with the card's health, the worst first; nothing where all that is known is well."""
    found: list[str] = []
    if gpu.recovery_action.value not in (None, "none"):
        found.append(f"needs: {gpu.recovery_action.value}")
    if gpu.xids.value:
        found.append(f"Xid {', '.join(str(one) for one in gpu.xids.value[-3:])}")
    if gpu.ecc_uncorrected.value:
        found.append(f"{gpu.ecc_uncorrected.value} memory errors not corrected")
    rows = gpu.remapped_rows.value
    if rows is not None and rows.failed:
        found.append("could not remap a memory row")
    elif rows is not None and rows.pending:
        found.append("a memory row waits for a reset to be remapped")
    if gpu.aer_uncorrected.value:
        found.append(f"{gpu.aer_uncorrected.value} PCIe errors not corrected")
    return found


def share(part: Reading[int] | Reading[float], whole: Reading[int] | Reading[float]) -> float | None:
    """`part` of `whole` from 0 to 1; None where either is not known."""
    if part.value is None or not whole.value:
        return None
    return max(0.0, min(1.0, part.value / whole.value))


def bar(portion: float | None, width: int, role: Role) -> list[Span]:
    """A bar of `width` cells, in eighths, its rest dim; dots where nothing is known."""
    if portion is None:
        return [("·" * width, Role.DIM)]
    eighths = round(max(0.0, min(1.0, portion)) * width * 8)
    full, rest = divmod(eighths, 8)
    part = " ▏▎▍▌▋▊▉"[rest] if full < width else ""
    filled = "█" * full + part.strip(" ")
    return [(filled, role), ("─" * (width - len(filled)), Role.DIM)]
