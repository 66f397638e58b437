"""Cases of single checks, beyond one failure each."""

import json
from dataclasses import replace
from typing import Any

import pytest
from one_check import arguments, libraries, one, placed, plan
from synthetic_host import SyntheticHost

from ddconsole.core.sweep import Placement
from ddconsole.engines.register import engine
from ddconsole.preflight.check import Outcome
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import DisplacedUnit, Facts, Reach
from ddconsole.preflight.machine import DiskRoom, Ran
from ddconsole.preflight.recorded_machine import RecordedDevice, RecordedMachine

MODEL = "/dev/shm/Qwen3.6-27B"
HELD = {"nvmlDeviceGetMemoryInfo_v2": {"value": {"total": 96 << 30, "used": 71 << 30, "free": 25 << 30}}}
SOMEBODY = {"nvmlDeviceGetComputeRunningProcesses_v3": {"value": [{"pid": 4242, "usedGpuMemory": 71 << 30}]}}
NOT_TOLD = {"error": "Insufficient Permissions", "code": 4}

Synthetic = SyntheticHost


def somebody_there(facts: Facts, _: RecordedMachine, synthetic: Synthetic) -> Facts:
    return replace(facts, host=synthetic({5: SOMEBODY}))


def unit_active(facts: Facts, machine: RecordedMachine, _: Synthetic) -> Facts:
    out = "LoadState=loaded\nActiveState=active\nSubState=running\nTriggeredBy=\nMainPID=77\n"
    machine.programs["systemctl"] = Ran(0, out, "", 0.01)
    return facts


@pytest.mark.parametrize(
    ("device", "observed", "remedy"),
    [
        (RecordedDevice("EPERM"), "device cgroup", "devices.allow"),
        (RecordedDevice("EACCES"), "mode bits or owner", "mode 0666"),
        (None, "the device node is not there", "before the container starts"),
        (RecordedDevice("ENXIO"), "no driver stands behind", "make the node anew"),
        (RecordedDevice("ENODEV"), "no driver stands behind", "make the node anew"),
        (RecordedDevice(kind="file"), "empty regular file", "create=file"),
        (RecordedDevice(major=509), "is not that of nvidia-uvm now (238)", "make the node anew"),
        (RecordedDevice("TIMEOUT"), "does not return", "reset or reboot"),
        (RecordedDevice("EIO"), "opening it gives EIO", "kernel log"),
    ],
)
async def test_causes_of_uvm(
    device: RecordedDevice | None, observed: str, remedy: str, facts: Facts, machine: RecordedMachine
) -> None:
    machine.devices = {DEVICE: device} if device else {}

    finding = await one(facts, "dev.uvm-open")

    assert finding.outcome is Outcome.FAIL
    assert observed in finding.observed
    assert remedy in finding.remedy


async def test_five_causes_of_uvm_have_five_remedies(facts: Facts, machine: RecordedMachine) -> None:
    remedies = set()
    for device in (*(RecordedDevice(error) for error in ("EPERM", "EACCES", "ENXIO")), RecordedDevice(kind="file")):
        machine.devices = {DEVICE: device}
        remedies.add((await one(facts, "dev.uvm-open")).remedy)
    machine.devices = {}
    remedies.add((await one(facts, "dev.uvm-open")).remedy)

    assert len(remedies) == 5


async def test_wsl_has_no_uvm(facts: Facts, machine: RecordedMachine) -> None:
    machine.devices = {"/dev/dxg": RecordedDevice()}

    assert (await one(facts, "dev.uvm-open")).outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("ran", "outcome", "observed"),
    [
        (Ran(None, "", "", 20.0), Outcome.FAIL, "did not return within 20 s"),
        (Ran(-11, "", "", 0.1), Outcome.FAIL, "died of signal 11"),
        (Ran(1, "", "SyntaxError", 0.1), Outcome.UNKNOWN, "SyntaxError"),
        (Ran(0, '{"library": null, "error": "no libcuda"}', "", 0.1), Outcome.FAIL, "no libcuda"),
        (Ran(0, '{"library": "l", "init": 0, "name": "", "count": 2}', "", 0.1), Outcome.FAIL, "sees 2 GPUs, the plan"),
        (Ran(0, '{"library": "l", "init": 0, "name": "", "count": 6}', "", 0.1), Outcome.WARN, "sees 6 GPUs, NVML 8"),
    ],
)
async def test_ways_in_which_cuda_does_not_start(
    ran: Ran, outcome: Outcome, observed: str, facts: Facts, machine: RecordedMachine
) -> None:
    machine.children["cuda"] = ran

    finding = await one(facts, "cuda.init")

    assert finding.outcome is outcome
    assert observed in finding.observed


