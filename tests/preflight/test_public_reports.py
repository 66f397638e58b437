"""What other tools got wrong, by public reports: wrong there, right here.

Each case names the report, what happened there, and what must be said here instead. `tests/REPORTS.md` lists all.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from broken_hosts import (
    HELD,
    WEDGED,
    XID,
    Change,
    answer,
    device,
    file,
    leftovers,
    little_memory,
    nvml,
    program,
    silent,
)
from one_check import one
from synthetic_host import NVML, SyntheticHost
from under_load import counted, summed, trained_down, under_load

from ddconsole.core.inventory import Inventory
from ddconsole.preflight.check import Outcome
from ddconsole.preflight.checks.uvm_open import DEVICE
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.preflight_text import exit_status, preflight_lines
from ddconsole.preflight.recorded_machine import RecordedMachine
from ddconsole.preflight.run_checks import run_checks
from ddconsole.preflight.take_inventory import take_inventory

TESTS = Path(__file__).parents[1]
PASS, WARN, FAIL = Outcome.PASS, Outcome.WARN, Outcome.FAIL
SKIP, UNKNOWN = Outcome.SKIP, Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Report:
    """`there` is what the tool said; here it must be `outcome` with `text`."""

    there: str
    change: Change
    check: str
    outcome: Outcome
    text: str


def both(first: Change, second: Change) -> Change:
    return lambda facts, machine, synthetic: second(first(facts, machine, synthetic), machine, synthetic)


def xid(number: int) -> Change:
    return program("dmesg", Ran(0, XID.format(number=number), "", 0.0))


def crashed_probe(facts: Facts, _: RecordedMachine, __: SyntheticHost) -> Facts:
    problem = "it ended with 1: ImportError"
    return replace(facts, host=None, host_problem=problem, inventory=Inventory(problem=problem))


def geforce() -> Change:
    """A card without error correction whose remapped rows are noise."""
    gpu = {
        "nvmlDeviceGetEccMode": {"error": "Not Supported", "code": 3},
        "nvmlDeviceGetRemappedRows": {"value": [7, 7, 1, 1]},
    }
    return nvml(dict.fromkeys(range(8), gpu))


def idle_link() -> Change:
    """Every card at generation 1, as idle ones are."""
    first = {"nvmlDeviceGetCurrPcieLinkGeneration": {"value": 1}}
    return nvml(dict.fromkeys(range(8), first))


REPORTS: dict[str, Report] = {
    "aws/eks-node-monitoring-agent PR#121": Report(
        "healthy: NVML and /dev agreed on 3 of 4 cards",
        nvml(nvmlDeviceGetCount={"value": 7}), "gpu.count", FAIL, "7 GPUs",
    ),
    "aws/eks-node-monitoring-agent#245": Report(
        "healthy: nobody looked at remapping",
        answer(5, "nvmlDeviceGetRemappedRows", [0, 3, 0, 1]), "gpu.row-remap", FAIL, "could not be remapped",
    ),
    "NVIDIA/NVSentinel#155": Report(
        "healthy: the GPU fell off the bus without an Xid line",
        nvml({5: {"nvmlDeviceGetHandleByIndex": {"error": "", "code": 15}}}), "gpu.count", FAIL, "fell off the bus",
    ),
    "NVIDIA/NVSentinel#1666": Report(
        "unnoticed for 36 hours: the power brake",
        answer(5, "nvmlDeviceGetCurrentClocksEventReasons", 0x80), "gpu.slowdown", FAIL, "power brake",
    ),
    "huggingface/gpu-fryer#10": Report(
        "healthy with NaN as the figure",
        under_load(products={5: {"tflops": float("nan"), "exact": True}}),
        "load.answers", UNKNOWN, "no usable figure of GPU 5",
    ),
    "huggingface/gpu-fryer#10, as text": Report(
        "healthy with NaN as the figure",
        file("/proc/pressure/io", b"some avg10=0 avg60=0 avg300=0 total=0\nfull avg10=0 avg60=- total=0\n"),
        "host.pressure", UNKNOWN, "does not say what it should",
    ),
    "Azure/azurehpc-health-checks: no syslog": Report(
        "success: the file with the Xids was absent",
        program("dmesg", None), "gpu.xid", UNKNOWN, "nothing is known of Xids",
    ),
    "Azure/azurehpc-health-checks: masks by equality": Report(
        "nothing: two reasons at a time are equal to neither",
        answer(5, "nvmlDeviceGetCurrentClocksEventReasons", 0x44), "gpu.slowdown", FAIL, "thermal (hardware)",
    ),
    "NVIDIA/open-gpu-kernel-modules#1151": Report(
        "link at generation 5, no error: and the GPU is dead",
        silent(26.0), "driver.answers", FAIL, "has not answered for 26 s",
    ),
    "local-inference-lab/rtx6kpro PR#88": Report(
        "no error anywhere: a card at generation 2 for hours at full load",
        trained_down(times=6), "load.link", FAIL, "GPU 5: generation 2 x16",
    ),
    "tinygrad/open-gpu-kernel-modules#18": Report(
        "direct copies work: and what arrives is zeros",
        under_load(peers={(4, 5): {"rate": 50.0, "exact": False}}), "load.peers", FAIL, "other bytes arrive",
    ),
    "NVIDIA/open-gpu-kernel-modules#1257": Report(
        "the driver says ok of every pair, bytes are spoilt between some",
        under_load(peers={(4, 6): {"rate": 50.0, "exact": False}}), "load.peers", FAIL, "from GPU 4 to GPU 6",
    ),
    "noonghunna/club-3090 PR#926": Report(
        "copies are right, and what servers say is garbage",
        summed(exact=False), "load.all-reduce", FAIL, "the sums are wrong",
    ),
    "noonghunna/club-3090 PR#891": Report(
        "copies between pairs at full rate, and the collective hangs",
        summed(hung=90.0), "load.all-reduce", FAIL, "no end within 90 s",
    ),
    "NVIDIA/DCGM#184": Report(
        "replaced: packets sent again, counted without the link's lanes and generation",
        counted(pcie_replays=25), "load.errors", PASS, "none to speak of",
    ),
    "NVIDIA/DCGM#184, the other way": Report(
        "in order: the same number on a link that is slower by half",
        both(answer(5, "nvmlDeviceGetMaxPcieLinkGeneration", 4), counted(pcie_replays=25)),
        "load.errors", FAIL, "25 packets were sent again, 15 are usual",
    ),
    "pytorch/pytorch#49081": Report(
        "a warning, and False: servers fall to the CPU",
        under_load(torch={"available": False, "said": "CUDA unknown error", "devices": []}),
        "load.torch", FAIL, "torch.cuda is not available",
    ),
    "wookayin/gpustat#161": Report(
        "process numbers that cannot be, of a library that reads another structure",
        nvml({5: {"nvmlDeviceGetComputeRunningProcesses_v3": {"value": [{"pid": 1 << 31, "usedGpuMemory": 7}]}}}),
        "gpu.foreign-process", UNKNOWN, "lists process number",
    ),
    "Syllo/nvtop#110": Report(
        "four billion percent", answer(5, "nvmlDeviceGetUtilizationRates", {"gpu": 1 << 32, "memory": 1}),
        "gpu.idle", UNKNOWN, "no utilisation",
    ),
    "NVIDIA/nvidia-docker#1085": Report(
        "nvidia-smi is perfect, CUDA is dead",
        device(DEVICE, None), "dev.uvm-open", FAIL, "the device node is not there",
    ),
    "NVIDIA/NVSentinel PR#1629": Report(
        "fatal on 77 nodes: Xid 45 of a torn-down job", xid(45), "gpu.xid", PASS, "only of programs",
    ),
    "NVIDIA/NVSentinel#1357": Report(
        "fatal: a harmless variant of Xid 145", xid(145), "gpu.xid", WARN, "not in our list",
    ),
    "leptonai/gpud PR#351": Report(
        "broken rows on a card that has no such thing", geforce(), "gpu.row-remap", SKIP, "not supported",
    ),
    "IBM/autopilot#55": Report(
        "evicted: rows that were remapped and are fine",
        answer(5, "nvmlDeviceGetRemappedRows", [2, 1, 0, 0]), "gpu.row-remap", PASS, "none waits and none failed",
    ),
    "leptonai/gpud PR#137": Report(
        "off: the daemon does not run, though the mode is on",
        program("systemctl", Ran(0, "LoadState=not-found\nActiveState=inactive\n", "", 0.0)),
        "driver.persistence", PASS, "on",
    ),
    "Azure/az-hop#1796": Report(
        "failed with 127 on every node: the tool was not there",
        program("dmesg", None), "gpu.xid", UNKNOWN, "cannot be read here",
    ),
    "aws/containers-roadmap#2555": Report(
        "unhealthy, replaced: the monitor could not connect", crashed_probe, "driver.answers", UNKNOWN, "ImportError",
    ),
    "Syllo/nvtop#6": Report("my card runs at generation 1", idle_link(), "pcie.slot", PASS, "generation 5 x16"),
    "local-inference-lab/rtx6kpro#15": Report(
        "every health tool green: a wedged GPU", nvml({5: WEDGED}), "gpu.idle", FAIL, "busy, no process",
    ),
    "vllm-project/vllm#57469": Report(
        "/dev/shm looks empty, and all workers are killed for memory",
        little_memory(60 << 30, 66 << 30), "memory.room", FAIL, "are left",
    ),
    "llm-d/llm-d#352": Report(
        "no space left on device, in NCCL", leftovers, "shm.leftovers", WARN, "files of NCCL and torch",
    ),
    "sgl-project/sglang#1533": Report(
        "memory capacity is unbalanced: another process on one GPU",
        nvml({5: HELD}), "gpu.memory-free", FAIL, "GPU 5 has 71.0 GiB in use",
    ),
    "Azure/AgentBaker#2829": Report(
        "timed out: persistence takes 25 s on many GPUs",
        silent(1.5), "driver.answers", UNKNOWN, "it was still being asked",
    ),
}  # fmt: skip
"""Figures and names are from the reports; hosts are synthetic."""


@pytest.mark.parametrize("name", REPORTS)
async def test_report(name: str, facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost) -> None:
    report = REPORTS[name]

    finding = await one(report.change(facts, machine, synthetic_host), report.check)

    assert finding.outcome is report.outcome, report.there
    assert report.text in finding.observed


async def test_nvlink_that_a_board_does_not_have_is_no_fault(facts: Facts) -> None:
    """NVIDIA/DCGM#49, NVIDIA/NVSentinel PR#1481: `NVLink down` on boards without any."""
    assert facts.host is not None
    assert not any(pair.nvlink.value for pair in facts.host.pairs)
    assert exit_status(await run_checks(facts)) == 0


