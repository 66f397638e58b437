"""Hosts made from the recorded H200 machine by changing single answers. Everything here is synthetic."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ddconsole.core.host_state import HostState
from ddconsole.core.inventory import Inventory
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.take_inventory import inventory_of
from ddconsole.probe.inventory import inventory_lines
from ddconsole.probe.recording import RecordedNvml
from ddconsole.probe.sampler import HostSampler

NVML = Path(__file__).parents[1] / "fixtures/nvml"
Gpus = dict[int, dict[str, Any]]
"""Answers of NVML that differ, by GPU."""


def field_value(field: int, value: int, code: int = 0) -> dict[str, Any]:
    return {"fieldId": field, "nvmlReturn": code, "valueType": 3, "value": {"ullVal": value}}


def fields(recovery: int = 0, hot: int = 0, braked: int = 0) -> dict[str, Any]:
    """The fields of NVML that are asked for; 94 counts packets that were sent again."""
    told = {230: recovery, 270: hot, 271: braked, 94: 7}
    return {"value": [field_value(number, value) for number, value in told.items()]}


class SyntheticHost:
    """GPUs on NUMA nodes; called with answers of NVML that differ, it gives a sample."""

    def __init__(self, root: Path, count: int = 8, nodes: int = 2) -> None:
        self._root = root
        self._count = count
        self._nodes = nodes

    def __call__(self, gpus: Gpus | None = None, **everywhere: Any) -> HostState:
        return HostSampler(self.nvml(gpus, everywhere), lambda: 5.0, self._tree()).sample()

    def inventory(self, gpus: Gpus | None = None, **everywhere: Any) -> Inventory:
        lines = [json.dumps(line) for line in inventory_lines(self.nvml(gpus, everywhere), lambda: 5.0)]
        return inventory_of(Ran(0, "\n".join(lines), "", 0.3), 30.0)

    def change(self, facts: Facts, gpus: Gpus | None = None, **everywhere: Any) -> Facts:
        """The facts with sample and inventory of the changed host."""
        return replace(facts, host=self(gpus, **everywhere), inventory=self.inventory(gpus, **everywhere))

    def nvml(self, gpus: Gpus | None, everywhere: dict[str, Any]) -> RecordedNvml:
        recording = json.loads((NVML / "h200x2.json").read_text())
        model = recording["devices"][0]
        model["nvmlDeviceGetName"] = {"value": "NVIDIA RTX PRO 6000 Blackwell Server Edition"}
        model["nvmlDeviceGetCudaComputeCapability"] = {"value": [12, 0]}
        model["nvmlDeviceGetFieldValues"] = fields()
        model["nvmlDeviceGetMemoryInfo_v2"] = {"value": {"total": 96 << 30, "used": 0, "free": 95 << 30}}
        devices = [copy.deepcopy(model) for _ in range(self._count)]
        for index, device in enumerate(devices):
            device["nvmlDeviceGetUUID"] = {"value": f"GPU-synthetic-{index}"}
            device["nvmlDeviceGetMinorNumber"] = {"value": index}
            device["nvmlDeviceGetPciInfo_v3"] = {"value": {"busId": f"00000000:{index + 16:02X}:00.0"}}
            device["nvmlDeviceGetMemoryAffinity"] = {"value": [1 << (index * self._nodes // self._count)]}
            device.update((gpus or {}).get(index, {}))
        pairs = [
            {"a": a, "b": b, "common_ancestor": {"value": 40}, "p2p[0]": {"value": 0}, "p2p[2]": {"value": 5}}
            for a in range(self._count)
            for b in range(self._count)
        ]
        count = {"nvmlDeviceGetCount": {"value": self._count}}
        return RecordedNvml(recording | {"devices": devices, "pairs": pairs} | count | everywhere)

    def _tree(self) -> Path:
        boot = self._root / "proc/sys/kernel/random"
        boot.mkdir(parents=True, exist_ok=True)
        (boot / "boot_id").write_text("51d00000-0000-4000-8000-000000000001\n")
        for node in range(self._nodes):
            folder = self._root / f"sys/devices/system/node/node{node}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cpulist").write_text(f"{node * 64}-{node * 64 + 63}\n")
        return self._root
