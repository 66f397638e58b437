"""CUDA starts, which NVML's success does not show. In a short-lived child: a failed start spoils its process."""

import json
from typing import Any

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts

_DEADLINE = 20.0
"""Seconds: without persistence mode, starting eight GPUs takes a while."""
_EXPECTED = "cuInit gives 0 and counts the needed GPUs"
_CAUSES = {
    34: "a stub of libcuda was loaded: take .../stubs out of LD_LIBRARY_PATH",
    100: "no device: look at CUDA_VISIBLE_DEVICES, then at /dev/nvidia*",
    304: "an operating-system call failed: /dev/nvidia-uvm first (dev.uvm-open)",
    802: "the system is not initialised: the fabric manager of NVSwitch machines does not run",
    803: "driver and library do not match (driver.match)",
    999: "unknown error: /dev/nvidia-uvm first (dev.uvm-open), then the kernel log",
}


async def _run(facts: Facts) -> Verdict:
    needed = facts.plan.needed_gpus
    if not needed:
        return skipped("the plan uses no GPU")
    ran = await facts.machine.child("cuda", deadline=_DEADLINE)
    if ran.exit_code is None:
        observed = f"cuInit did not return within {_DEADLINE:g} s: the driver hangs"
        return failed(observed, _EXPECTED, "look at the kernel log for Xid; reset the GPU or reboot the host")
    if ran.exit_code < 0:
        return failed(f"the child died of signal {-ran.exit_code}", _EXPECTED, "look at the kernel log")
    if ran.exit_code != 0:
        return unknown(f"the child ended with {ran.exit_code}: {ran.err.strip()[-160:]}")
    return _judge(json.loads(ran.out), len(needed), facts)


def _judge(answer: dict[str, Any], needed: int, facts: Facts) -> Verdict:
    if answer["library"] is None and "init" not in answer:
        remedy = "install the NVIDIA driver's user space, of the kernel module's version"
        return failed(f"libcuda.so.1 cannot be loaded: {answer['error']}", _EXPECTED, remedy)
    code = int(answer["init"])
    evidence = [f"{answer['library']}: cuInit {code} {answer['name']}, count {answer.get('count')}"]
    if code != 0:
        remedy = _CAUSES.get(code, "look the code up in cuda.h, and at the kernel log")
        return failed(f"cuInit gives {code} {answer['name']}", _EXPECTED, remedy, evidence)
    count = int(answer["count"])
    if count < needed:
        remedy = "look at CUDA_VISIBLE_DEVICES, and at the modes of /dev/nvidia0 and its neighbours"
        return failed(f"CUDA sees {count} GPUs, the plan needs {needed}", _EXPECTED, remedy, evidence)
    counted = facts.host.gpu_count.value if facts.host else None
    if counted is not None and count < counted:
        remedy = "look at CUDA_VISIBLE_DEVICES: indices of CUDA and of the plan may differ"
        return warned(f"CUDA sees {count} GPUs, NVML {counted}", "the same number", remedy, evidence)
    return passed(f"it starts and sees {count} GPUs", _EXPECTED, evidence)


CHECK = Check(
    "cuda.init",
    "CUDA starts on this machine",
    _run,
    needs=("host.reachable", "driver.match", "driver.answers", "dev.uvm-open"),
    deadline=25.0,
)
