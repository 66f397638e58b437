"""The GPUs' device nodes are devices, and belong to this boot's driver: a container's mount can leave an empty file."""

import re

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped
from ddconsole.preflight.checks.uvm_open import WSL_DEVICE
from ddconsole.preflight.each_gpu import needed_inventories
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import FileStatus

CONTROL = "/dev/nvidiactl"
_EXPECTED = "character devices with the major number that the kernel has for nvidia now"
_REMEDY = (
    "on the host: `nvidia-smi` once, so that the nodes are made; in a container map each of them "
    "(`devN: /dev/nvidia0,mode=0666`, or lxc.mount.entry) and restart it"
)


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    if await facts.machine.status(WSL_DEVICE) is not None:
        return skipped("WSL has no /dev/nvidia*")
    minors = {gpu.index: gpu.minor.value for gpu in needed_inventories(facts)}
    nodes = [CONTROL]
    for index in facts.plan.needed_gpus:
        minor = minors.get(index)
        nodes.append(f"/dev/nvidia{index if minor is None else minor}")
    found = [(path, await facts.machine.status(path)) for path in nodes]
    registered = await _registered_major(facts)
    evidence = [f"stat {path}: {_shown(status)}" for path, status in found]
    evidence.append(f"/proc/devices: {registered if registered is not None else 'no'} nvidia")
    wrong = [(path, text) for path, status in found if (text := _wrong(status, registered))]
    if not wrong:
        return passed(f"{len(nodes)} nodes", _EXPECTED, evidence)
    observed = "; ".join(f"{path} {text}" for path, text in wrong)
    return failed(observed, _EXPECTED, _REMEDY, evidence, wrong[0][0])


def _wrong(status: FileStatus | None, registered: int | None) -> str:
    if status is None:
        return "is not there"
    if status.kind != "character":
        return f"is a {status.kind}, not a device: its mount had no source when the container started"
    if registered is not None and status.major != registered:
        return f"has major number {status.major}, nvidia has {registered} now"
    return ""


def _shown(status: FileStatus | None) -> str:
    if status is None:
        return "ENOENT"
    return f"{status.kind} {status.major}, mode {status.mode:04o}"


async def _registered_major(facts: Facts) -> int | None:
    try:
        table = await facts.machine.read_text("/proc/devices")
    except OSError:
        return None
    match = re.search(r"^\s*(\d+) nvidia(?:-frontend)?$", table, re.MULTILINE)
    return int(match[1]) if match else None


CHECK = Check("dev.nodes", "the needed GPUs' device nodes are devices", _run, deadline=8.0)
