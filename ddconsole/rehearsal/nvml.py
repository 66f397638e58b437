"""Simulated GPUs behind pynvml's function names, so that a probe cannot tell the difference but by the card's name."""

from dataclasses import dataclass
from typing import Any

import pynvml

from ddconsole.core.clock import Clock, clock_from_environment
from ddconsole.core.host_state import cpu_numbers
from ddconsole.rehearsal import host
from ddconsole.rehearsal.host import GPUS, SimulatedGpu
from ddconsole.rehearsal.state import GpuUse, gpu_use, is_rehearsal, locked, read_json, state_folder, write_whole

__all__ = ["SimulatedNvml", "is_rehearsal"]

_IDLE_WATTS = 34.0
_RESIDENT_WATTS = 52.0
"""More than idle while a process holds memory: the card stays in P0."""
_BUSY_WATTS = 310.0
"""More again at full utilisation."""
_CLOCKS_REASON_IDLE = 0x1
_FIELD_IS_64_BITS = 3


@dataclass(frozen=True, slots=True)
class Memory:
    """`nvmlMemory_v2_t`; with the first version's call `reserved` is 0 and part of `used`."""

    total: int
    reserved: int
    free: int
    used: int
    version: int


@dataclass(frozen=True, slots=True)
class Utilisation:
    """`nvmlUtilization_t`, in percent."""

    gpu: int
    memory: int


@dataclass(frozen=True, slots=True)
class PciInfo:
    """`nvmlPciInfo_t`."""

    busId: str  # noqa: N815  # pynvml's name
    domain: int
    bus: int
    device: int
    pciDeviceId: int = 0x2BB510DE  # noqa: N815  # pynvml's name


@dataclass(frozen=True, slots=True)
class Process:
    """`nvmlProcessInfo_t`."""

    pid: int
    usedGpuMemory: int  # noqa: N815  # pynvml's name


@dataclass(frozen=True, slots=True)
class Number:
    """The one member of `nvmlValue_t` that is used."""

    ullVal: int  # noqa: N815  # pynvml's name


@dataclass(frozen=True, slots=True)
class FieldValue:
    """`nvmlFieldValue_t`."""

    fieldId: int  # noqa: N815  # pynvml's name
    nvmlReturn: int  # noqa: N815  # pynvml's name
    valueType: int  # noqa: N815  # pynvml's name
    value: Number


