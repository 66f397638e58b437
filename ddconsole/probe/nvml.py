"""All GPUs of a machine through NVML: what is cheap in every sample, the rest once in a while."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ddconsole.core.host_state import GpuProcess, GpuState, PairState, RemappedRows
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.byte_counter import ByteCounter
from ddconsole.probe.nvml_calls import GpuHandle, Nvml, NvmlCalls
from ddconsole.probe.xid_events import XidEvents

Value = TypeVar("Value")

SECONDS_BETWEEN_INITS = 30.0
"""Initialising again and again leaks file descriptors in the driver's library."""
SLOW = 10.0
"""Seconds for which a reading is kept that costs a call of milliseconds, or hardly changes."""
SLOWEST = 60.0
"""The same while something is measured, and for what changes only by an operator or a defect."""

_ANCESTORS = {0: "internal", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
_P2P = {
    0: "ok",
    1: "chipset not supported",
    2: "GPU not supported",
    3: "IOH topology not supported",
    4: "disabled by registry key",
    5: "not supported",
    6: "unknown",
}
_RECOVERY = {0: "none", 1: "GPU reset", 2: "node reboot", 3: "drain P2P", 4: "drain and reset"}
_CLOCK_SM, _CLOCK_MEMORY = 1, 2
_MEMORY_V2 = 0x02000028
_P2P_READ, _P2P_WRITE, _P2P_NVLINK, _P2P_ATOMICS = 0, 1, 2, 3
_NODE_WORDS, _SCOPE_NODE = 4, 0
"""Room for 256 NUMA nodes in words of 64 bits."""
_CPU_WORDS = 16
_POWER_NOW = 186
_POWER_CAPPED, _SLOWED_SOFTWARE, _SLOWED_HARDWARE, _BRAKED = 74, 269, 270, 271
"""Nanoseconds since the driver was loaded."""
_PCIE_SENT, _PCIE_RECEIVED, _REPLAYS, _RECOVERY_ACTION = 197, 198, 94, 230
_FAST_FIELDS = (_POWER_NOW, _POWER_CAPPED, _SLOWED_SOFTWARE, _SLOWED_HARDWARE, _BRAKED, _PCIE_SENT, _PCIE_RECEIVED)
_CORRECTED, _UNCORRECTED, _SINCE_LOAD = 0, 1, 0


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What NVML says of all GPUs at one moment."""

    count: Reading[int]
    driver: Reading[str]
    cuda_driver: Reading[str]
    gpus: tuple[GpuState, ...]
    pairs: tuple[PairState, ...]


class GpuReader:
    """Reads all GPUs, again and again, with one initialisation for the life of the process.

    Args:
        nvml: pynvml, or a stand-in.
        now: wall clock.
        left_out: GPUs that are not asked, by index, with the reason.
    """

    def __init__(self, nvml: Nvml, now: Callable[[], float], left_out: Mapping[int, str] | None = None) -> None:
        self.calls = NvmlCalls(nvml, now)
        self._now = now
        self._left_out = left_out or {}
        self._events = XidEvents(self.calls)
        self._gpus: dict[int, GpuHandle] = {}
        self._traffic: dict[tuple[int, int], ByteCounter] = {}
        self._slow: dict[int, tuple[float, dict[int, Reading[float]]]] = {}
        self._pairs: dict[tuple[int, int], PairState] = {}
        self._initialised = False
        self._init_at = float("-inf")
        self._init_problem = ""

    def sample(self, *, quiet: bool = False) -> GpuSample:
        """Read everything once; when `quiet`, what is slow only once a minute. Never raises for a GPU's sake."""
        at = self._now()
        if not self._initialise(at):
            return nothing_of_the_driver(self._init_problem, at)
        count: Reading[int] = self.calls.ask("nvmlDeviceGetCount")
        self._events.collect()
        gpus = tuple(self._read_gpu(index, SLOWEST if quiet else SLOW) for index in range(count.value or 0))
        return GpuSample(
            count,
            self.calls.ask("nvmlSystemGetDriverVersion", _text),
            self.calls.ask("nvmlSystemGetCudaDriverVersion_v2", _cuda_version),
            gpus,
            self._read_pairs(),
        )

    def _initialise(self, at: float) -> bool:
        if self._initialised:
            return True
        if at - self._init_at < SECONDS_BETWEEN_INITS:
            return False
        self._init_at = at
        started: Reading[bool] = self.calls.ask("nvmlInit", lambda _: True)
        self._initialised = started.known
        self._init_problem = started.unavailable or ""
        return self._initialised

    def _read_gpu(self, index: int, slow: float) -> GpuState:
        if index in self._left_out:
            return unreadable_gpu(index, self._left_out[index], self._now())
        gpu = self._gpus.get(index)
        if gpu is None:
            handle = self.calls.handle(index)
            if not handle.known:
                return unreadable_gpu(index, handle.unavailable or "", handle.at)
            gpu = self._gpus[index] = GpuHandle(index, handle.value)
        gpu.lost = None
        return self._with_slow(self._with_fields(self._read_fast(gpu), gpu), gpu, slow)

    def _read_fast(self, gpu: GpuHandle) -> GpuState:
        """What does not change, and what is cheap enough for every sample."""
        ask, once = self.calls.ask_gpu, self.calls.once
        memory: Reading[Any] = ask(gpu, "nvmlDeviceGetMemoryInfo", lambda value: value, _MEMORY_V2)
        return GpuState(
            index=gpu.index,
            uuid=once(gpu, "nvmlDeviceGetUUID", _text),
            name=once(gpu, "nvmlDeviceGetName", _text),
            pci_address=once(gpu, "nvmlDeviceGetPciInfo", _pci_address),
            memory_total=memory.map(lambda info: int(info.total)),
            memory_used=memory.map(lambda info: int(info.used)),
            memory_free=memory.map(lambda info: int(info.free)),
            utilisation=ask(gpu, "nvmlDeviceGetUtilizationRates", lambda rates: int(rates.gpu)),
            power=ask(gpu, "nvmlDeviceGetPowerUsage", _thousandth),
            power_limit=ask(gpu, "nvmlDeviceGetEnforcedPowerLimit", _thousandth),
            energy=ask(gpu, "nvmlDeviceGetTotalEnergyConsumption", _thousandth),
            temperature=ask(gpu, "nvmlDeviceGetTemperature", int, 0),
            sm_clock=ask(gpu, "nvmlDeviceGetClockInfo", int, _CLOCK_SM),
            sm_clock_max=once(gpu, "nvmlDeviceGetMaxClockInfo", int, _CLOCK_SM),
            memory_clock=ask(gpu, "nvmlDeviceGetClockInfo", int, _CLOCK_MEMORY),
            performance_state=ask(gpu, "nvmlDeviceGetPerformanceState", int),
            sm_clock_set=ask(gpu, "nvmlDeviceGetApplicationsClock", int, _CLOCK_SM),
            clock_event_reasons=ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons", int),
            pcie_generation=ask(gpu, "nvmlDeviceGetCurrPcieLinkGeneration", int),
            pcie_width=ask(gpu, "nvmlDeviceGetCurrPcieLinkWidth", int),
            pcie_generation_max=once(gpu, "nvmlDeviceGetMaxPcieLinkGeneration", int),
            pcie_width_max=once(gpu, "nvmlDeviceGetMaxPcieLinkWidth", int),
            pcie_generation_card=once(gpu, "nvmlDeviceGetGpuMaxPcieLinkGeneration", int),
            numa_node=self._numa_node(gpu),
            cpu_affinity=once(gpu, "nvmlDeviceGetCpuAffinity", _number_list, _CPU_WORDS),
            minor=once(gpu, "nvmlDeviceGetMinorNumber", int),
            compute_capability=once(gpu, "nvmlDeviceGetCudaComputeCapability", _capability),
            processes=ask(gpu, "nvmlDeviceGetComputeRunningProcesses", _processes),
            xids=self._xids(gpu),
        )

    def _xids(self, gpu: GpuHandle) -> Reading[tuple[int, ...]]:
        uuid: Reading[str] = self.calls.once(gpu, "nvmlDeviceGetUUID", _text)
        self._events.watch(gpu, uuid.value or "")
        return self._events.of(gpu)

    def _with_fields(self, state: GpuState, gpu: GpuHandle) -> GpuState:
        told = self.calls.fields(gpu, _FAST_FIELDS)
        return replace(
            state,
            power_now=told[_POWER_NOW].map(_thousandth),
            power_capped=told[_POWER_CAPPED].map(_seconds),
            thermally_slowed=_sum(told[_SLOWED_SOFTWARE], told[_SLOWED_HARDWARE]).map(_seconds),
            power_braked=told[_BRAKED].map(_seconds),
            pcie_sent=self._rate(gpu, _PCIE_SENT, told),
            pcie_received=self._rate(gpu, _PCIE_RECEIVED, told),
        )

    def _rate(self, gpu: GpuHandle, field: int, told: Mapping[int, Reading[float]]) -> Reading[float]:
        return self._traffic.setdefault((gpu.index, field), ByteCounter()).rate(told[field])

    def _with_slow(self, state: GpuState, gpu: GpuHandle, slow: float) -> GpuState:
        """What costs milliseconds, or says something only once in a while."""
        every = self.calls.every
        ecc = "nvmlDeviceGetTotalEccErrors"
        kept = self._slow.get(gpu.index)
        if kept is None or self._now() - kept[0] >= slow or gpu.lost:
            kept = self._slow[gpu.index] = (self._now(), self.calls.fields(gpu, (_REPLAYS, _RECOVERY_ACTION)))
        told = kept[1]
        return replace(
            state,
            pcie_replays=told[_REPLAYS].map(int),
            recovery_action=told[_RECOVERY_ACTION].map(lambda code: _RECOVERY.get(int(code), f"action {code:g}")),
            ecc_corrected=every(SLOWEST, gpu, ecc, int, _CORRECTED, _SINCE_LOAD),
            ecc_uncorrected=every(slow, gpu, ecc, int, _UNCORRECTED, _SINCE_LOAD),
            remapped_rows=every(SLOWEST, gpu, "nvmlDeviceGetRemappedRows", _remapped),
            persistence=every(SLOWEST, gpu, "nvmlDeviceGetPersistenceMode", bool),
            mig=every(SLOWEST, gpu, "nvmlDeviceGetMigMode", lambda modes: bool(modes[0])),
        )

    def _numa_node(self, gpu: GpuHandle) -> Reading[int]:
        """The node that NVML names, if it names exactly one: with a set of nodes, the first is often wrong."""
        call = "nvmlDeviceGetMemoryAffinity"
        words: Reading[tuple[int, ...]] = self.calls.once(gpu, call, _integers, _NODE_WORDS, _SCOPE_NODE)
        if not words.known:
            return unavailable(words.unavailable or "", words.at, call)
        nodes = _bits(words.require())
        if len(nodes) != 1:
            return unavailable(f"NVML names {len(nodes)} nodes: {nodes}", words.at, call)
        return read(nodes[0], words.at, call)

    def _read_pairs(self) -> tuple[PairState, ...]:
        """Each pair once for the life of the process: P2P status costs 1.7 ms a call, and neither changes."""
        gpus = sorted(self._gpus.values(), key=lambda gpu: gpu.index)
        for place, first in enumerate(gpus):
            for second in gpus[place + 1 :]:
                pair = (first.index, second.index)
                if pair not in self._pairs and not first.lost and not second.lost:
                    self._pairs[pair] = self._read_pair(first, second)
        return tuple(self._pairs[pair] for pair in sorted(self._pairs))

    def _read_pair(self, first: GpuHandle, second: GpuHandle) -> PairState:
        ask = self.calls.ask
        p2p = "nvmlDeviceGetP2PStatus"
        both = (first.handle, second.handle)
        return PairState(
            a=first.index,
            b=second.index,
            common_ancestor=ask("nvmlDeviceGetTopologyCommonAncestor", _ancestor, *both),
            p2p=ask(p2p, _p2p, *both, _P2P_READ),
            nvlink=ask(p2p, lambda status: int(status) == 0, *both, _P2P_NVLINK),
            p2p_write=ask(p2p, _p2p, *both, _P2P_WRITE),
            p2p_atomics=ask(p2p, _p2p, *both, _P2P_ATOMICS),
        )


def unreadable_gpu(index: int, reason: str, at: float) -> GpuState:
    """A GPU of which nothing can be read, with the reason in every reading."""
    names = [name for name in GpuState.__dataclass_fields__ if name != "index"]
    nothing: Reading[Any] = unavailable(reason, at, "nvmlDeviceGetHandleByIndex")
    return GpuState(index=index, **dict.fromkeys(names, nothing))


def with_numa_node(gpu: GpuState, node: Reading[int]) -> GpuState:
    """The same GPU on the node that the kernel names, where it names one."""
    return replace(gpu, numa_node=node) if node.known else gpu


def nothing_of_the_driver(reason: str, at: float) -> GpuSample:
    """No GPU, and why."""
    none: Reading[Any] = unavailable(reason, at, "nvmlInit")
    return GpuSample(none, none, none, (), ())


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _thousandth(value: Any) -> float:
    return float(value) / 1000


def _seconds(nanoseconds: float) -> float:
    return round(nanoseconds / 1e9, 3)


def _sum(first: Reading[float], second: Reading[float]) -> Reading[float]:
    """Of what is known; not available where neither is."""
    if first.value is None or second.value is None:
        return first if first.known else second
    return read(first.value + second.value, first.at, f"{first.source}, {second.source}")


def _capability(value: Any) -> tuple[int, int]:
    return int(value[0]), int(value[1])


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(int(word) for word in value)


def _bits(words: tuple[int, ...]) -> list[int]:
    """Numbers of the bits that are set in words of 64."""
    return [64 * place + bit for place, word in enumerate(words) for bit in range(64) if word >> bit & 1]


def _number_list(value: Any) -> str:
    """The set bits in the kernel's list notation, `0-31,64-95`."""
    parts: list[list[int]] = []
    for number in _bits(_integers(value)):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in parts)


def _remapped(value: Any) -> RemappedRows:
    return RemappedRows(int(value[0]), int(value[1]), bool(value[2]), bool(value[3]))


def _cuda_version(value: Any) -> str:
    return f"{int(value) // 1000}.{int(value) % 1000 // 10}"


def _ancestor(level: Any) -> str:
    return _ANCESTORS.get(int(level), f"level {level}")


def _p2p(status: Any) -> str:
    return _P2P.get(int(status), f"status {status}")


def _pci_address(value: Any) -> str:
    """`00000000:00:06.0` as sysfs writes it, `0000:00:06.0`."""
    domain, _, rest = _text(value.busId).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _processes(value: Any) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory)) for one in value
    )
