"""GPUs through NVML, or through anything that speaks like pynvml: a simulation, or a recording."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

import pynvml

from ddconsole.core.host_state import GpuProcess, GpuState, PairState
from ddconsole.core.readings import Reading, read, unavailable

Value = TypeVar("Value")

SECONDS_BETWEEN_INITS = 30.0
"""Initialising again and again leaks file descriptors in the driver's library."""

MEANINGS = {
    3: "not supported by this GPU",
    4: "no permission (mode of the device node, or capabilities)",
    9: "the driver is not loaded, or /dev/nvidiactl is missing",
    12: "no NVIDIA driver library (libnvidia-ml.so.1) on this machine",
    13: "not in this driver's library",
    15: "the GPU is lost: it fell off the bus",
    16: "the GPU wants a reset by the host",
    17: "blocked by the operating system (container device rules)",
    18: "the driver's library and kernel module differ: Driver/library version mismatch",
    27: "the GPU is still initialising",
    999: "unknown error: in a container, usually lost access to the devices",
}
"""NVML's error codes in words, for the operator."""

_NEVER_AGAIN = frozenset({3, 13})
_WHOLE_GPU = frozenset({15, 16})
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
_CLOCK_SM = 1
_MEMORY_V2 = 0x02000028
_P2P_READ, _P2P_NVLINK = 0, 2
_NODE_WORDS, _SCOPE_NODE = 4, 0
"""Room for 256 NUMA nodes in words of 64 bits."""


