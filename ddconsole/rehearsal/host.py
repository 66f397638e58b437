"""The simulated CT200 as hardware: eight cards on two NUMA domains, and the host around them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB = 1024 * 1024
NAME = "NVIDIA RTX PRO 6000 Blackwell Server Edition (simulated)"
DRIVER = "580.159.04"
CUDA_DRIVER = 13000
COMPUTE_CAPABILITY = (12, 0)
MEMORY_BYTES = 97_887 * MIB
RESERVED_BYTES = 635 * MIB
"""The driver's own: counted as reserved by NVML's second memory call, as used by the first."""
POWER_LIMIT_WATTS = 600
PCIE_GENERATION = 5
PCIE_WIDTH = 16
SM_CLOCK_MHZ = 2430
IDLE_CLOCK_MHZ = 180
MEMORY_CLOCK_MHZ = 12_481
NODE_BYTES = 515_838_000 * 1024
SERVICE_UNIT = "ddtree-gpu0.service"
"""The unit that the operator keeps on GPU 0 and a sweep displaces."""
SERVICE_GPU = 0
SERVICE_BYTES = 71_000 * MIB
KERNEL = "6.8.12-simulated"
BOOT_ID = "51d00000-c200-4000-8000-000000000200"


@dataclass(frozen=True, slots=True)
class SimulatedGpu:
    """One card."""

    index: int
    uuid: str
    numa_node: int
    bus_id: str
    """As NVML writes it, `00000000:17:00.0`."""

    @property
    def sysfs_address(self) -> str:
        """As the kernel writes it, `0000:17:00.0`."""
        return self.bus_id[4:].lower()


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """One NUMA domain."""

    index: int
    cpus: str
    """As sysfs lists them."""
    memory_bytes: int
    free_bytes: int


_BUSES = ("16", "27", "38", "5A", "98", "A8", "B8", "D8")

GPUS = tuple(
    SimulatedGpu(
        index=index,
        uuid=f"GPU-51d00000-c200-4000-8000-00000000000{index}",
        numa_node=0 if index < 4 else 1,
        bus_id=f"00000000:{bus}:00.0",
    )
    for index, bus in enumerate(_BUSES)
)
NODES = (
    SimulatedNode(0, "0-31,64-95", NODE_BYTES, NODE_BYTES * 6 // 10),
    SimulatedNode(1, "32-63,96-127", NODE_BYTES, NODE_BYTES * 9 // 10),
)


def host_tree(service_on_gpu0: bool = False) -> dict[str, str]:
    """What /sys and /proc say of the simulated host, by path without the leading slash.

    Args:
        service_on_gpu0: whether the operator's unit still holds GPU 0.
    """
    tree = {"proc/sys/kernel/random/boot_id": BOOT_ID, "proc/sys/kernel/osrelease": KERNEL, "proc/meminfo": _meminfo()}
    for node in NODES:
        folder = f"sys/devices/system/node/node{node.index}"
        tree[f"{folder}/cpulist"] = node.cpus
        tree[f"{folder}/distance"] = " ".join("10" if other is node else "32" for other in NODES)
        tree[f"{folder}/meminfo"] = (
            f"Node {node.index} MemTotal:       {node.memory_bytes // 1024} kB\n"
            f"Node {node.index} MemFree:        {node.free_bytes // 1024} kB"
        )
    for gpu in GPUS:
        folder = f"sys/bus/pci/devices/{gpu.sysfs_address}"
        tree[f"{folder}/numa_node"] = str(gpu.numa_node)
        tree[f"{folder}/local_cpulist"] = NODES[gpu.numa_node].cpus
        tree[f"{folder}/aer_dev_correctable"] = "TOTAL_ERR_COR 0"
        tree[f"{folder}/aer_dev_nonfatal"] = "TOTAL_ERR_NONFATAL 0"
        tree[f"{folder}/aer_dev_fatal"] = "TOTAL_ERR_FATAL 0"
        for which in ("current", "max"):
            tree[f"{folder}/{which}_link_speed"] = "32.0 GT/s PCIe"
            tree[f"{folder}/{which}_link_width"] = str(PCIE_WIDTH)
    if service_on_gpu0:
        tree[f"run/systemd/units/{SERVICE_UNIT}"] = "active"
    return tree


def write_host_tree(root: Path, service_on_gpu0: bool = False) -> None:
    """Write `host_tree` under a folder, for readers that take another root than `/`."""
    for name, text in host_tree(service_on_gpu0).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")


def host_facts(service_on_gpu0: bool = False) -> dict[str, Any]:
    """The simulated host for checks and screens that show it without reading files."""
    return {
        "simulated": True,
        "hostname": "ct200 (simulated)",
        "boot_id": BOOT_ID,
        "driver": DRIVER,
        "cuda_driver": CUDA_DRIVER,
        "cpu_count": 128,
        "memory_total": sum(node.memory_bytes for node in NODES),
        "memory_available": sum(node.free_bytes for node in NODES),
        "nodes": [
            {
                "index": node.index,
                "cpus": node.cpus,
                "memory_total": node.memory_bytes,
                "memory_free": node.free_bytes,
                "gpus": [gpu.index for gpu in GPUS if gpu.numa_node == node.index],
            }
            for node in NODES
        ],
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": NAME,
                "pci_address": gpu.sysfs_address,
                "numa_node": gpu.numa_node,
                "memory_total": MEMORY_BYTES,
                "pcie_generation": PCIE_GENERATION,
                "pcie_width": PCIE_WIDTH,
            }
            for gpu in GPUS
        ],
        "units": [
            {"unit": SERVICE_UNIT, "gpu": SERVICE_GPU, "active": service_on_gpu0, "memory_used": SERVICE_BYTES},
        ],
    }


def _meminfo() -> str:
    total = sum(node.memory_bytes for node in NODES) // 1024
    free = sum(node.free_bytes for node in NODES) // 1024
    return f"MemTotal:       {total} kB\nMemFree:        {free} kB\nMemAvailable:   {free} kB"
