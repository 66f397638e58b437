"""One sample of the whole machine: NVML, sysfs and psutil put together."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddconsole.core.host_state import DeviceOpener, GpuState, HostState, NumaNode
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe import host, limits, sysfs
from ddconsole.probe.nvml import SLOW, SLOWEST, GpuReader, GpuSample, Readings
from ddconsole.probe.nvml_calls import Nvml
from ddconsole.probe.openers import device_openers
from ddconsole.probe.rehearsed import as_rehearsed

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
        self.gpus = GpuReader(nvml, now, left_out, self._kernel_readings)
        self._now = now
        self._root = root
        self._disks = disks
        self._simulated = simulated
        self._asked_cpu = False
        self._network = host.NetworkRate()
        self._kept: dict[str, tuple[float, Any]] = {}
        self._openers: tuple[float, Openers] | None = None
        self._processes: tuple[object, ...] = ()
        self._cost: tuple[float, float] | None = None

    def sample(self, *, quiet: bool = False) -> HostState:
        """The machine now; when `quiet`, what is slow only once a minute."""
        began = time.perf_counter()
        nvml = self.gpus.sample(quiet=quiet)
        nvml = replace(nvml, gpus=tuple(self._with_link(gpu) for gpu in nvml.gpus))
        self._forget_openers(nvml.gpus)
        state = self._around(nvml, self._now(), began, quiet=quiet)
        return as_rehearsed(state) if self._simulated else state

    def _around(self, nvml: GpuSample, at: float, began: float, *, quiet: bool) -> HostState:
        machine = host.host_sample(at, cpu_measured=self._asked_cpu)
        self._asked_cpu = True
        shm = host.disk_space("/dev/shm", at)  # noqa: S108  # the place where models are staged, not a temp file
        limit, limited_use = self._keep("limit", SLOW, lambda: limits.memory_limit(self._root, at))
        sent, received = self._network.rates(at)
        return HostState(
            at=at,
            hostname=self._keep("hostname", SLOWEST, lambda: host.hostname(at)),
            boot_token=self._keep("boot", SLOWEST, lambda: host.boot_token(self._root, at)),
            driver=nvml.driver,
            cuda_driver=nvml.cuda_driver,
            gpu_count=nvml.count,
            gpus=nvml.gpus,
            nodes=self._nodes(nvml.gpus, at),
            pairs=nvml.pairs,
            cpu_count=machine.cpu_count,
            cpus_allowed=machine.cpus_allowed,
            cpu_percent=machine.cpu_percent,
            load=machine.load,
            memory_total=machine.memory_total,
            memory_available=machine.memory_available,
            page_cache=machine.page_cache,
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
            probe_cpu=self._own_cpu(at),
            probe_seconds=read(round(time.perf_counter() - began, 6), at, "perf_counter"),
            quiet=quiet,
            kernel=self._keep("kernel", SLOWEST, lambda: host.kernel(self._root, at)),
        )

    def _keep(self, name: str, seconds: float, read_it: Callable[[], Any]) -> Any:
        """A value that is read once in so many seconds: a file costs 30 us."""
        kept = self._kept.get(name)
        now = self._now()
        if kept is None or now - kept[0] >= seconds:
            kept = self._kept[name] = (now, read_it())
        return kept[1]

    def _nodes(self, gpus: Sequence[GpuState], at: float) -> tuple[NumaNode, ...]:
        placed = gpus_by_node(gpus)
        nodes: tuple[NumaNode, ...] = self._keep(
            f"nodes {placed}", SLOW, lambda: sysfs.numa_nodes(self._root, placed, at)
        )
        return nodes

    def _kernel_readings(self, address: str | None, minor: int | None) -> Readings:
        """The kernel's word on the NUMA node and the CPUs goes before the driver's."""
        readings: Readings = {} if address is None else self._keep(f"pci {address}", SLOW, lambda: self._pci(address))
        return readings if self._simulated else {**readings, "openers": self._openers_of(minor)}

    def _pci(self, address: str) -> Readings:
        at = self._now()
        corrected, uncorrected = sysfs.pci_link_errors(self._root, address, at)
        readings: Readings = {"aer_corrected": corrected, "aer_uncorrected": uncorrected}
        node, cpus = sysfs.pci_numa_node(self._root, address, at), sysfs.pci_cpus(self._root, address, at)
        known: Readings = {"numa_node": node, "cpu_affinity": cpus}
        return {**readings, **{name: reading for name, reading in known.items() if reading.known}}

    def _with_link(self, gpu: GpuState) -> GpuState:
        """The kernel's word on the PCIe link, where NVML says nothing."""
        address = gpu.pci_address.value
        if address is None or (gpu.pcie_generation.known and gpu.pcie_generation_max.known):
            return gpu
        at = self._now()
        generation, width = sysfs.pci_link(self._root, address, "current", at)
        generation_max, width_max = sysfs.pci_link(self._root, address, "max", at)
        return replace(
            gpu,
            pcie_generation=_first_known(gpu.pcie_generation, generation),
            pcie_width=_first_known(gpu.pcie_width, width),
            pcie_generation_max=_first_known(gpu.pcie_generation_max, generation_max),
            pcie_width_max=_first_known(gpu.pcie_width_max, width_max),
        )

    def _openers_of(self, minor: int | None) -> Reading[tuple[DeviceOpener, ...]]:
        """Who has the device node open. Looked for when the driver's list of processes changed, or a minute passed."""
        now = self._now()
        if self._openers is None or now - self._openers[0] >= SLOWEST:
            self._openers = (now, device_openers(self._root))
        at, openers = self._openers
        if minor is None:
            return unavailable("its device node is not known", at, "/proc/*/fd")
        return read(openers.get(minor, ()), at, "/proc/*/fd")

    def _forget_openers(self, gpus: Sequence[GpuState]) -> None:
        processes = tuple(gpu.processes.value for gpu in gpus)
        if processes != self._processes:
            self._processes = processes
            self._openers = None

    def _own_cpu(self, at: float) -> Reading[float]:
        now = (time.monotonic(), time.process_time())
        before, self._cost = self._cost, now
        if before is None or now[0] <= before[0]:
            return unavailable("the first sample has no interval", at, "process_time")
        return read(round(100 * (now[1] - before[1]) / (now[0] - before[0]), 3), at, "process_time")


def _first_known(first: Reading[int], second: Reading[int]) -> Reading[int]:
    return first if first.known or not second.known else second


def gpus_by_node(gpus: Sequence[GpuState]) -> dict[int, tuple[int, ...]]:
    """Indices of the GPUs of each node that is known."""
    nodes = sorted({gpu.numa_node.value for gpu in gpus if gpu.numa_node.value is not None})
    return {node: tuple(gpu.index for gpu in gpus if gpu.numa_node.value == node) for node in nodes}
