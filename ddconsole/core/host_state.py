"""What a machine is, as readings: GPUs, NUMA nodes, memory, and how the GPUs reach each other."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ddconsole.core.readings import Reading, unavailable

Value = TypeVar("Value")

NOT_TOLD = "not told by the sender's version"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU. In a container the driver numbers processes as the host does."""

    pid: int
    memory_bytes: int | None
    """None where the driver does not tell."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU. Memory is counted as NVML version 2 does: the driver's reserve is not in `memory_used`."""

    index: int
    """NVML's index; it can move when a card vanishes, the UUID cannot."""
    uuid: Reading[str]
    name: Reading[str]
    pci_address: Reading[str]
    """As sysfs writes it: `0000:00:06.0`."""
    memory_total: Reading[int]
    """Bytes, as all memory here."""
    memory_used: Reading[int]
    memory_free: Reading[int]
    utilisation: Reading[int]
    """Percent of the time in which a kernel ran; 100 can also be a wedged one."""
    power: Reading[float]
    """Watts, averaged over one second by the driver."""
    power_limit: Reading[float]
    """Watts that are enforced now."""
    energy: Reading[float]
    """Joules since the driver was loaded."""
    temperature: Reading[int]
    """Degrees Celsius."""
    sm_clock: Reading[int]
    """MHz."""
    sm_clock_max: Reading[int]
    clock_event_reasons: Reading[int]
    """NVML's bit mask; `reason_names` names the bits."""
    pcie_generation: Reading[int]
    """Of the link now. Idle cards drop to generation 1 by design: judge it under load."""
    pcie_width: Reading[int]
    pcie_generation_max: Reading[int]
    """What card and slot together can do."""
    pcie_width_max: Reading[int]
    pcie_generation_card: Reading[int]
    """What the card alone can do: above `pcie_generation_max` it sits in a slower slot."""
    numa_node: Reading[int]
    compute_capability: Reading[tuple[int, int]]
    processes: Reading[tuple[GpuProcess, ...]]


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node with what hangs on it."""

    index: int
    cpus: Reading[str]
    """The kernel's list notation, `0-31,64-95`; `cpu_numbers` takes it apart."""
    memory_total: Reading[int]
    memory_free: Reading[int]
    gpus: tuple[int, ...]
    """Indices of the GPUs whose node is known to be this one."""


@dataclass(frozen=True, slots=True)
class PairState:
    """How two GPUs reach each other. `a` is below `b`."""

    a: int
    b: int
    common_ancestor: Reading[str]
    """`internal`, `PIX`, `PXB`, `PHB`, `NODE` or `SYS`, as `nvidia-smi topo -m` writes them."""
    p2p: Reading[str]
    """`ok`, or why the driver says that direct reads are not possible. Ok is no proof that bytes arrive."""
    nvlink: Reading[bool]


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """A file system, by a path in it."""

    path: str
    total: Reading[int]
    free: Reading[int]


@dataclass(frozen=True, slots=True)
class HostState:
    """One sample of a machine."""

    at: float
    """Wall time at which the sample was complete, seconds since 1970."""
    hostname: Reading[str]
    boot_token: Reading[str]
    """Changes when the machine or the container was started anew: then everything in /dev/shm is gone."""
    driver: Reading[str]
    cuda_driver: Reading[str]
    """The CUDA version that the driver brings, `13.0`."""
    gpu_count: Reading[int]
    """What NVML counts; not available, with the reason, where there is no driver."""
    gpus: tuple[GpuState, ...]
    nodes: tuple[NumaNode, ...]
    pairs: tuple[PairState, ...]
    cpu_count: Reading[int]
    """Logical CPUs of the machine."""
    cpus_allowed: Reading[int]
    """Logical CPUs that this process may use."""
    cpu_percent: Reading[float]
    """0 to 100 over all CPUs since the sample before."""
    load: Reading[tuple[float, float, float]]
    """Load averages of 1, 5 and 15 minutes."""
    memory_total: Reading[int]
    memory_available: Reading[int]
    shm_total: Reading[int]
    """Of the shared memory file system, where models are staged."""
    shm_free: Reading[int]
    disks: tuple[DiskSpace, ...] = field(default=())
    simulated: bool = False

    def gpu(self, index: int) -> GpuState | None:
        """The GPU with this index, or None."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


_REASONS = (
    (0x1, "idle"),
    (0x2, "application clocks"),
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal (software)"),
    (0x40, "thermal (hardware)"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)

DISTURBING_REASONS = 0x20 | 0x40 | 0x80
"""Reasons that disturb a measurement. The power cap is normal under full load, 0x8 also comes with a P-state change."""


def reason_names(mask: int) -> tuple[str, ...]:
    """Names of the bits of NVML's clock event reasons; bits without a name keep their number."""
    names = [name for bit, name in _REASONS if mask & bit]
    rest = mask & ~sum(bit for bit, _ in _REASONS)
    return (*names, *([f"0x{rest:x}"] if rest else []))


