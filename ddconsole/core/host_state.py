"""What a machine is, as readings: GPUs, NUMA nodes, memory, and how the GPUs reach each other."""

from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.readings import Reading, unavailable

NOT_READ: Reading[Any] = unavailable("not read", 0.0, "")
"""Of a reading that a sample does not have."""


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU. In a container the driver may number processes as the host does."""

    pid: int
    memory_bytes: int | None
    """None where the driver does not tell."""


@dataclass(frozen=True, slots=True)
class DeviceOpener:
    """A process of this container, by its own pid, that has a GPU's device node open."""

    pid: int
    user: str
    command: str
    """The beginning of its command line."""


@dataclass(frozen=True, slots=True)
class RemappedRows:
    """Memory rows that the card has replaced, and whether it could not, or will at the next reset."""

    correctable: int
    uncorrectable: int
    pending: bool
    failed: bool


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
    power_now: Reading[float] = NOT_READ
    """Watts at the moment of the read."""
    performance_state: Reading[int] = NOT_READ
    """0 is the fastest."""
    memory_clock: Reading[int] = NOT_READ
    """MHz."""
    power_capped: Reading[float] = NOT_READ
    """Seconds since the driver was loaded in which the power cap held the clocks down; so the next three."""
    thermally_slowed: Reading[float] = NOT_READ
    thermally_slowed_by_hardware: Reading[float] = NOT_READ
    power_braked: Reading[float] = NOT_READ
    pcie_sent: Reading[float] = NOT_READ
    """Bytes a second, from the GPU to the host or a peer."""
    pcie_received: Reading[float] = NOT_READ
    pcie_replays: Reading[int] = NOT_READ
    """Packets that were sent again since the driver was loaded."""
    aer_corrected: Reading[int] = NOT_READ
    """Link errors that the kernel counted since the start."""
    aer_uncorrected: Reading[int] = NOT_READ
    ecc_corrected: Reading[int] = NOT_READ
    """Memory errors since the driver was loaded."""
    ecc_uncorrected: Reading[int] = NOT_READ
    remapped_rows: Reading[RemappedRows] = NOT_READ
    recovery_action: Reading[str] = NOT_READ
    """What the driver says is needed: `none`, `GPU reset`, `node reboot`, ..."""
    xids: Reading[tuple[int, ...]] = NOT_READ
    """Numbers of the driver's error events since the probe began, the oldest first."""
    sm_clock_set: Reading[int] = NOT_READ
    """MHz that somebody set as the application clock."""
    persistence: Reading[bool] = NOT_READ
    """Whether the driver stays initialised without a user."""
    mig: Reading[bool] = NOT_READ
    """Whether the card is split into instances."""
    minor: Reading[int] = NOT_READ
    """The N of `/dev/nvidiaN`, which need not be the index."""
    cpu_affinity: Reading[str] = NOT_READ
    """CPUs near the card, in the kernel's list notation."""
    openers: Reading[tuple[DeviceOpener, ...]] = NOT_READ


@dataclass(frozen=True, slots=True)
class NumaNode:
    """One NUMA node with what hangs on it."""

    index: int
    cpus: Reading[str]
    """The kernel's list notation, `0-31,64-95`; `cpu_numbers` takes it apart."""
    memory_total: Reading[int]
    memory_free: Reading[int]
    """What a process can still have, page cache that can be dropped included: as `HostState.memory_available`."""
    gpus: tuple[int, ...]
    """Indices of the GPUs whose node is known to be this one."""
    distances: Reading[tuple[int, ...]] = NOT_READ
    """To each node in the kernel's order; 10 is the node itself."""


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
    p2p_write: Reading[str] = NOT_READ
    p2p_atomics: Reading[str] = NOT_READ


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
    kernel: Reading[str] = NOT_READ
    """Release of the running kernel."""
    memory_limit: Reading[int] = NOT_READ
    """Bytes that the container may use; files in tmpfs count."""
    memory_limited_use: Reading[int] = NOT_READ
    """Bytes that count against the limit now."""
    pressure_cpu: Reading[float] = NOT_READ
    """Percent of the last ten seconds in which some task waited for it; so the next two."""
    pressure_memory: Reading[float] = NOT_READ
    pressure_io: Reading[float] = NOT_READ
    page_cache: Reading[int] = NOT_READ
    """Bytes of files from disks that are kept in memory; tmpfs does not count."""
    network_sent: Reading[float] = NOT_READ
    """Bytes a second over all interfaces but loopback, since the sample before."""
    network_received: Reading[float] = NOT_READ
    probe_cpu: Reading[float] = NOT_READ
    """Percent of one core that the probe took since the sample before."""
    probe_seconds: Reading[float] = NOT_READ
    """How long this sample took."""
    quiet: bool = False
    """Sampled rarely and only with the cheap calls, because something is being measured."""

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
