"""One sample of the whole machine: NVML, sysfs and psutil put together."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from ddconsole.core.host_state import DeviceOpener, GpuState, HostState
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe import host, limits, sysfs
from ddconsole.probe.nvml import SLOWEST, GpuReader, GpuSample, with_numa_node
from ddconsole.probe.nvml_calls import Nvml
from ddconsole.probe.openers import device_openers
from ddconsole.probe.rehearsed import as_rehearsed

Value = TypeVar("Value")
Openers = Mapping[int, tuple[DeviceOpener, ...]]


class HostSampler:
    """Takes samples of this machine. Everything it calls can hang in the driver: give it a process of its own.

    Args:
        nvml: pynvml, or a stand-in.
        now: wall clock.
        root: where /sys and /proc are looked for.
        disks: paths whose file systems are reported too.
        simulated: the machine is a rehearsal's.
        left_out: GPUs that are not asked, by index, with the reason.
    """

    def __init__(
        self,
        nvml: Nvml,
        now: Callable[[], float],
        root: Path = Path("/"),
        disks: Sequence[str] = (),
        simulated: bool = False,
        left_out: Mapping[int, str] | None = None,
    ) -> None:
        self.gpus = GpuReader(nvml, now, left_out)
        self._now = now
        self._root = root
        self._disks = disks
        self._simulated = simulated
        self._asked_cpu = False
        self._network = host.NetworkRate()
        self._openers: tuple[float, object, Openers] = (float("-inf"), None, {})
        self._cost: tuple[float, float] | None = None

    def sample(self, *, quiet: bool = False) -> HostState:
        """The machine now; when `quiet`, what is slow only once a minute."""
        began = time.perf_counter()
        nvml = self.gpus.sample(quiet=quiet)
        at = self._now()
        gpus = self._with_openers(tuple(self._with_kernel(gpu, at) for gpu in nvml.gpus), at)
        state = replace(self._around(nvml, gpus, at), quiet=quiet)
        cpu = self._own_cpu(at)
        state = replace(
            state, probe_cpu=cpu, probe_seconds=read(round(time.perf_counter() - began, 6), at, "perf_counter")
        )
        return as_rehearsed(state) if self._simulated else state

    def _around(self, nvml: GpuSample, gpus: tuple[GpuState, ...], at: float) -> HostState:
        machine = host.host_sample(at, cpu_measured=self._asked_cpu)
        self._asked_cpu = True
        shm = host.disk_space("/dev/shm", at)  # noqa: S108  # the place where models are staged, not a temp file
        limit, limited_use = limits.memory_limit(self._root, at)
        sent, received = self._network.rates(at)
        return HostState(
            at=at,
            hostname=host.hostname(at),
            boot_token=host.boot_token(self._root, at),
            kernel=host.kernel(self._root, at),
            driver=nvml.driver,
            cuda_driver=nvml.cuda_driver,
            gpu_count=nvml.count,
            gpus=gpus,
            nodes=sysfs.numa_nodes(self._root, gpus_by_node(gpus), at),
            pairs=nvml.pairs,
            cpu_count=machine.cpu_count,
            cpus_allowed=machine.cpus_allowed,
            cpu_percent=machine.cpu_percent,
            load=machine.load,
            memory_total=machine.memory_total,
            memory_available=machine.memory_available,
            shm_total=shm.total,
            shm_free=shm.free,
            disks=tuple(host.disk_space(path, at) for path in self._disks),
            simulated=self._simulated,
            memory_limit=limit,
            memory_limited_use=limited_use,
            pressure_cpu=limits.pressure(self._root, "cpu", at),
            pressure_memory=limits.pressure(self._root, "memory", at),
            pressure_io=limits.pressure(self._root, "io", at),
            network_sent=sent,
            network_received=received,
        )

    def _with_kernel(self, gpu: GpuState, at: float) -> GpuState:
        """The kernel's word on the NUMA node goes first; on the PCIe link, only where NVML says nothing."""
        address = gpu.pci_address.value
        if address is None:
            return gpu
        gpu = with_numa_node(gpu, sysfs.pci_numa_node(self._root, address, at))
        corrected, uncorrected = sysfs.pci_link_errors(self._root, address, at)
        gpu = replace(
            gpu,
            cpu_affinity=_first_known(sysfs.pci_cpus(self._root, address, at), gpu.cpu_affinity),
            aer_corrected=corrected,
            aer_uncorrected=uncorrected,
        )
        if gpu.pcie_generation.known and gpu.pcie_generation_max.known:
            return gpu
        generation, width = sysfs.pci_link(self._root, address, "current", at)
        generation_max, width_max = sysfs.pci_link(self._root, address, "max", at)
        return replace(
            gpu,
            pcie_generation=_first_known(gpu.pcie_generation, generation),
            pcie_width=_first_known(gpu.pcie_width, width),
            pcie_generation_max=_first_known(gpu.pcie_generation_max, generation_max),
            pcie_width_max=_first_known(gpu.pcie_width_max, width_max),
        )

    def _with_openers(self, gpus: tuple[GpuState, ...], at: float) -> tuple[GpuState, ...]:
        """Who has the device nodes open. Looked for when the driver's list of processes changed, or a minute passed."""
        if self._simulated or not gpus:
            return gpus
        listed = tuple(gpu.processes.value for gpu in gpus)
        if at - self._openers[0] >= SLOWEST or listed != self._openers[1]:
            self._openers = (at, listed, device_openers(self._root))
        return tuple(replace(gpu, openers=self._openers_of(gpu)) for gpu in gpus)

    def _openers_of(self, gpu: GpuState) -> Reading[tuple[DeviceOpener, ...]]:
        at, _, openers = self._openers
        if gpu.minor.value is None:
            return unavailable(gpu.minor.unavailable or "its device node is not known", at, "/proc/*/fd")
        return read(openers.get(gpu.minor.value, ()), at, "/proc/*/fd")

    def _own_cpu(self, at: float) -> Reading[float]:
        now = (time.monotonic(), time.process_time())
        before, self._cost = self._cost, now
        if before is None or now[0] <= before[0]:
            return unavailable("the first sample has no interval", at, "process_time")
        return read(round(100 * (now[1] - before[1]) / (now[0] - before[0]), 3), at, "process_time")


def gpus_by_node(gpus: Sequence[GpuState]) -> dict[int, tuple[int, ...]]:
    """Indices of the GPUs of each node that is known."""
    nodes = sorted({gpu.numa_node.value for gpu in gpus if gpu.numa_node.value is not None})
    return {node: tuple(gpu.index for gpu in gpus if gpu.numa_node.value == node) for node in nodes}


def _first_known(first: Reading[Value], second: Reading[Value]) -> Reading[Value]:
    return first if first.known or not second.known else second
