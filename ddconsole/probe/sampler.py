"""One sample of the whole machine: NVML, sysfs and psutil put together."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ddconsole.core.host_state import GpuState, HostState
from ddconsole.core.readings import Reading
from ddconsole.probe import host, sysfs
from ddconsole.probe.nvml import GpuReader, Nvml, with_numa_node
from ddconsole.probe.rehearsed import as_rehearsed


class HostSampler:
    """Takes samples of this machine. Everything it calls can hang in the driver: give it a process of its own."""

    def __init__(
        self,
        nvml: Nvml,
        now: Callable[[], float],
        root: Path = Path("/"),
        disks: Sequence[str] = (),
        simulated: bool = False,
    ) -> None:
        self._gpus = GpuReader(nvml, now)
        self._now = now
        self._root = root
        self._disks = disks
        self._simulated = simulated
        self._asked_cpu = False

    def sample(self) -> HostState:
        """The machine now."""
        nvml = self._gpus.sample()
        at = self._now()
        gpus = tuple(self._with_kernel(gpu, at) for gpu in nvml.gpus)
        machine = host.host_sample(at, cpu_measured=self._asked_cpu)
        self._asked_cpu = True
        shm = host.disk_space("/dev/shm", at)  # noqa: S108  # the place where models are staged, not a temp file
        state = HostState(
            at=at,
            hostname=host.hostname(at),
            boot_token=host.boot_token(self._root, at),
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
        )
        return as_rehearsed(state) if self._simulated else state

    def _with_kernel(self, gpu: GpuState, at: float) -> GpuState:
        """The kernel's word on the NUMA node goes first; on the PCIe link, only where NVML says nothing."""
        address = gpu.pci_address.value
        if address is None:
            return gpu
        gpu = with_numa_node(gpu, sysfs.pci_numa_node(self._root, address, at))
        generation, width = sysfs.pci_link(self._root, address, "current", at)
        generation_max, width_max = sysfs.pci_link(self._root, address, "max", at)
        return replace(
            gpu,
            pcie_generation=_first_known(gpu.pcie_generation, generation),
            pcie_width=_first_known(gpu.pcie_width, width),
            pcie_generation_max=_first_known(gpu.pcie_generation_max, generation_max),
            pcie_width_max=_first_known(gpu.pcie_width_max, width_max),
        )


def gpus_by_node(gpus: Sequence[GpuState]) -> dict[int, tuple[int, ...]]:
    """Indices of the GPUs of each node that is known."""
    nodes = sorted({gpu.numa_node.value for gpu in gpus if gpu.numa_node.value is not None})
    return {node: tuple(gpu.index for gpu in gpus if gpu.numa_node.value == node) for node in nodes}


def _first_known(first: Reading[int], second: Reading[int]) -> Reading[int]:
    return first if first.known or not second.known else second