async def test_a_busy_gpu_with_a_process_is_not_said_to_have_nothing_to_do(
    facts: Facts, synthetic_host: SyntheticHost
) -> None:
    """Somebody's job in less than a GiB of memory: gpu.foreign-process finds it, and gpu.idle does not deny it."""
    job = {
        "nvmlDeviceGetUtilizationRates": {"value": {"gpu": 99, "memory": 3}},
        "nvmlDeviceGetComputeRunningProcesses_v3": {"value": [{"pid": 4242, "usedGpuMemory": 900 << 20}]},
    }

    busy = synthetic_host.change(facts, {5: job})

    assert (await one(busy, "gpu.idle")).observed == (
        "GPU 5 busy, and not alone: see gpu.foreign-process and gpu.memory-free"
    )
    assert (await one(busy, "gpu.foreign-process")).outcome is FAIL
    assert (await one(facts, "gpu.idle")).observed == "4 GPUs have nothing to do"


async def test_a_runner_that_fails_is_no_health(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    """IBM/autopilot#68: healthy, although the diagnosis had failed. NVIDIA/DCGM#198: a pass hid what was not done."""
    findings = await run_checks(crashed_probe(facts, machine, synthetic_host))
    text = "\n".join(preflight_lines(findings))

    assert exit_status(findings) == 1
    assert "? unknown driver.answers" in text
    assert "unknown" in text.splitlines()[-1]


async def test_a_number_of_the_host_is_not_to_be_killed_here(
    facts: Facts, machine: RecordedMachine, synthetic_host: SyntheticHost
) -> None:
    """NVIDIA/nvidia-docker#179: in a container the driver's process numbers are the host's."""
    somebody = {"nvmlDeviceGetComputeRunningProcesses_v3": {"value": [{"pid": 1, "usedGpuMemory": 71 << 30}]}}

    finding = await one(synthetic_host.change(facts, {5: somebody}), "gpu.foreign-process")

    assert "look before you end it" in finding.remedy
    assert "kill" not in finding.remedy


_STALLING = """
import json, sys, time
from ddconsole.probe import inventory
from ddconsole.probe.recording import RecordedNvml
class Stalling(RecordedNvml):
    def nvmlDeviceGetEccMode(self, handle):
        if handle == 1:
            time.sleep(45)
        return self._device("nvmlDeviceGetEccMode", "nvmlDeviceGetEccMode", handle, ())
for line in inventory.inventory_lines(Stalling(json.load(open(sys.argv[1]))), time.time):
    print(json.dumps(line), flush=True)
"""


class StallingMachine(LocalMachine):
    """This machine, with a driver that waits 45 seconds for one call about GPU 1."""

    def __init__(self, recording: str) -> None:
        self._recording = recording

    async def run(self, argv: Sequence[str], deadline: float, environment: Mapping[str, str] | None = None) -> Ran:
        assert "--inventory" in argv
        return await super().run((sys.executable, "-c", _STALLING, self._recording), deadline, environment)


async def test_a_call_that_takes_45_seconds_is_named_at_the_deadline(facts: Facts) -> None:
    """NVIDIA/open-gpu-kernel-modules#1111, leptonai/gpud PR#117: the monitor hung with the driver."""
    inventory = await take_inventory(StallingMachine(str(NVML / "h200x2.json")), deadline=12.0)
    long_enough = replace(inventory, silent_for=max(inventory.silent_for, 6.0))  # a slow machine starts late
    finding = await one(replace(facts, inventory=long_enough), "driver.answers")

    assert [gpu.index for gpu in inventory.gpus] == [0], "what answered before is known"
    assert inventory.silent == "GPU 1, nvmlDeviceGetEccMode"
    assert inventory.seconds < 20
    assert finding.outcome is FAIL
    assert finding.about == "GPU 1"


def test_every_report_of_the_list_has_its_test() -> None:
    lines = (TESTS / "REPORTS.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")][1:]
    cases = {name.partition(", ")[0] for name in REPORTS}

    assert {row[0] for row in rows if row[3].startswith("case")} == cases
    for row in rows:
        named = re.findall(r"`([\w/]+\.py)::(\w+)`", row[3])
        assert named or row[3] == "case", row
        for path, name in named:
            assert re.search(rf"^(async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE), (path, name)
