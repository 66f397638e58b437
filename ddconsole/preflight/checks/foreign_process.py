"""Nobody else computes on a needed GPU."""

import re

from ddconsole.core.host_state import GpuProcess
from ddconsole.core.visible_text import visible_line
from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.checks.gpu_memory import ALLOWED_BYTES, used_by_others
from ddconsole.preflight.facts import Facts

_GIB = 1024**3


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    if facts.host is None:
        return unknown(f"no sample of the host: {facts.host_problem}")
    gpus = facts.needed()
    blind = [gpu for gpu in gpus if not gpu.processes.known]
    if blind:
        return unknown("; ".join(f"GPU {gpu.index}: {gpu.processes.unavailable}" for gpu in blind))
    foreign = [(gpu.index, one) for gpu in gpus for one in gpu.processes.value or () if one.pid not in facts.own_pids]
    if foreign:
        return await _judge_foreign(facts, foreign)
    hidden = [gpu for gpu in gpus if used_by_others(gpu, facts) >= ALLOWED_BYTES]
    if hidden:
        places = ", ".join(f"GPU {gpu.index} {used_by_others(gpu, facts) / _GIB:.1f} GiB" for gpu in hidden)
        return unknown(
            f"memory is held by no process that the driver shows here: {places}",
            "it is held outside this container: ask on the host with `fuser -v /dev/nvidia*`",
        )
    return passed(f"no process on {len(gpus)} GPUs", "no process of anybody else")


async def _judge_foreign(facts: Facts, foreign: list[tuple[int, GpuProcess]]) -> Verdict:
    evidence, units = [], set()
    for index, one in foreign:
        line, unit = await _describe(facts, one.pid)
        held = "" if one.memory_bytes is None else f" {one.memory_bytes / _GIB:.1f} GiB"
        evidence.append(f"GPU {index}: pid {one.pid}{held} {line}")
        units.add(unit)
    expected = "no process of anybody else"
    observed = ", ".join(f"pid {one.pid} on GPU {index}" for index, one in foreign)
    stopped = [unit for unit in facts.plan.displaced if unit.by_sweep]
    if all(any(unit.is_on(index) for unit in stopped) for index, _ in foreign):
        names = ", ".join(sorted({unit.unit for unit in stopped}))
        return warned(observed, expected, f"nothing: the sweep stops {names} before the launch", evidence)
    unit_names = sorted(unit for unit in units if unit)
    how = f"stop {', '.join(unit_names)}" if unit_names else "end it, if it is yours"
    remedy = (
        f"{how}, or move the plan's placement. In a container the driver numbers processes as the host does: the "
        "process with this number here may be another one, so look before you end it"
    )
    return failed(observed, expected, remedy, evidence, f"GPU {foreign[0][0]}")


async def _describe(facts: Facts, pid: int) -> tuple[str, str]:
    """What has this number here, and the systemd unit that it belongs to."""
    try:
        command = (await facts.machine.read_text(f"/proc/{pid}/cmdline")).replace("\0", " ").strip()
        groups = await facts.machine.read_text(f"/proc/{pid}/cgroup")
    except OSError:
        return "(no process has this number here: it is outside this container, or ended)", ""
    match = re.search(r"/([^/\n]+\.service)", groups)
    unit = match[1] if match else ""
    return visible_line(command[:160] + (f" [unit {unit}]" if unit else "")), unit


CHECK = Check(
    "gpu.foreign-process",
    "nobody else uses the needed GPUs",
    _run,
    needs=("host.reachable", "driver.answers", "gpu.count"),
)
