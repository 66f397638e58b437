"""The driver answers, and promptly: a GPU whose system processor hangs makes every call wait 45 seconds."""

from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts

_PROMPT, _HANGING = 0.5, 5.0
"""Seconds of one call; the slowest ones take 5 milliseconds on an idle H200, initialising a cold GPU up to three."""
_LONG_START = 5.0
_EXPECTED = f"every call answers within {_PROMPT:g} s"
_REMEDY = (
    "look at the host's kernel log for Xid 119, 120 or 154 (GSP); reset the GPU on the host with nothing on it, or "
    "reboot the host"
)


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    inventory = facts.inventory
    evidence = [f"GPU {gpu.index}: slowest call {gpu.slowest} {gpu.seconds:.3f} s" for gpu in inventory.gpus]
    if inventory.silent:
        observed = f"{inventory.silent} has not answered for {inventory.silent_for:g} s"
        if inventory.silent_for < _HANGING:
            return unknown(f"it was still being asked after {inventory.seconds:g} s: {inventory.silent}", _REMEDY)
        return failed(observed, _EXPECTED, _REMEDY, evidence, inventory.silent.partition(",")[0])
    if not inventory.gpus:
        return _without(facts)
    slow = [gpu for gpu in inventory.gpus if gpu.seconds > _PROMPT]
    if slow:
        observed = ", ".join(f"GPU {gpu.index} takes {gpu.seconds:.1f} s for {gpu.slowest}" for gpu in slow)
        hanging = any(gpu.seconds > _HANGING for gpu in slow)
        return (failed if hanging else warned)(observed, _EXPECTED, _REMEDY, evidence, f"GPU {slow[0].index}")
    if inventory.seconds > _LONG_START:
        remedy = "switch persistence mode on at the host: `nvidia-smi -pm 1`, or nvidia-persistenced"
        return warned(f"it took {inventory.seconds:.1f} s to start", f"{_LONG_START:g} s", remedy, evidence)
    return passed(f"{len(inventory.gpus)} GPUs in {inventory.seconds:.1f} s", _EXPECTED, evidence)


def _without(facts: Facts) -> Verdict:
    """No GPU answered: a driver that refuses at once is another check's finding, and this one says nothing of it."""
    problem = facts.inventory.problem
    if not problem or "(NVML" in problem:
        return passed(f"it answers at once: {problem or 'no GPU can be used'}", _EXPECTED)
    return unknown(f"the driver could not be asked: {problem}")


CHECK = Check(
    "driver.answers",
    "the driver answers promptly",
    _run,
    needs=("host.reachable", "driver.match"),
)
