"""A needed GPU that computes and shows no process: wedged in a collective that hangs, or used from elsewhere."""

import asyncio

from ddconsole.core.host_state import GpuState
from ddconsole.core.inventory import is_not_supported
from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.checks.gpu_memory import ALLOWED_BYTES
from ddconsole.preflight.facts import Facts

_WEDGED = 95
"""Percent: a kernel that waits for a peer for ever counts as busy all the time."""
_BUSY = 5
_LOOK_AGAIN = 2.0
"""Seconds between two looks: one sample may have caught the end of somebody's work."""
_EXPECTED = "no work without a process"


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    gpus = facts.needed()
    if gpus and all(is_not_supported(gpu.utilisation) for gpu in gpus):
        return skipped(gpus[0].utilisation.unavailable or "not supported")
    blind = [gpu for gpu in gpus if not gpu.utilisation.known and not is_not_supported(gpu.utilisation)]
    if blind or not gpus:
        reasons = "; ".join(f"GPU {gpu.index}: {gpu.utilisation.unavailable}" for gpu in blind)
        return unknown(reasons or f"no sample of the host: {facts.host_problem}")
    evidence = [_line(gpu) for gpu in gpus]
    suspects = [gpu for gpu in gpus if _works_alone(gpu)]
    if suspects and facts.look_again is not None:
        await asyncio.sleep(_LOOK_AGAIN)
        later = await facts.look_again()
        again = [] if later is None else [later.gpu(gpu.index) for gpu in suspects]
        suspects = [gpu for gpu in again if gpu is not None and _works_alone(gpu)] if later else suspects
        evidence += [f"{_LOOK_AGAIN:g} s later: {_line(gpu)}" for gpu in suspects]
    if not suspects:
        return passed(_nothing_unexplained(gpus), _EXPECTED, evidence)
    wedged = [gpu for gpu in suspects if gpu.utilisation.require() >= _WEDGED]
    names = ", ".join(f"GPU {gpu.index} {gpu.utilisation.require()} %" for gpu in wedged or suspects)
    if wedged:
        remedy = (
            "a collective of an ended server hangs in it: reset it on the host with nothing on it; where that is "
            "refused, reboot the host. It would look busy to everybody and serve nobody"
        )
        return failed(f"{names} busy, no process, hardly any memory", _EXPECTED, remedy, evidence, _about(wedged))
    remedy = "somebody outside this container uses it: ask on the host with `fuser -v /dev/nvidia*`"
    return warned(f"{names} busy without a process", _EXPECTED, remedy, evidence, _about(suspects))


def _works_alone(gpu: GpuState) -> bool:
    """Busy, with nobody on it and too little memory for a model: whoever holds more is another check's finding."""
    nobody = gpu.processes.known and not gpu.processes.value
    small = (gpu.memory_used.value or 0) < ALLOWED_BYTES
    return nobody and small and (gpu.utilisation.value or 0) > _BUSY


def _nothing_unexplained(gpus: list[GpuState]) -> str:
    busy = [f"GPU {gpu.index}" for gpu in gpus if (gpu.utilisation.value or 0) > _BUSY]
    if not busy:
        return f"{len(gpus)} GPUs have nothing to do"
    return f"{', '.join(busy)} busy, and not alone: see gpu.foreign-process and gpu.memory-free"


def _line(gpu: GpuState) -> str:
    watts = "?" if gpu.power.value is None else f"{gpu.power.value:.0f}"
    used = "?" if gpu.memory_used.value is None else f"{gpu.memory_used.value / 1024**2:.0f}"
    return f"GPU {gpu.index}: {gpu.utilisation.value} % busy, {watts} W, {used} MiB, {_processes(gpu)}"


def _processes(gpu: GpuState) -> str:
    return f"{len(gpu.processes.value)} processes" if gpu.processes.value is not None else "processes not known"


def _about(gpus: list[GpuState]) -> str:
    return f"GPU {gpus[0].index}"


CHECK = Check(
    "gpu.idle",
    "no needed GPU is wedged or used from elsewhere",
    _run,
    needs=("host.reachable", "driver.match", "driver.answers", "gpu.count"),
)