def cpu_numbers(text: str) -> tuple[int, ...]:
    """CPU numbers of the kernel's list notation: `0-2,8` is (0, 1, 2, 8).

    Raises:
        ValueError: the text is no such list.
    """
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return tuple(numbers)


# --- JSON ------------------------------------------------------------------------------------------------------


def host_state_to_json(state: HostState) -> dict[str, Any]:
    """A host state as JSON. A reading is `[value, at, source]`, or `[null, at, source, reason]`."""
    return dict(_plain(state))


def host_state_from_json(data: Mapping[str, Any]) -> HostState:
    """The inverse of `host_state_to_json`; unknown fields are ignored, missing readings are not available.

    Raises:
        ValueError: this is no host state.
    """
    try:
        values: dict[str, Any] = _readings(data, HostState, float(data["at"]), {"load": _floats})
        values["at"] = float(data["at"])
        values["simulated"] = bool(data.get("simulated", False))
        values["gpus"] = tuple(_gpu(one, values["at"]) for one in data["gpus"])
        values["nodes"] = tuple(_node(one, values["at"]) for one in data["nodes"])
        values["pairs"] = tuple(_part(PairState, one, values["at"], ("a", "b")) for one in data["pairs"])
        values["disks"] = tuple(_part(DiskSpace, one, values["at"], ("path",)) for one in data.get("disks", ()))
        return HostState(**values)
    except (KeyError, TypeError, IndexError) as problem:
        raise ValueError(f"not a host state: {type(problem).__name__} {problem}") from problem


def reading_to_json(reading: Reading[Any]) -> list[Any]:
    """`[value, at, source]`, or `[null, at, source, reason]`."""
    parts = [_plain(reading.value), round(reading.at, 3), reading.source]
    return parts if reading.known else [*parts, reading.unavailable]


def reading_from_json(data: Iterable[Any], convert: Callable[[Any], Value]) -> Reading[Value]:
    """The inverse of `reading_to_json`; `convert` makes the value from its JSON form."""
    value, at, source, *reason = data
    if value is None:
        return unavailable(str(reason[0]) if reason else NOT_TOLD, float(at), str(source))
    return Reading(convert(value), float(at), str(source))


def _plain(value: Any) -> Any:
    if isinstance(value, Reading):
        return reading_to_json(value)
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value


def _readings(
    data: Mapping[str, Any], kind: type, at: float, converters: Mapping[str, Callable[[Any], Any]]
) -> dict[str, Any]:
    """The fields of `kind` that are readings, by the name of their type."""
    values: dict[str, Any] = {}
    for name, about in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]  # one of our dataclasses
        if "Reading" not in str(about.type):
            continue
        if name in data:
            values[name] = reading_from_json(data[name], converters.get(name, _same))
        else:
            values[name] = unavailable(NOT_TOLD, at, "")
    return values


def _part(kind: type[Value], data: Mapping[str, Any], at: float, plain: tuple[str, ...]) -> Value:
    return kind(**{name: data[name] for name in plain}, **_readings(data, kind, at, {}))


def _gpu(data: Mapping[str, Any], at: float) -> GpuState:
    converters: dict[str, Callable[[Any], Any]] = {"compute_capability": tuple, "processes": _processes}
    return GpuState(index=int(data["index"]), **_readings(data, GpuState, at, converters))


def _node(data: Mapping[str, Any], at: float) -> NumaNode:
    return NumaNode(index=int(data["index"]), gpus=tuple(data["gpus"]), **_readings(data, NumaNode, at, {}))


def _processes(data: Iterable[Mapping[str, Any]]) -> tuple[GpuProcess, ...]:
    return tuple(GpuProcess(int(one["pid"]), one.get("memory_bytes")) for one in data)


def _floats(data: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(one) for one in data)


def _same(value: Any) -> Any:
    return value
