"""Each check seen in pass, fail and unknown on a healthy synthetic host with one thing changed."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest
from one_check import arguments, libraries, one, plan

from ddconsole.core.host_state import HostState
from ddconsole.core.sweep import Placement
from ddconsole.preflight.check import Finding, Outcome, Tier, holding_back
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import Facts, Reach
from ddconsole.preflight.machine import DiskRoom, PortUse, Ran
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine
from ddconsole.preflight.register import CHECKS
from ddconsole.preflight.run_checks import run_checks

MODEL = "/dev/shm/Qwen3.6-27B"
HELD = {"nvmlDeviceGetMemoryInfo_v2": {"value": {"total": 96 << 30, "used": 71 << 30, "free": 25 << 30}}}
SOMEBODY = {"nvmlDeviceGetComputeRunningProcesses_v3": {"value": [{"pid": 4242, "usedGpuMemory": 71 << 30}]}}
NOT_TOLD = {"error": "Insufficient Permissions", "code": 4}

Synthetic = Callable[..., HostState]
Change = Callable[[Facts, RecordedMachine, Synthetic], Facts]


def unreachable(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return replace(facts, reach=Reach("ssh ct200", "connection refused by ct200:22", "start sshd"))


def full_disk(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    machine.room = DiskRoom("/var/lib", 1 << 20, 10_000, writable=True)
    return facts


def driver_mismatch(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    machine.children["libraries"] = libraries(cuda="/lib/libcuda.so.575.57.08", nvml="/lib/libnvidia-ml.so.575.57.08")
    return facts


def other_cards(facts: Facts, _: RecordedMachine, synthetic: Synthetic) -> Facts:
    return replace(facts, host=synthetic({3: {"nvmlDeviceGetName": {"value": "NVIDIA H200"}}}))


def uvm_forbidden(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    machine.devices[DEVICE] = RecordedDevice("EPERM")
    return facts


def cuda_dead(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    answer = {"library": "/lib/libcuda.so.580.159.04", "init": 999, "name": "CUDA_ERROR_UNKNOWN"}
    machine.children["cuda"] = Ran(0, json.dumps(answer), "", 0.1)
    return facts


def memory_held(facts: Facts, _: RecordedMachine, synthetic: Synthetic) -> Facts:
    return replace(facts, host=synthetic({5: HELD}))


def somebody_there(facts: Facts, _: RecordedMachine, synthetic: Synthetic) -> Facts:
    return replace(facts, host=synthetic({5: SOMEBODY}))


def unit_active(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    out = "LoadState=loaded\nActiveState=active\nSubState=running\nTriggeredBy=\nMainPID=77\n"
    machine.programs["systemctl"] = Ran(0, out, "", 0.01)
    return facts


def port_taken(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    machine.ports[30000] = PortUse(free=False, pid=812, command="nginx", error="Address already in use")
    return facts


def shard_cut_short(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    path = f"{MODEL}/model-00002-of-00002.safetensors"
    machine.files[path] = machine.files[path][:-10]
    return facts


def flag_unknown(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return arguments(facts, **{"speculative-ddtree-bugdet": 16})


def backend_unfit(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return arguments(facts, **{"attention-backend": "trtllm_mha"})


def no_baseline(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return plan(facts, baseline="autoregressive")


FAILURES: dict[str, tuple[Change, str, str]] = {
    "host.reachable": (unreachable, "connection refused by ct200:22", "start sshd"),
    "disk.space": (full_disk, "0.0 GiB free under /var/lib", "make room"),
    "driver.match": (
        driver_mismatch,
        "kernel module 580.159.04, libcuda.so.1 575.57.08",
        "exactly the module's version",
    ),
    "gpu.count": (other_cards, "GPU 3 is NVIDIA H200", "not the machine that the plan means"),
    "dev.uvm-open": (uvm_forbidden, "device rules forbid it", "lxc.cgroup2.devices.allow"),
    "cuda.init": (cuda_dead, "cuInit gives 999 CUDA_ERROR_UNKNOWN", "/dev/nvidia-uvm first"),
    "gpu.memory-free": (memory_held, "GPU 5 has 71.0 GiB in use", "gpu.foreign-process"),
    "gpu.foreign-process": (somebody_there, "pid 4242 on GPU 5", "look before you end it"),
    "unit.on-needed-gpu": (
        unit_active,
        "ddtree-gpu4.service is active (running) on GPU 4",
        "`systemctl stop ddtree-gpu4",
    ),
    "port.free": (port_taken, "port 30000 is taken by pid 812", "look at it first"),
    "model.complete": (shard_cut_short, "model-00002-of-00002.safetensors has", "stage it again from /data/models"),
    "engine.flags": (flag_unknown, "speculative-ddtree-bugdet", "speculative-ddtree-budget"),
    "engine.attention-backend": (backend_unfit, "trtllm_mha is for data-centre Blackwell", "triton"),
    "plan.baseline": (no_baseline, "no deployment has the method autoregressive", "correct `baseline:`"),
}
"""Everything that can fail, how it is brought about, and what the operator then reads. Crossing NUMA only warns."""


async def test_healthy_host_passes_everything(facts: Facts) -> None:
    findings = await run_checks(facts)

    assert {finding.id: finding.observed for finding in findings if finding.outcome is not Outcome.PASS} == {}
    assert len(findings) == 15


@pytest.mark.parametrize("check", FAILURES)
async def test_fail(check: str, facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic) -> None:
    change, observed, remedy = FAILURES[check]

    finding = await one(change(facts, machine, synthetic_host), check)

    assert finding.outcome is Outcome.FAIL
    assert observed in finding.observed
    assert remedy in finding.remedy
    assert finding.blocks


@pytest.mark.parametrize("check", FAILURES)
async def test_only_this_check_sees_it(
    check: str, facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    """Switching one check off leaves a broken host green: no other check covers for it."""
    broken = FAILURES[check][0](facts, machine, synthetic_host)

    without = await run_checks(broken, checks=[known for known in CHECKS if known.id != check])
    everything = await run_checks(broken)

    assert [finding.id for finding in without if finding.outcome is Outcome.FAIL] == []
    assert [finding.id for finding in everything if finding.outcome is Outcome.FAIL] == [check]


def hang(*names: str) -> Change:
    def change(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
        machine.hangs.update(names)
        return facts

    return change


def blind(call: str) -> Change:
    return lambda facts, _, synthetic: replace(facts, host=synthetic({5: {call: NOT_TOLD}}))


def no_sample(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return replace(facts, host=None, host_problem="no answer since 12:00:01")


def no_versions(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    del machine.files["/proc/driver/nvidia/version"]
    machine.children["libraries"] = Ran(1, "", "broken", 0.1)
    return facts


def no_systemd(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    machine.programs["systemctl"] = Ran(1, "", "System has not been booted with systemd as init system", 0.0)
    return facts


def hub_name(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return plan(facts, model="Qwen/Qwen3.6-27B")


def help_hangs(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    machine.programs["/opt/serving/bin/python"] = Ran(None, "", "", 90.0)
    return facts


def strange_backend(facts: Facts, _: RecordedMachine, __: Synthetic) -> Facts:
    return arguments(facts, **{"attention-backend": "fa4"})


def across(facts: Facts, _: RecordedMachine, synthetic: Synthetic) -> Facts:
    gpus = {index: {"nvmlDeviceGetMemoryAffinity": {"value": [0b11]}} for index in range(8)}
    return replace(facts, host=synthetic(gpus))


UNKNOWNS: list[tuple[str, Change, str]] = [
    ("host.reachable", no_sample, "no answer since 12:00:01"),
    ("disk.space", hang("disk_room"), "no answer within"),
    ("driver.match", no_versions, "fewer than two versions"),
    ("gpu.count", no_sample, "no sample of the host"),
    ("dev.uvm-open", hang("open_device"), "no answer within"),
    ("cuda.init", hang("child"), "no answer within"),
    ("gpu.memory-free", blind("nvmlDeviceGetMemoryInfo_v2"), "GPU 5: no permission"),
    ("gpu.foreign-process", blind("nvmlDeviceGetComputeRunningProcesses_v3"), "GPU 5: no permission"),
    ("gpu.foreign-process", memory_held, "held by no process that the driver shows here: GPU 5 71.0 GiB"),
    ("unit.on-needed-gpu", no_systemd, "not been booted with systemd"),
    ("port.free", hang("port_use"), "no answer within"),
    ("model.complete", hub_name, "a name on a hub"),
    ("model.complete", hang("read_bytes"), "no answer within"),
    ("engine.flags", help_hangs, "its help did not come within 90 s"),
    ("engine.attention-backend", blind("nvmlDeviceGetCudaComputeCapability"), "compute capability is not known"),
    ("engine.attention-backend", strange_backend, "nothing is known about it on SM120"),
    ("placement.numa", across, "the node is not known of GPU 4"),
]


@pytest.mark.parametrize(("check", "change", "observed"), UNKNOWNS)
async def test_unknown(
    check: str, change: Change, observed: str, facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    changed = change(facts, machine, synthetic_host)
    chosen = [replace(known, needs=(), deadline=min(known.deadline, 0.1)) for known in CHECKS if known.id == check]

    (finding,) = await run_checks(changed, checks=chosen)

    assert finding.outcome is Outcome.UNKNOWN
    assert observed in finding.observed


def cpu_only(facts: Facts) -> Facts:
    placed_nowhere = tuple(replace(each, placement=Placement()) for each in facts.plan.deployments)
    return plan(facts, deployments=placed_nowhere, expected_gpus=None, ports=(), displaced=())


async def test_plan_without_gpus_skips_what_does_not_apply(facts: Facts) -> None:
    findings = await run_checks(cpu_only(facts))

    skipped = {finding.id for finding in findings if finding.outcome is Outcome.SKIP}
    assert skipped == {
        "driver.match", "gpu.count", "dev.uvm-open", "cuda.init", "gpu.memory-free", "gpu.foreign-process",
        "unit.on-needed-gpu", "port.free", "engine.attention-backend", "placement.numa",
    }  # fmt: skip
    assert {finding.outcome for finding in findings if finding.id not in skipped} == {Outcome.PASS}


async def test_children_of_a_failure_are_blocked_and_not_red(
    facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    findings = {each.id: each for each in await run_checks(uvm_forbidden(facts, machine, synthetic_host))}

    assert findings["cuda.init"].outcome is Outcome.SKIP
    assert findings["cuda.init"].observed == "blocked by dev.uvm-open"
    assert findings["cuda.init"].blocked_by == "dev.uvm-open"


async def test_unreachable_host_blocks_all_but_the_plan(
    facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    findings = await run_checks(unreachable(facts, machine, synthetic_host))

    blocked = [each for each in findings if each.blocked_by == "host.reachable"]
    assert len(blocked) == 13
    assert next(each for each in findings if each.id == "plan.baseline").outcome is Outcome.PASS
    assert machine.ran == [], "nothing is asked of a host that cannot be reached"


async def test_grandchildren_name_the_failure_and_not_the_child(
    facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    findings = {each.id: each for each in await run_checks(driver_mismatch(facts, machine, synthetic_host))}

    assert findings["gpu.count"].blocked_by == "driver.match"
    assert findings["gpu.memory-free"].blocked_by == "driver.match"


async def test_gate_is_the_fast_part(facts: Facts, machine: RecordedMachine) -> None:
    findings = await run_checks(facts, Tier.GATE)

    assert {each.id for each in CHECKS} - {each.id for each in findings} == {
        "engine.flags", "placement.numa", "plan.baseline",
    }  # fmt: skip
    assert not any("sglang.launch_server" in argv for argv in machine.ran)


async def test_broken_check_is_unknown_and_the_others_go_on(facts: Facts) -> None:
    async def broken(_: Facts) -> Any:
        raise KeyError("surprise")

    checks = [replace(CHECKS[0], run=broken), CHECKS[1]]

    first, second = await run_checks(facts, checks=checks)

    assert first.outcome is Outcome.UNKNOWN
    assert "KeyError" in first.observed
    assert second.outcome is Outcome.PASS


async def test_what_a_failure_holds_back(facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic) -> None:
    findings = await run_checks(no_baseline(port_taken(facts, machine, synthetic_host), machine, synthetic_host))

    assert [each.id for each in holding_back(findings, "launch")] == ["port.free"]
    assert [each.id for each in holding_back(findings, "comparison")] == ["plan.baseline"]


def ids(findings: Iterable[Finding]) -> list[str]:
    return [finding.id for finding in findings]


async def test_order_is_the_registers(facts: Facts) -> None:
    order = [check.id for check in CHECKS]
    assert ids(await run_checks(facts)) == order
    for check in CHECKS:
        assert set(check.needs) <= set(order[: order.index(check.id)]), "what it needs stands before it"
