"""Memory of the needed GPUs is free."""

from ddconsole.core.host_state import GpuState
from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts

_GIB = 1024**3
ALLOWED_BYTES = _GIB
"""What may be in use on an idle GPU, the driver's reserve not counted."""


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    if facts.host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    expected = f"less than {ALLOWED_BYTES // _GIB} GiB used on each of GPU {_list(facts.plan.needed_gpus)}"
    gpus = facts.needed()
    blind = [gpu for gpu in gpus if not gpu.memory_used.known]
    if blind:
        return unknown("; ".join(f"GPU {gpu.index}: {gpu.memory_used.unavailable}" for gpu in blind))
    evidence = [
        f"GPU {gpu.index}: {used_by_others(gpu, facts) / _GIB:.2f} of {(gpu.memory_total.value or 0) / _GIB:.1f} GiB"
        for gpu in gpus
    ]
    full = [gpu for gpu in gpus if used_by_others(gpu, facts) >= ALLOWED_BYTES]
    if not full:
        most = max((used_by_others(gpu, facts) for gpu in gpus), default=0)
        return passed(f"{len(gpus)} GPUs, at most {most / _GIB:.1f} GiB in use", expected, evidence)
    observed = ", ".join(f"GPU {gpu.index} has {used_by_others(gpu, facts) / _GIB:.1f} GiB in use" for gpu in full)
    units = [one for one in facts.plan.displaced if one.by_sweep]
    if all(any(one.is_on(gpu.index) for one in units) for gpu in full):
        names = ", ".join(sorted({one.unit for one in units if any(one.is_on(gpu.index) for gpu in full)}))
        return warned(observed, expected, f"nothing: the sweep stops {names} before the launch", evidence)
    remedy = "see gpu.foreign-process for who holds it; a context that is being torn down is gone in 30 s"
    return failed(observed, expected, remedy, evidence, f"GPU {full[0].index}")


def used_by_others(gpu: GpuState, facts: Facts) -> int:
    """Bytes in use, without what this run's own processes hold."""
    own = sum(one.memory_bytes or 0 for one in gpu.processes.value or () if one.pid in facts.own_pids)
    return max((gpu.memory_used.value or 0) - own, 0)


def _list(indices: tuple[int, ...]) -> str:
    return ", ".join(map(str, indices))


CHECK = Check(
    "gpu.memory-free", "the needed GPUs' memory is free", _run, needs=("host.reachable", "driver.answers", "gpu.count")
)