class SimulatedNvml:
    """pynvml's functions over the rehearsal's state folder. Errors are `pynvml.NVMLError`.

    Nothing is kept between calls: who holds memory stands in the folder, so all processes of a rehearsal agree.
    """

    NVMLError = pynvml.NVMLError
    simulated = True

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or clock_from_environment()
        self._folder = state_folder()
        self._open = False

    def __getattr__(self, name: str) -> Any:
        """Constants are pynvml's; a function that is not simulated is not in this driver's library."""
        if name.startswith("NVML_"):
            return getattr(pynvml, name)
        raise AttributeError(name)

    # --- the library -------------------------------------------------------------------------------------------

    def nvmlInit(self) -> None:  # noqa: D102, N802  # pynvml's name
        self._open = True

    def nvmlShutdown(self) -> None:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        self._open = False

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        return host.DRIVER

    def nvmlSystemGetNVMLVersion(self) -> str:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        return f"13.{host.DRIVER}"

    def nvmlSystemGetCudaDriverVersion(self) -> int:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        return host.CUDA_DRIVER

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: D102, N802  # pynvml's name
        return self.nvmlSystemGetCudaDriverVersion()

    def nvmlDeviceGetCount(self) -> int:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        return len(GPUS)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> SimulatedGpu:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        if not 0 <= index < len(GPUS):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return GPUS[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> SimulatedGpu:  # noqa: D102, N802  # pynvml's name
        self._need_open()
        for gpu in GPUS:
            if gpu.uuid == uuid:
                return gpu
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    # --- what a card is ----------------------------------------------------------------------------------------

    def nvmlDeviceGetIndex(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return handle.index

    def nvmlDeviceGetName(self, handle: SimulatedGpu) -> str:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.NAME

    def nvmlDeviceGetUUID(self, handle: SimulatedGpu) -> str:  # noqa: D102, N802  # pynvml's name
        return handle.uuid

    def nvmlDeviceGetMinorNumber(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return handle.index

    def nvmlDeviceGetPciInfo(self, handle: SimulatedGpu) -> PciInfo:  # noqa: D102, N802  # pynvml's name
        domain, bus, device = handle.bus_id.partition(".")[0].split(":")
        return PciInfo(handle.bus_id, int(domain, 16), int(bus, 16), int(device, 16))

    def nvmlDeviceGetCudaComputeCapability(self, handle: SimulatedGpu) -> tuple[int, int]:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.COMPUTE_CAPABILITY

    def nvmlDeviceGetCpuAffinity(self, handle: SimulatedGpu, size: int) -> list[int]:  # noqa: D102, N802  # pynvml's name
        words = [0] * size
        for number in cpu_numbers(host.NODES[handle.numa_node].cpus):
            words[number // 64] |= 1 << number % 64
        return words

    def nvmlDeviceGetPersistenceMode(self, handle: SimulatedGpu) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return 1

    def nvmlDeviceGetMigMode(self, handle: SimulatedGpu) -> list[int]:  # noqa: ARG002, D102, N802  # pynvml's name
        return [0, 0]

    def nvmlDeviceGetNumaNodeId(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return handle.numa_node

    def nvmlDeviceGetMemoryAffinity(self, handle: SimulatedGpu, size: int, scope: int = 0) -> list[int]:  # noqa: ARG002, D102, N802  # pynvml's name
        return [1 << handle.numa_node, *[0] * (size - 1)]

    def nvmlDeviceGetTopologyCommonAncestor(self, first: SimulatedGpu, second: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        if first.index == second.index:
            return int(pynvml.NVML_TOPOLOGY_INTERNAL)
        same = first.numa_node == second.numa_node
        return int(pynvml.NVML_TOPOLOGY_NODE if same else pynvml.NVML_TOPOLOGY_SYSTEM)

    def nvmlDeviceGetP2PStatus(self, first: SimulatedGpu, second: SimulatedGpu, index: int) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        nvlink = index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        return int(pynvml.NVML_P2P_STATUS_NOT_SUPPORTED if nvlink else pynvml.NVML_P2P_STATUS_OK)

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return host.PCIE_GENERATION if self._use(handle).holders else 1

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: SimulatedGpu) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.PCIE_GENERATION

    def nvmlDeviceGetGpuMaxPcieLinkGeneration(self, handle: SimulatedGpu) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.PCIE_GENERATION

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: SimulatedGpu) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.PCIE_WIDTH

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: SimulatedGpu) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.PCIE_WIDTH

    # --- what it does ------------------------------------------------------------------------------------------

    def nvmlDeviceGetMemoryInfo(self, handle: SimulatedGpu, version: int | None = None) -> Memory:  # noqa: D102, N802  # pynvml's name
        used = min(self._use(handle).used_bytes, host.MEMORY_BYTES - host.RESERVED_BYTES)
        free = host.MEMORY_BYTES - host.RESERVED_BYTES - used
        if version is None:
            return Memory(host.MEMORY_BYTES, 0, free, used + host.RESERVED_BYTES, 1)
        return Memory(host.MEMORY_BYTES, host.RESERVED_BYTES, free, used, version)

    def nvmlDeviceGetUtilizationRates(self, handle: SimulatedGpu) -> Utilisation:  # noqa: D102, N802  # pynvml's name
        busy = self._use(handle).utilisation
        return Utilisation(busy, busy * 7 // 10)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: SimulatedGpu) -> list[Process]:  # noqa: D102, N802  # pynvml's name
        return [Process(holder.pid, holder.bytes) for holder in self._use(handle).holders]

    def nvmlDeviceGetPowerUsage(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return round(1000 * _watts(self._use(handle)))

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: SimulatedGpu) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return 1000 * host.POWER_LIMIT_WATTS

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return round(1000 * self._joules(handle))

    def nvmlDeviceGetTemperature(self, handle: SimulatedGpu, sensor: int) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return 30 + handle.index % 3 + round(_watts(self._use(handle)) / 12)

    def nvmlDeviceGetClockInfo(self, handle: SimulatedGpu, kind: int) -> int:  # noqa: D102, N802  # pynvml's name
        return self.nvmlDeviceGetMaxClockInfo(handle, kind) if self._use(handle).holders else host.IDLE_CLOCK_MHZ

    def nvmlDeviceGetMaxClockInfo(self, handle: SimulatedGpu, kind: int) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return host.MEMORY_CLOCK_MHZ if kind == pynvml.NVML_CLOCK_MEM else host.SM_CLOCK_MHZ

    def nvmlDeviceGetApplicationsClock(self, handle: SimulatedGpu, kind: int) -> int:  # noqa: D102, N802  # pynvml's name
        return self.nvmlDeviceGetMaxClockInfo(handle, kind)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return 0 if self._use(handle).utilisation else _CLOCKS_REASON_IDLE

    def nvmlDeviceGetTotalEccErrors(self, handle: SimulatedGpu, kind: int, counter: int) -> int:  # noqa: ARG002, D102, N802  # pynvml's name
        return 0

    def nvmlDeviceGetRemappedRows(self, handle: SimulatedGpu) -> tuple[int, int, int, int]:  # noqa: ARG002, D102, N802  # pynvml's name
        return 0, 0, 0, 0

    def nvmlDeviceGetFieldValues(self, handle: SimulatedGpu, wanted: list[int]) -> list[FieldValue]:  # noqa: D102, N802  # pynvml's name
        milliwatts = self.nvmlDeviceGetPowerUsage(handle)
        known = {
            pynvml.NVML_FI_DEV_POWER_INSTANT: milliwatts,
            pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER: 0,
            pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: 0,
            pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP: 0,
            pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN: 0,
            pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN: 0,
            pynvml.NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN: 0,
        }
        return [
            FieldValue(number, 0, _FIELD_IS_64_BITS, Number(known[number]))
            if number in known
            else FieldValue(number, pynvml.NVML_ERROR_NOT_SUPPORTED, _FIELD_IS_64_BITS, Number(0))
            for number in wanted
        ]

    def nvmlDeviceGetPerformanceState(self, handle: SimulatedGpu) -> int:  # noqa: D102, N802  # pynvml's name
        return 0 if self._use(handle).holders else 8

    # --- within ------------------------------------------------------------------------------------------------

    def _need_open(self) -> None:
        if not self._open:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)

    def _use(self, gpu: SimulatedGpu) -> GpuUse:
        self._need_open()
        return gpu_use(self._folder, gpu.index, self._clock.monotonic())

    def _joules(self, gpu: SimulatedGpu) -> float:
        """The counter: each reader adds what was drawn since the last reader, at the power that the last one saw.

        So it never falls, and a reader a second makes it the integral of the power that a reader a second sees.
        """
        use = self._use(gpu)
        now = self._clock.monotonic()
        path = self._folder / f"energy{gpu.index}.json"
        with locked(self._folder, "energy"):
            kept = read_json(path) or {"joules": 0.0, "at": now, "watts": _watts(use)}
            drawn: float = max(now - kept["at"], 0.0) * kept["watts"]
            joules = float(kept["joules"]) + drawn
            write_whole(path, {"joules": joules, "at": max(now, kept["at"]), "watts": _watts(use)})
        return joules


def _watts(use: GpuUse) -> float:
    """What the card draws now."""
    if not use.holders:
        return _IDLE_WATTS
    return _IDLE_WATTS + _RESIDENT_WATTS + _BUSY_WATTS * use.utilisation / 100
