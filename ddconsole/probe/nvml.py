"""All GPUs of a machine through NVML: what is cheap in every sample, the rest once in a while."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ddconsole.core.host_state import GpuProcess, GpuState, PairState, RemappedRows
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml_calls import GpuHandle, Nonsense, Nvml, NvmlCalls
from ddconsole.probe.pcie_traffic import PcieTraffic
from ddconsole.probe.xid_events import XidEvents

Value = TypeVar("Value")

SECONDS_BETWEEN_INITS = 30.0
"""Initialising again and again leaks file descriptors in the driver's library."""
SLOW = 10.0
"""Seconds for which a reading is kept that hardly changes."""
DEAR = 30.0
"""Seconds for which a reading is kept that costs milliseconds of CPU."""
SLOWEST = 60.0
"""The same while something is measured."""
_SECOND = 0.95
"""Seconds for which a reading is kept that costs 0.1 ms: with a sample a second it is in each of them."""

Readings = dict[str, Reading[Any]]
"""Fields of `GpuState`."""

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
_MOST_PIDS = 1 << 22
"""Linux has no larger number for a process."""
_POWER_NOW = 186
_POWER_CAPPED, _SLOWED_SOFTWARE, _SLOWED_HARDWARE, _BRAKED = 74, 269, 270, 271
"""Nanoseconds since the driver was loaded."""
_REPLAYS, _RECOVERY_ACTION = 94, 230
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
        beside: what others than the driver know of a GPU, by its PCI address and the number of its device node;
            it goes before what the driver says.
    """

    def __init__(
        self,
        nvml: Nvml,
        now: Callable[[], float],
        left_out: Mapping[int, str] | None = None,
        beside: Callable[[str | None, int | None], Readings] | None = None,
    ) -> None:
        self.calls = NvmlCalls(nvml, now)
        self._now = now
        self._left_out = left_out or {}
        self._beside = beside or (lambda _address, _minor: {})
        self._events = XidEvents(self.calls)
        self._gpus: dict[int, GpuHandle] = {}
        self._groups: dict[tuple[int, str], tuple[float, Readings]] = {}
        self._traffic = PcieTraffic(self.calls)
        self._pairs: dict[tuple[int, int], PairState] = {}
        self._quiet = False
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
        if quiet is not self._quiet:
            # At the border of what is measured: the counters, and who is on the GPU.
            fresh = {"energy", "dear", "slow"}
            self._groups = {key: kept for key, kept in self._groups.items() if key[1] not in fresh}
        self._quiet = quiet
        for gpu in self._gpus.values():
            gpu.lost = None
        self._traffic.begin(self._gpus.values(), SLOWEST if quiet else DEAR)
        gpus = tuple(self._read_gpu(index) for index in range(count.value or 0))
        return GpuSample(
            count,
            self._once("driver", lambda: self.calls.ask("nvmlSystemGetDriverVersion", _text)),
            self._once("cuda", lambda: self.calls.ask("nvmlSystemGetCudaDriverVersion_v2", _cuda_version)),
            self._traffic.end(gpus),
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

    def _once(self, name: str, read_it: Callable[[], Reading[Value]]) -> Reading[Value]:
        """Of the library as a whole: asked again only where it was not told."""
        kept = self._groups.get((-1, name))
        if kept is not None:
            return kept[1][name]
        reading = read_it()
        if reading.known:
            self._groups[-1, name] = (self._now(), {name: reading})
        return reading

    def _read_gpu(self, index: int) -> GpuState:
        if index in self._left_out:
            return unreadable_gpu(index, self._left_out[index], self._now())
        gpu = self._gpus.get(index)
        if gpu is None:
            handle = self.calls.handle(index)
            if not handle.known:
                return unreadable_gpu(index, handle.unavailable or "", handle.at)
            gpu = self._gpus[index] = GpuHandle(index, handle.value)
        fixed = self._fixed(gpu)
        values: Readings = {
            **fixed,
            **self._group(gpu, "every second", _SECOND, self._every_second),
            **self._fast(gpu),
            **self._group(gpu, "slow", SLOW, self._slow),
            **self._group(gpu, "energy", SLOWEST if self._quiet else DEAR, self._energy),
            **self._group(gpu, "dear", SLOWEST if self._quiet else DEAR, self._dear),
            "xids": self._xids(gpu, fixed["uuid"]),
            **self._beside(fixed["pci_address"].value, fixed["minor"].value),
        }
        make: Callable[..., GpuState] = GpuState
        return make(index=index, **values)

    def _group(self, gpu: GpuHandle, name: str, seconds: float, read_them: Callable[[GpuHandle], Readings]) -> Readings:
        """Readings that are taken together, and kept for so many seconds unless the GPU is lost."""
        key = (gpu.index, name)
        kept = self._groups.get(key)
        now = self._now()
        if kept is not None and gpu.lost is None and now - kept[0] < seconds:
            return kept[1]
        values = read_them(gpu)
        if gpu.lost is None:
            self._groups[key] = (now, values)
        return values

    def _fixed(self, gpu: GpuHandle) -> Readings:
        """What does not change while the handle lives; asked again as long as something of it is not told."""
        kept = self._groups.get((gpu.index, "fixed"))
        if kept is not None:
            return kept[1]
        once = self.calls.once
        values: Readings = {
            "uuid": once(gpu, "nvmlDeviceGetUUID", _text),
            "name": once(gpu, "nvmlDeviceGetName", _text),
            "pci_address": once(gpu, "nvmlDeviceGetPciInfo", _pci_address),
            "minor": once(gpu, "nvmlDeviceGetMinorNumber", int),
            "sm_clock_max": once(gpu, "nvmlDeviceGetMaxClockInfo", int, _CLOCK_SM),
            "pcie_generation_max": once(gpu, "nvmlDeviceGetMaxPcieLinkGeneration", int),
            "pcie_width_max": once(gpu, "nvmlDeviceGetMaxPcieLinkWidth", int),
            "pcie_generation_card": once(gpu, "nvmlDeviceGetGpuMaxPcieLinkGeneration", int),
            "numa_node": self._numa_node(gpu),
            "cpu_affinity": once(gpu, "nvmlDeviceGetCpuAffinity", _number_list, _CPU_WORDS),
            "compute_capability": once(gpu, "nvmlDeviceGetCudaComputeCapability", _capability),
        }
        if all(reading.known for reading in values.values()):
            self._groups[gpu.index, "fixed"] = (self._now(), values)
        return values

    def _fast(self, gpu: GpuHandle) -> Readings:
        """Calls of some ten microseconds (measured on H200)."""
        ask = self.calls.ask_gpu
        return {
            "utilisation": ask(gpu, "nvmlDeviceGetUtilizationRates", _gpu_rate),
            "power": ask(gpu, "nvmlDeviceGetPowerUsage", _thousandth),
            "temperature": ask(gpu, "nvmlDeviceGetTemperature", int, 0),
            "sm_clock": ask(gpu, "nvmlDeviceGetClockInfo", int, _CLOCK_SM),
            "performance_state": ask(gpu, "nvmlDeviceGetPerformanceState", int),
            "clock_event_reasons": ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons", int),
            "pcie_generation": ask(gpu, "nvmlDeviceGetCurrPcieLinkGeneration", int),
        }

    def _every_second(self, gpu: GpuHandle) -> Readings:
        """0.15 ms for the memory, 0.1 ms for each field."""
        memory: Reading[Any] = self.calls.ask_gpu(gpu, "nvmlDeviceGetMemoryInfo", _same, _MEMORY_V2)
        told = self.calls.fields(gpu, (_POWER_NOW, _POWER_CAPPED, _SLOWED_SOFTWARE))
        return {
            "memory_total": memory.map(lambda info: int(info.total)),
            "memory_used": memory.map(lambda info: int(info.used)),
            "memory_free": memory.map(lambda info: int(info.free)),
            "power_now": told[_POWER_NOW].map(_thousandth),
            "power_capped": told[_POWER_CAPPED].map(_seconds),
            "thermally_slowed": told[_SLOWED_SOFTWARE].map(_seconds),
        }

    def _slow(self, gpu: GpuHandle) -> Readings:
        """Up to 0.4 ms a call, or of little news."""
        ask = self.calls.ask_gpu
        ecc = "nvmlDeviceGetTotalEccErrors"
        return {
            "processes": ask(gpu, "nvmlDeviceGetComputeRunningProcesses", _processes),
            "pcie_width": ask(gpu, "nvmlDeviceGetCurrPcieLinkWidth", int),
            "power_limit": ask(gpu, "nvmlDeviceGetEnforcedPowerLimit", _thousandth),
            "memory_clock": ask(gpu, "nvmlDeviceGetClockInfo", int, _CLOCK_MEMORY),
            "ecc_corrected": ask(gpu, ecc, int, _CORRECTED, _SINCE_LOAD),
            "ecc_uncorrected": ask(gpu, ecc, int, _UNCORRECTED, _SINCE_LOAD),
            "remapped_rows": ask(gpu, "nvmlDeviceGetRemappedRows", _remapped),
        }

    def _energy(self, gpu: GpuHandle) -> Readings:
        """3 to 6 ms, in which the driver spins."""
        return {"energy": self.calls.ask_gpu(gpu, "nvmlDeviceGetTotalEnergyConsumption", _thousandth)}

    def _dear(self, gpu: GpuHandle) -> Readings:
        """0.2 to 1.5 ms for each, in which the driver spins."""
        ask = self.calls.ask_gpu
        told = self.calls.fields(gpu, (_SLOWED_HARDWARE, _BRAKED, _REPLAYS, _RECOVERY_ACTION))
        return {
            "thermally_slowed_by_hardware": told[_SLOWED_HARDWARE].map(_seconds),
            "power_braked": told[_BRAKED].map(_seconds),
            "pcie_replays": told[_REPLAYS].map(int),
            "recovery_action": told[_RECOVERY_ACTION].map(lambda code: _RECOVERY.get(int(code), f"action {code:g}")),
            "persistence": ask(gpu, "nvmlDeviceGetPersistenceMode", bool),
            "sm_clock_set": ask(gpu, "nvmlDeviceGetApplicationsClock", int, _CLOCK_SM),
            "mig": ask(gpu, "nvmlDeviceGetMigMode", lambda modes: bool(modes[0])),
        }

    def _xids(self, gpu: GpuHandle, uuid: Reading[Any]) -> Reading[tuple[int, ...]]:
        self._events.watch(gpu, uuid.value or "")
        return self._events.of(gpu)

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


def _gpu_rate(rates: Any) -> int:
    percent = int(rates.gpu)
    if not 0 <= percent <= 100:
        raise Nonsense(f"the driver says {percent} %: no utilisation")
    return percent


def _same(value: Any) -> Any:
    return value


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
    odd = [int(one.pid) for one in value if not 0 < int(one.pid) <= _MOST_PIDS]
    if odd:
        raise Nonsense(f"the driver lists process number {odd[0]}: the library is of another version")
    return tuple(
        GpuProcess(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory)) for one in value
    )
