"""The machine around the GPUs is at rest and gives what servers ask of it: CPU time, clocks, open files."""

import json
import math

from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts

_CPUS = "/sys/devices/system/cpu"
_DYNAMIC_DRIVERS = frozenset({"intel_pstate", "amd-pstate-epp", "amd_pstate_epp"})
"""Under these, `powersave` means a dynamic governor, not the lowest clock."""
_PRESSURE = {"memory": ("full", 0.1), "io": ("full", 5.0), "cpu": ("some", 10.0)}
"""Kind of stall and percent of a minute."""
_FILES = 65_535


async def _quota(facts: Facts) -> Verdict:
    path = "/sys/fs/cgroup/cpu.max"
    try:
        words = (await facts.machine.read_text(path)).split()
    except FileNotFoundError:
        return skipped("no control group of version 2 limits this process")
    evidence = [f"{path}: {' '.join(words)}"]
    if not words or words[0] == "max":
        return passed("no limit", "no limit of CPU time", evidence)
    if len(words) < 2 or not (words[0] + words[1]).isdigit():
        return unknown(f"{path} says {' '.join(words)[:40]!r}")
    cpus = int(words[0]) / int(words[1])
    remedy = "Proxmox: `cpulimit 0`; a throttled scheduler process stops its GPU for tens of milliseconds"
    return warned(f"{cpus:g} CPUs' worth of time, then it is throttled", "no limit of CPU time", remedy, evidence)


async def _governor(facts: Facts) -> Verdict:
    try:
        names = [name for name in await facts.machine.list_folder(_CPUS) if name[:3] == "cpu" and name[3:].isdigit()]
    except FileNotFoundError:
        return skipped("no CPU frequencies here")
    found: dict[str, int] = {}
    driver = await _word(facts, f"{_CPUS}/{names[0]}/cpufreq/scaling_driver") if names else None
    for name in names[:: max(len(names) // 16, 1)]:
        governor = await _word(facts, f"{_CPUS}/{name}/cpufreq/scaling_governor")
        if governor is not None:
            preference = await _word(facts, f"{_CPUS}/{name}/cpufreq/energy_performance_preference")
            key = f"{governor}{f' ({preference})' if preference else ''}"
            found[key] = found.get(key, 0) + 1
    if not found:
        return skipped("the kernel does not set CPU frequencies here (a virtual machine)")
    evidence = [f"{_CPUS}/cpu*/cpufreq, driver {driver}: {key}, {count} CPUs looked at" for key, count in found.items()]
    expected = "performance"
    slow = [key for key in found if not _is_fast(key, driver or "")]
    if slow:
        remedy = "on the host: `cpupower frequency-set -g performance`"
        return warned(f"{', '.join(slow)} under {driver}", expected, remedy, evidence)
    return passed(", ".join(found), expected, evidence)


def _is_fast(key: str, driver: str) -> bool:
    if key.startswith("performance"):
        return True
    return driver in _DYNAMIC_DRIVERS and "(performance)" in key


async def _word(facts: Facts, path: str) -> str | None:
    try:
        return (await facts.machine.read_text(path)).strip()
    except OSError:
        return None


async def _pressure(facts: Facts) -> Verdict:
    evidence: list[str] = []
    stalled: list[str] = []
    for name, (kind, most) in _PRESSURE.items():
        text = await _word(facts, f"/proc/pressure/{name}")
        if text is None:
            continue
        line = next((one for one in text.splitlines() if one.startswith(kind)), "")
        values = dict(word.partition("=")[::2] for word in line.split()[1:])
        evidence.append(f"/proc/pressure/{name}: {line}")
        try:
            share = float(values["avg60"])
        except (KeyError, ValueError):
            share = math.nan
        if not math.isfinite(share):
            return unknown(f"/proc/pressure/{name} does not say what it should: {line[:60]!r}", "", evidence)
        if share > most:
            stalled.append(f"{name}: {share:g} % of the last minute (at most {most:g})")
    if not evidence:
        return skipped("this kernel does not measure stalls")
    if stalled:
        remedy = "wait until it is over (a copy, an update), or find who does it: other guests of the host count too"
        return warned("; ".join(stalled), "the machine is at rest", remedy, evidence)
    return passed("no stalls", "the machine is at rest", evidence)


async def _limits(facts: Facts) -> Verdict:
    ran = await facts.machine.child("limits", deadline=5.0)
    if ran.exit_code != 0:
        return unknown(f"the child ended with {ran.exit_code}: {ran.err.strip()[-120:]}")
    limits: dict[str, int] = json.loads(ran.out)
    files = limits["files"]
    evidence = [f"getrlimit: {name} {'unlimited' if value < 0 else f'{value:,}'}" for name, value in limits.items()]
    expected = f"{_FILES:,} open files"
    if 0 <= files < 1024:
        return failed(f"{files} open files", expected, "raise it: `ulimit -n`, or the unit's LimitNOFILE=", evidence)
    if 0 <= files < _FILES:
        remedy = "raise it where the agent is started: `ulimit -n`, or LimitNOFILE= of its unit"
        return warned(f"{files:,} open files", expected, remedy, evidence)
    return passed("unlimited" if files < 0 else f"{files:,} open files", expected, evidence)


CHECKS = (
    Check("cpu.quota", "CPU time is not limited", _quota, blocks=("comparison",), tier=Tier.STANDARD),
    Check("cpu.governor", "CPUs run at full clock", _governor, blocks=("comparison",), tier=Tier.STANDARD),
    Check("host.pressure", "the machine is at rest", _pressure, blocks=("comparison",), tier=Tier.STANDARD),
    Check("host.limits", "servers may open enough files", _limits, tier=Tier.STANDARD),
)
