"""As many GPUs of the right kind as the plan expects."""

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown
from ddconsole.preflight.facts import Facts

_DRIVER_GPUS = "/proc/driver/nvidia/gpus"


async def _run(facts: Facts) -> Verdict:
    plan, host = facts.plan, facts.host
    if not plan.needed_gpus and plan.expected_gpus is None:
        return skipped("the plan uses no GPU")
    if host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    expected = _expected(facts)
    evidence = [f"{host.gpu_count.source}: {host.gpu_count.value}", *await _driver_list(facts)]
    count = host.gpu_count.value
    if count is None:
        reason = host.gpu_count.unavailable or ""
        if "NVML 27" in reason:
            return unknown(reason, "try again in a moment", evidence)
        return failed(f"no GPUs: {reason}", expected, "make the driver work: see driver.match", [reason])
    evidence.extend(_line(facts, gpu.index) for gpu in host.gpus)
    silent = [gpu for gpu in host.gpus if not gpu.name.known or not gpu.memory_total.known]
    if silent:
        observed = "; ".join(f"GPU {gpu.index}: {gpu.memory_total.unavailable}" for gpu in silent)
        remedy = "a lost GPU needs a reset or a reboot of the host; one without permission, its device node's mode"
        return failed(observed, expected, remedy, evidence, f"GPU {silent[0].index}")
    if plan.expected_gpus is not None and count != plan.expected_gpus:
        remedy = "compare with the cards in the machine: one may have fallen off the bus, or belong to another guest"
        return failed(f"{count} GPUs", expected, remedy, evidence)
    return _judge_names(facts, expected, evidence)


def _judge_names(facts: Facts, expected: str, evidence: list[str]) -> Verdict:
    gpus = facts.host.gpus if facts.host else ()
    wanted = facts.plan.expected_gpu_name
    others = [gpu for gpu in gpus if wanted.lower() not in (gpu.name.value or "").lower()]
    if others:
        observed = ", ".join(f"GPU {gpu.index} is {gpu.name.value}" for gpu in others)
        remedy = "this is not the machine that the plan means: check `host:`, or the plan's `expect: gpu_name`"
        return failed(observed, expected, remedy, evidence, f"GPU {others[0].index}")
    missing = [str(index) for index in facts.plan.needed_gpus if index not in {gpu.index for gpu in gpus}]
    if missing:
        remedy = "change the plan's `placement` to GPUs that are there"
        return failed(f"{len(gpus)} GPUs, none with index {', '.join(missing)}", expected, remedy, evidence)
    return passed(f"{len(gpus)} x {gpus[0].name.value}" if gpus else "0 GPUs", expected, evidence)


def _expected(facts: Facts) -> str:
    plan = facts.plan
    count = "" if plan.expected_gpus is None else f"{plan.expected_gpus} GPUs"
    name = plan.expected_gpu_name and f"named like {plan.expected_gpu_name}"
    needed = f"with indices {', '.join(map(str, plan.needed_gpus))}" if plan.needed_gpus else ""
    return " ".join(filter(None, (count or "GPUs", name, needed)))


def _line(facts: Facts, index: int) -> str:
    gpu = facts.host.gpu(index) if facts.host else None
    return f"GPU {index}: {gpu.name.value or gpu.name.unavailable} {gpu.pci_address.value or ''}" if gpu else ""


async def _driver_list(facts: Facts) -> list[str]:
    """What the kernel module counts, by PCI address: shows which card NVML does not see."""
    try:
        names = await facts.machine.list_folder(_DRIVER_GPUS)
    except OSError:
        return []
    return [f"{_DRIVER_GPUS}: {len(names)} ({', '.join(names)})"]


CHECK = Check(
    "gpu.count",
    "the GPUs that the plan means are there and answer",
    _run,
    needs=("host.reachable", "driver.match", "driver.answers"),
)