async def test_no_driver_at_all(facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic) -> None:
    del machine.files["/proc/driver/nvidia/version"]
    machine.children["libraries"] = libraries(cuda=None, nvml=None)
    none = synthetic_host(nvmlInit={"error": "", "code": 12})

    finding = await one(replace(facts, host=none), "driver.match")
    count = await one(replace(facts, host=none), "gpu.count")

    assert finding.outcome is Outcome.FAIL
    assert "no driver" in finding.observed
    assert count.outcome is Outcome.FAIL
    assert "no NVIDIA driver library" in count.observed


async def test_mismatch_that_nvml_itself_reports(
    facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    mismatch = synthetic_host(nvmlInit={"error": "", "code": 18})

    finding = await one(replace(facts, host=mismatch), "driver.match")

    assert finding.outcome is Outcome.FAIL
    assert any("NVML 18" in line for line in finding.evidence)


@pytest.mark.parametrize(
    ("gpus", "everywhere", "observed"),
    [
        ({}, {"nvmlDeviceGetCount": {"value": 7}}, "7 GPUs"),
        ({2: {"nvmlDeviceGetHandleByIndex": {"error": "", "code": 15}}}, {}, "GPU 2: the GPU is lost"),
        ({2: {"nvmlDeviceGetHandleByIndex": NOT_TOLD}}, {}, "GPU 2: no permission"),
    ],
)
async def test_gpus_that_are_missing(
    gpus: dict[int, Any], everywhere: dict[str, Any], observed: str, facts: Facts, synthetic_host: Synthetic
) -> None:
    finding = await one(replace(facts, host=synthetic_host(gpus, **everywhere)), "gpu.count")

    assert finding.outcome is Outcome.FAIL
    assert observed in finding.observed
    assert finding.expected.startswith("8 GPUs named like RTX PRO 6000")


async def test_placement_on_a_gpu_that_is_not_there(facts: Facts) -> None:
    finding = await one(plan(placed(facts, (7, 8)), expected_gpus=None), "gpu.count")

    assert finding.outcome is Outcome.FAIL
    assert "none with index 8" in finding.observed


async def test_own_processes_are_not_foreign(facts: Facts, synthetic_host: Synthetic) -> None:
    own = replace(facts, host=synthetic_host({5: {**HELD, **SOMEBODY}}), own_pids=frozenset({4242}))

    assert (await one(own, "gpu.foreign-process")).outcome is Outcome.PASS
    assert (await one(own, "gpu.memory-free")).outcome is Outcome.PASS


async def test_process_on_a_gpu_that_is_not_needed_does_not_matter(facts: Facts, synthetic_host: Synthetic) -> None:
    elsewhere = replace(facts, host=synthetic_host({0: {**HELD, **SOMEBODY}}))

    assert (await one(elsewhere, "gpu.foreign-process")).outcome is Outcome.PASS
    assert (await one(elsewhere, "gpu.memory-free")).outcome is Outcome.PASS


async def test_foreign_process_is_described_with_its_unit(
    facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    machine.files["/proc/4242/cmdline"] = b"python\0serve.py\0\x1b[31m"
    machine.files["/proc/4242/cgroup"] = b"0::/system.slice/ddtree-gpu5.service\n"

    finding = await one(somebody_there(facts, machine, synthetic_host), "gpu.foreign-process")

    assert any("python serve.py ^[[31m [unit ddtree-gpu5.service]" in line for line in finding.evidence)
    assert "stop ddtree-gpu5.service" in finding.remedy


_UP = "LoadState=loaded\nActiveState=active\nSubState=running\n"


async def test_unit_that_the_sweep_stops_itself_is_a_warning(
    facts: Facts, machine: RecordedMachine, synthetic_host: Synthetic
) -> None:
    held = unit_active(replace(facts, host=synthetic_host({4: {**HELD, **SOMEBODY}})), machine, synthetic_host)
    held = plan(held, displaced=(DisplacedUnit("ddtree-gpu4.service", 4, by_sweep=True),))
    machine.programs["id"] = Ran(0, "0\n", "", 0.0)

    for check in ("unit.on-needed-gpu", "gpu.memory-free", "gpu.foreign-process"):
        finding = await one(held, check)
        assert finding.outcome is Outcome.WARN
        assert finding.remedy.startswith("nothing: the sweep stops")


@pytest.mark.parametrize(
    ("systemctl", "account", "outcome", "words"),
    [
        (
            Ran(0, _UP + "TriggeredBy=x.socket\nRestart=always\n", "", 0.0),
            "0",
            Outcome.WARN,
            "x.socket, Restart=always",
        ),
        (Ran(0, _UP + "Transient=yes\n", "", 0.0), "0", Outcome.WARN, "starts it again by systemd-run"),
        (Ran(0, _UP + "NeedDaemonReload=yes\n", "", 0.0), "0", Outcome.FAIL, "systemctl daemon-reload"),
        (Ran(0, _UP, "", 0.0), "1000", Outcome.FAIL, "connect as root"),
        (Ran(1, "", "System has not been booted with systemd", 0.0), "0", Outcome.FAIL, "take `displace` of"),
    ],
)
async def test_whether_the_sweep_can_stop_a_unit_and_put_it_back(
    systemctl: Ran, account: str, outcome: Outcome, words: str, facts: Facts, machine: RecordedMachine
) -> None:
    machine.programs.update({"systemctl": systemctl, "id": Ran(0, f"{account}\n", "", 0.0)})

    for gpu in (4, None):
        displaced = plan(facts, displaced=(DisplacedUnit("ddtree-gpu4.service", gpu, by_sweep=True),))
        finding = await one(displaced, "unit.on-needed-gpu")
        assert finding.outcome is outcome
        assert words in finding.remedy


@pytest.mark.parametrize(
    ("state", "outcome", "observed"),
    [
        ("LoadState=not-found\nActiveState=inactive\n", Outcome.WARN, "there is no unit"),
        ("LoadState=loaded\nActiveState=inactive\nTriggeredBy=x.socket\n", Outcome.WARN, "x.socket can start it"),
        (
            "LoadState=loaded\nActiveState=activating\nSubState=auto-restart\n",
            Outcome.FAIL,
            "activating (auto-restart)",
        ),
        ("LoadState=loaded\nActiveState=failed\nTriggeredBy=\n", Outcome.PASS, "is stopped"),
    ],
)
async def test_states_of_a_unit(
    state: str, outcome: Outcome, observed: str, facts: Facts, machine: RecordedMachine
) -> None:
    machine.programs["systemctl"] = Ran(0, state, "", 0.0)

    finding = await one(facts, "unit.on-needed-gpu")

    assert finding.outcome is outcome
    assert observed in finding.observed


async def test_unit_on_a_gpu_that_is_not_needed_is_not_asked_for(facts: Facts, machine: RecordedMachine) -> None:
    finding = await one(plan(facts, displaced=(DisplacedUnit("ddtree-gpu0.service", 0),)), "unit.on-needed-gpu")

    assert finding.outcome is Outcome.SKIP
    assert machine.ran == []


async def test_read_only_disk_and_little_room(facts: Facts, machine: RecordedMachine) -> None:
    machine.room = DiskRoom("/var/lib", 500 << 30, 10_000, writable=False)
    read_only = await one(facts, "disk.space")
    machine.room = DiskRoom("/var/lib", 3 << 30, 10_000, writable=True)
    little = await one(facts, "disk.space")
    machine.room = DiskRoom("/var/lib", 500 << 30, 3, writable=True)
    no_inodes = await one(facts, "disk.space")
    machine.room = DiskRoom("/var/lib", 500 << 30, None, writable=True)
    btrfs = await one(facts, "disk.space")

    assert (read_only.outcome, read_only.observed) == (Outcome.FAIL, "/var/lib cannot be written")
    assert little.outcome is Outcome.WARN
    assert no_inodes.outcome is Outcome.FAIL
    assert btrfs.outcome is Outcome.PASS


async def test_slow_link_is_a_warning(facts: Facts) -> None:
    finding = await one(replace(facts, reach=Reach("ssh ct200", round_trip=0.4)), "host.reachable")

    assert finding.outcome is Outcome.WARN
    assert "400 ms" in finding.observed


@pytest.mark.parametrize(
    ("backend", "capability", "hybrid", "outcome"),
    [
        ("triton", [12, 0], True, Outcome.PASS),
        ("flashinfer", [12, 0], True, Outcome.WARN),
        ("flashinfer", [12, 0], False, Outcome.PASS),
        ("trtllm_mha", [12, 0], False, Outcome.FAIL),
        ("trtllm_mla", [12, 0], True, Outcome.FAIL),
        ("fa3", [12, 0], False, Outcome.FAIL),
        ("fa3", [9, 0], True, Outcome.PASS),
        ("flashinfer", [9, 0], True, Outcome.PASS),
        ("trtllm_mha", [9, 0], False, Outcome.FAIL),
        ("torch_native", [12, 0], True, Outcome.FAIL),
        ("torch_native", [12, 0], False, Outcome.UNKNOWN),
    ],
)
async def test_attention_backends(
    backend: str,
    capability: list[int],
    hybrid: bool,
    outcome: Outcome,
    facts: Facts,
    machine: RecordedMachine,
    synthetic_host: Synthetic,
) -> None:
    kinds = ["linear_attention", "full_attention"] if hybrid else ["full_attention"]
    machine.files[f"{MODEL}/config.json"] = json.dumps({"layer_types": kinds}).encode()
    gpus = {index: {"nvmlDeviceGetCudaComputeCapability": {"value": capability}} for index in range(8)}
    changed = arguments(replace(facts, host=synthetic_host(gpus)), **{"attention-backend": backend})

    assert (await one(changed, "engine.attention-backend")).outcome is outcome


async def test_backend_left_to_the_engine_and_other_engines(facts: Facts) -> None:
    left = arguments(facts, **{"attention-backend": False})

    assert (await one(left, "engine.attention-backend")).outcome is Outcome.PASS
    other = replace(facts, engine=engine("llamacpp"))
    assert (await one(other, "engine.attention-backend")).outcome is Outcome.SKIP


async def test_engine_that_is_not_there_or_does_not_run(facts: Facts, machine: RecordedMachine) -> None:
    missing = await one(plan(facts, engine_command=("/nowhere/python", "-m", "sglang")), "engine.flags")
    machine.programs["/opt/serving/bin/python"] = Ran(1, "", "ModuleNotFoundError: No module named 'sglang'", 0.3)
    broken = await one(facts, "engine.flags")

    assert (missing.outcome, missing.about) == (Outcome.FAIL, "/nowhere/python")
    assert broken.outcome is Outcome.FAIL
    assert "No module named 'sglang'" in broken.evidence[-1]


async def test_flags_that_are_known_are_not_asked_for_again(facts: Facts, machine: RecordedMachine) -> None:
    finding = await one(replace(facts, known_flags=frozenset({"--model-path"})), "engine.flags")

    assert finding.outcome is Outcome.FAIL
    assert machine.ran == []


async def test_baseline_that_is_missing_at_one_size(facts: Facts) -> None:
    first, second = facts.plan.deployments
    single = replace(second, id="d03", tensor_parallel=1, placement=Placement((7,)))

    finding = await one(plan(facts, deployments=(first, second, single)), "plan.baseline")
    alone = await one(plan(facts, deployments=(first,)), "plan.baseline")

    assert (finding.outcome, finding.observed) == (Outcome.WARN, "ar is missing at tensor-parallel size 1")
    assert alone.outcome is Outcome.SKIP


@pytest.mark.parametrize(
    ("gpus", "outcome", "remedy"),
    [
        ((4, 5, 6, 7), Outcome.PASS, ""),
        ((2, 3, 4, 5), Outcome.WARN, "placement: {4: [0, 1, 2, 3]}"),
        ((3, 4, 5, 6), Outcome.WARN, "placement: {4: [4, 5, 6, 7]}"),
        ((3, 4), Outcome.WARN, "placement: {2: [0, 3]}"),
        (tuple(range(8)), Outcome.WARN, "no node has so many GPUs"),
        ((7,), Outcome.SKIP, ""),
    ],
)
async def test_placements_over_nodes(gpus: tuple[int, ...], outcome: Outcome, remedy: str, facts: Facts) -> None:
    finding = await one(placed(facts, gpus), "placement.numa")

    assert finding.outcome is outcome
    assert remedy in finding.remedy


async def test_only_a_model_that_is_there_stands_in_memory(facts: Facts, machine: RecordedMachine) -> None:
    there = await one(facts, "memory.room")
    machine.files = {name: data for name, data in machine.files.items() if not name.startswith(MODEL + "/")}
    gone = await one(facts, "memory.room")

    assert f"{MODEL} stands in memory, and is counted as used" in there.evidence
    assert not [line for line in gone.evidence if line.startswith(f"{MODEL} stands")]
    assert f"{MODEL} is not there yet: it will take memory of what is left" in gone.evidence