class Nvml(Protocol):
    """The calls of pynvml that are used, by pynvml's names. Errors are `pynvml.NVMLError`.

    A call that a stand-in does not have counts as not in this driver's library. PCIe throughput is never asked: it
    blocks for 20 ms.
    """

    def nvmlInit(self) -> object: ...  # noqa: N802, D102  # pynvml's name
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802, D102  # pynvml's name
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any: ...  # noqa: N802, D102  # pynvml's name
    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int) -> Any: ...  # noqa: N802, D102  # pynvml's name


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What NVML says of all GPUs at one moment."""

    count: Reading[int]
    driver: Reading[str]
    cuda_driver: Reading[str]
    gpus: tuple[GpuState, ...]
    pairs: tuple[PairState, ...]


@dataclass
class _Gpu:
    index: int
    handle: Any
    never: dict[str, str] = field(default_factory=dict)
    """Calls that this GPU does not support, with the reason."""
    fixed: dict[str, Reading[Any]] = field(default_factory=dict)
    """Readings that do not change while the handle lives."""
    lost: str | None = None
    """Set within a sample once a call said that the whole GPU is gone."""


class GpuReader:
    """Reads all GPUs, again and again, with one initialisation for the life of the process."""

    def __init__(self, nvml: Nvml, now: Callable[[], float]) -> None:
        self._nvml = nvml
        self._now = now
        self._gpus: dict[int, _Gpu] = {}
        self._pairs: dict[tuple[int, int], PairState] = {}
        self._initialised = False
        self._init_problem = ""
        self._init_at = float("-inf")

    def sample(self) -> GpuSample:
        """Read everything once. Never raises for a GPU's or the driver's sake."""
        at = self._now()
        if not self._initialise(at):
            return _nothing(self._init_problem, at)
        count: Reading[int] = self._ask("nvmlDeviceGetCount")
        gpus = tuple(self._read_gpu(index) for index in range(count.value or 0))
        return GpuSample(
            count,
            self._ask("nvmlSystemGetDriverVersion", _text),
            self._ask("nvmlSystemGetCudaDriverVersion_v2", _cuda_version),
            gpus,
            self._read_pairs(),
        )

    def _initialise(self, at: float) -> bool:
        if self._initialised:
            return True
        if at - self._init_at < SECONDS_BETWEEN_INITS:
            return False
        self._init_at = at
        started: Reading[bool] = self._ask("nvmlInit", lambda _: True)
        self._initialised = started.known
        self._init_problem = started.unavailable or ""
        return self._initialised

    def _ask(self, call: str, change: Callable[[Any], Value] = lambda value: value, *arguments: Any) -> Reading[Value]:
        """One call of the library as a reading."""
        function = getattr(self._nvml, call, None)
        if function is None:
            return unavailable(MEANINGS[13], self._now(), call)
        try:
            return read(change(function(*arguments)), self._now(), call)
        except pynvml.NVMLError as problem:
            return unavailable(_meaning(problem), self._now(), call)
        except OSError as problem:  # of a stand-in that keeps its state in files
            return unavailable(str(problem), self._now(), call)

    def _ask_gpu(self, gpu: _Gpu, call: str, change: Callable[[Any], Value], *arguments: Any) -> Reading[Value]:
        """One call about one GPU; what it does not support is asked once, and a lost GPU no further."""
        reason = gpu.never.get(call) or gpu.lost
        function = getattr(self._nvml, call, None)
        if reason or function is None:
            return unavailable(reason or MEANINGS[13], self._now(), call)
        try:
            return read(change(function(gpu.handle, *arguments)), self._now(), call)
        except pynvml.NVMLError as problem:
            code = int(problem.value)
            if code in _NEVER_AGAIN:
                gpu.never[call] = _meaning(problem)
            if code in _WHOLE_GPU:
                gpu.lost = _meaning(problem)
            return unavailable(_meaning(problem), self._now(), call)
        except OSError as problem:  # of a stand-in that keeps its state in files
            return unavailable(str(problem), self._now(), call)

    def _once(self, gpu: _Gpu, call: str, change: Callable[[Any], Value], *arguments: Any) -> Reading[Value]:
        if call not in gpu.fixed:
            answer = self._ask_gpu(gpu, call, change, *arguments)
            if not answer.known:
                return answer
            gpu.fixed[call] = answer
        return gpu.fixed[call]

    def _read_gpu(self, index: int) -> GpuState:
        gpu = self._gpus.get(index)
        if gpu is None:
            handle: Reading[Any] = self._ask("nvmlDeviceGetHandleByIndex", lambda value: value, index)
            if not handle.known:
                return unreadable_gpu(index, handle.unavailable or "", handle.at)
            gpu = self._gpus[index] = _Gpu(index, handle.value)
        gpu.lost = None
        memory: Reading[Any] = self._ask_gpu(gpu, "nvmlDeviceGetMemoryInfo", lambda value: value, _MEMORY_V2)
        ask, once = self._ask_gpu, self._once
        return GpuState(
            index=index,
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
            clock_event_reasons=ask(gpu, "nvmlDeviceGetCurrentClocksEventReasons", int),
            pcie_generation=ask(gpu, "nvmlDeviceGetCurrPcieLinkGeneration", int),
            pcie_width=ask(gpu, "nvmlDeviceGetCurrPcieLinkWidth", int),
            pcie_generation_max=once(gpu, "nvmlDeviceGetMaxPcieLinkGeneration", int),
            pcie_width_max=once(gpu, "nvmlDeviceGetMaxPcieLinkWidth", int),
            pcie_generation_card=once(gpu, "nvmlDeviceGetGpuMaxPcieLinkGeneration", int),
            numa_node=self._numa_node(gpu),
            compute_capability=once(gpu, "nvmlDeviceGetCudaComputeCapability", _capability),
            processes=ask(gpu, "nvmlDeviceGetComputeRunningProcesses", _processes),
        )

    def _numa_node(self, gpu: _Gpu) -> Reading[int]:
        """The node that NVML names, if it names exactly one: with a set of nodes, the first is often wrong."""
        call = "nvmlDeviceGetMemoryAffinity"
        words: Reading[tuple[int, ...]] = self._once(gpu, call, _integers, _NODE_WORDS, _SCOPE_NODE)
        if not words.known:
            return unavailable(words.unavailable or "", words.at, call)
        nodes = [64 * place + bit for place, word in enumerate(words.require()) for bit in range(64) if word >> bit & 1]
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

    def _read_pair(self, first: _Gpu, second: _Gpu) -> PairState:
        ancestor = "nvmlDeviceGetTopologyCommonAncestor"
        p2p = "nvmlDeviceGetP2PStatus"
        both = (first.handle, second.handle)
        return PairState(
            a=first.index,
            b=second.index,
            common_ancestor=self._ask(ancestor, lambda level: _ANCESTORS.get(int(level), f"level {level}"), *both),
            p2p=self._ask(p2p, lambda status: _P2P.get(int(status), f"status {status}"), *both, _P2P_READ),
            nvlink=self._ask(p2p, lambda status: int(status) == 0, *both, _P2P_NVLINK),
        )


def unreadable_gpu(index: int, reason: str, at: float) -> GpuState:
    """A GPU of which nothing can be read, with the reason in every reading."""
    names = [name for name in GpuState.__dataclass_fields__ if name != "index"]
    nothing: Reading[Any] = unavailable(reason, at, "nvmlDeviceGetHandleByIndex")
    return GpuState(index=index, **dict.fromkeys(names, nothing))


def with_numa_node(gpu: GpuState, node: Reading[int]) -> GpuState:
    """The same GPU on the node that the kernel names, where it names one."""
    return replace(gpu, numa_node=node) if node.known else gpu


def _nothing(reason: str, at: float) -> GpuSample:
    none: Reading[Any] = unavailable(reason, at, "nvmlInit")
    return GpuSample(none, none, none, (), ())


def _meaning(problem: Any) -> str:
    """NVML's error in words, with its code."""
    code = int(problem.value)
    return f"{MEANINGS.get(code, str(problem))} (NVML {code})"


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _thousandth(value: Any) -> float:
    return float(value) / 1000


def _capability(value: Any) -> tuple[int, int]:
    return int(value[0]), int(value[1])


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(int(word) for word in value)


def _cuda_version(value: Any) -> str:
    return f"{int(value) // 1000}.{int(value) % 1000 // 10}"


def _pci_address(value: Any) -> str:
    """`00000000:00:06.0` as sysfs writes it, `0000:00:06.0`."""
    domain, _, rest = _text(value.busId).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _processes(value: Any) -> tuple[GpuProcess, ...]:
    return tuple(
        GpuProcess(int(one.pid), None if one.usedGpuMemory is None else int(one.usedGpuMemory)) for one in value
    )
