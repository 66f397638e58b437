"""Whole hosts: the recorded one, and synthetic ones made from it. What is found, and nothing besides."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from broken_hosts import (
    ONE_NODE,
    WEDGED,
    Change,
    answer,
    device,
    driver_mismatch,
    file,
    nvml,
    planned,
    silent,
)
from one_check import libraries
from recorded_h200 import h200_facts
from synthetic_host import NVML, SyntheticHost, fields

from ddconsole.core.sweep import Placement
from ddconsole.preflight.check import Outcome
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine
from ddconsole.preflight.run_checks import run_checks

LOST = {"error": "", "code": 15}
MIG = {"nvmlDeviceGetMigMode": {"value": [1, 1]}, "nvmlDeviceGetUtilizationRates": {"error": "", "code": 3}}
CALLS = tuple(json.loads((NVML / "h200x2.json").read_text())["devices"][0])
PASSED_ON = {Outcome.PASS, Outcome.SKIP}


def both(*changes: Change) -> Change:
    def change(facts: Facts, machine: RecordedMachine, synthetic: SyntheticHost) -> Facts:
        for one in changes:
            facts = one(facts, machine, synthetic)
        return facts

    return change


def after_reboot(facts: Facts, machine: RecordedMachine, synthetic: SyntheticHost) -> Facts:
    """The host was rebooted: tmpfs is empty, nobody has loaded nvidia-uvm yet, persistence mode is off again."""
    machine.files = {name: data for name, data in machine.files.items() if not name.startswith("/dev/shm/")}
    machine.folders.add("/dev/shm")
    del machine.devices[DEVICE]
    machine.files["/proc/devices"] = b"195 nvidia\n"
    return synthetic.change(facts, {index: {"nvmlDeviceGetPersistenceMode": {"value": 0}} for index in range(8)})


def no_driver(facts: Facts, machine: RecordedMachine, synthetic: SyntheticHost) -> Facts:
    del machine.files["/proc/driver/nvidia/version"]
    machine.children["libraries"] = libraries(cuda=None, nvml=None)
    return nvml(nvmlInit={"error": "", "code": 12})(facts, machine, synthetic)


def crossing(facts: Facts, machine: RecordedMachine, synthetic: SyntheticHost) -> Facts:
    """Placed over both sockets, with CPUs of one of them only."""
    machine.files["/proc/self/status"] = b"Cpus_allowed_list:\t0-63\n"
    placed = tuple(replace(one, placement=Placement((2, 3, 4, 5), "numa")) for one in facts.plan.deployments)
    return replace(facts, plan=replace(facts.plan, deployments=placed, displaced=()))


@dataclass(frozen=True, slots=True)
class Scenario:
    """A host, and the findings that it must give: check, outcome, and part of the text."""

    change: Change
    findings: Mapping[str, tuple[Outcome, str]]


FAIL, WARN, UNKNOWN = Outcome.FAIL, Outcome.WARN, Outcome.UNKNOWN
UVM = "dev.uvm-open"
SCENARIOS: dict[str, Scenario] = {
    "CT200 healthy": Scenario(both(), {}),
    "CT200 after a reboot": Scenario(
        after_reboot,
        {
            UVM: (FAIL, "the device node is not there"),
            "driver.persistence": (WARN, "GPU 4, 5, 6, 7: off"),
            "model.complete": (FAIL, "/dev/shm/Qwen3.6-27B is not there"),
        },
    ),
    "uvm: EPERM": Scenario(device(DEVICE, RecordedDevice("EPERM")), {UVM: (FAIL, "device cgroup")}),
    "uvm: EACCES": Scenario(device(DEVICE, RecordedDevice("EACCES")), {UVM: (FAIL, "mode bits")}),
    "uvm: ENOENT": Scenario(device(DEVICE, None), {UVM: (FAIL, "is not there")}),
    "uvm: ENXIO": Scenario(device(DEVICE, RecordedDevice("ENXIO")), {UVM: (FAIL, "no driver stands behind")}),
    "uvm: an empty file": Scenario(device(DEVICE, RecordedDevice(kind="file")), {UVM: (FAIL, "empty regular file")}),
    "wedged GPU": Scenario(nvml({5: WEDGED}), {"gpu.idle": (FAIL, "GPU 5 100 % busy, no process")}),
    "lost GPU": Scenario(
        nvml({5: dict.fromkeys(CALLS, LOST)}), {"gpu.count": (FAIL, "GPU 5: the GPU is lost: it fell off the bus")}
    ),
    "GSP stall": Scenario(
        silent(26.0), {"driver.answers": (FAIL, "GPU 5, nvmlDeviceGetEccMode has not answered for 26 s")}
    ),
    "MIG": Scenario(
        nvml({5: MIG}),
        {"gpu.mig": (FAIL, "GPU 5: multi-instance mode is on")},
    ),
    "no GPU": Scenario(nvml(nvmlDeviceGetCount={"value": 0}), {"gpu.count": (FAIL, "0 GPUs")}),
    "no driver": Scenario(no_driver, {"driver.match": (FAIL, "no driver: neither kernel module nor libraries")}),
    "driver mismatch": Scenario(
        both(driver_mismatch, nvml(nvmlInit={"error": "", "code": 18})), {"driver.match": (FAIL, "575.57.08")}
    ),
    "two sockets, wrong affinity": Scenario(
        crossing,
        {
            "numa.cpus": (FAIL, "no CPU of node 1 may be used"),
            "placement.numa": (WARN, "GPU 2, 3, 4, 5 cross NUMA 0, 1"),
        },
    ),
    "two sockets, one of them said": Scenario(nvml(ONE_NODE), {"numa.known": (WARN, "all 8 GPUs are said to be on")}),
    "power brake": Scenario(
        both(answer(6, "nvmlDeviceGetCurrentClocksEventReasons", 0x80)), {"gpu.slowdown": (FAIL, "GPU 6: power brake")}
    ),
    "the driver asks for a reset": Scenario(
        nvml({4: {"nvmlDeviceGetFieldValues": fields(recovery=1)}}), {"gpu.recovery": (FAIL, "GPU 4: the driver asks")}
    ),
    "NCCL told a word it does not know": Scenario(
        planned(engine_env={"NCCL_P2P_LEVEL": "NODE"}), {"nccl.env": (FAIL, "NCCL_P2P_LEVEL=NODE")}
    ),
    "the kernel log of another name space": Scenario(
        lambda facts, machine, _: _without_log(facts, machine), {"gpu.xid": (UNKNOWN, "nothing is known of Xids")}
    ),
    "balancing": Scenario(
        file("/proc/sys/kernel/numa_balancing", b"1\n"), {"numa.balancing": (WARN, "automatic NUMA balancing is on")}
    ),
}
"""All synthetic: the recorded H200 with the answers that differ on such a host."""


def _without_log(facts: Facts, machine: RecordedMachine) -> Facts:
    machine.programs["dmesg"] = Ran(1, "", "dmesg: read kernel buffer failed: Operation not permitted", 0.0)
    return facts


@pytest.mark.parametrize("name", SCENARIOS)
async def test_what_is_found_and_nothing_besides(
    name: str, facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    scenario = SCENARIOS[name]

    findings = await run_checks(scenario.change(facts, machine, synthetic_host))

    found = {one.id: (one.outcome, one.observed) for one in findings if one.outcome not in PASSED_ON}
    assert {check: outcome for check, (outcome, _) in found.items()} == {
        check: outcome for check, (outcome, _) in scenario.findings.items()
    }
    for check, (_, text) in scenario.findings.items():
        assert text in found[check][1]


async def test_sixteen_gpus_on_four_nodes(
    facts: Facts, machine: RecordedMachine, tmp_path: Path, sixteen: Callable[[Facts], Facts]
) -> None:
    findings = await run_checks(sixteen(facts))

    assert {one.id: one.observed for one in findings if one.outcome not in PASSED_ON} == {}
    assert next(one for one in findings if one.id == "gpu.count").observed.startswith("16 x NVIDIA RTX PRO 6000")


async def test_recorded_h200_as_it_was(facts: Facts, machine: RecordedMachine, tmp_path: Path) -> None:
    """Nothing is changed: the machine that was recorded was in order."""
    findings = await run_checks(h200_facts(facts, machine, tmp_path))

    assert {one.id: one.observed for one in findings if one.outcome not in PASSED_ON} == {}
    passed = {one.id for one in findings if one.outcome is Outcome.PASS}
    assert {"driver.match", "driver.answers", "gpu.count", "gpu.mig", "gpu.row-remap", "gpu.power-limit"} <= passed


@pytest.fixture
def sixteen(machine: RecordedMachine, tmp_path: Path) -> Callable[[Facts], Facts]:
    """Sixteen GPUs on four nodes; servers of eight on two of them."""

    def make(facts: Facts) -> Facts:
        host = SyntheticHost(tmp_path / "sixteen", count=16, nodes=4)
        machine.files["/proc/self/status"] = b"Cpus_allowed_list:\t0-255\n"
        for index in range(8, 16):
            machine.devices[f"/dev/nvidia{index}"] = machine.devices["/dev/nvidia0"]
        gpus = (8, 9, 10, 11)
        placed = tuple(replace(one, placement=Placement(gpus, "numa")) for one in facts.plan.deployments)
        machine.children["cuda"] = Ran(0, json.dumps({"library": "l", "init": 0, "name": "", "count": 16}), "", 0.1)
        plan = replace(facts.plan, deployments=placed, expected_gpus=16, expected_nodes=4, displaced=())
        return replace(host.change(facts), plan=plan)

    return make
