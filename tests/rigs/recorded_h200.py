"""The recorded H200 machine as facts: NVML and files as recorded, the rest of the machine in order."""

import json
from dataclasses import replace
from pathlib import Path

from one_check import plan
from synthetic_host import NVML

from ddconsole.core.sweep import Placement
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedMachine
from ddconsole.preflight.take_inventory import inventory_of
from ddconsole.probe.inventory import inventory_lines
from ddconsole.probe.recording import RecordedNvml, write_files
from ddconsole.probe.sampler import HostSampler


def h200_facts(facts: Facts, machine: RecordedMachine, root: Path) -> Facts:
    """A plan with servers of two ranks on the two GPUs."""
    files = json.loads((NVML / "h200x2-files.json").read_text())
    write_files(files, root / "h200")
    nvml = RecordedNvml(json.loads((NVML / "h200x2.json").read_text()))
    host = HostSampler(nvml, lambda: 5.0, root / "h200").sample()
    lines = "\n".join(json.dumps(line) for line in inventory_lines(nvml, lambda: 5.0))
    machine.children["cuda"] = Ran(0, json.dumps({"library": "l", "init": 0, "name": "", "count": 2}), "", 0.1)
    machine.files = {name: data for name, data in machine.files.items() if "iommu_group" not in name}
    machine.files["/proc/self/status"] = b"Cpus_allowed_list:\t0-31\n"
    placed = tuple(
        replace(one, placement=Placement((0, 1), "numa"), tensor_parallel=2) for one in facts.plan.deployments
    )
    changed = plan(facts, deployments=placed, expected_gpus=2, expected_gpu_name="H200", expected_nodes=1, displaced=())
    return replace(changed, host=host, inventory=inventory_of(Ran(0, lines, "", 0.3), 30.0))
