"""No fatal Xid of a needed GPU in the kernel's log of this boot."""

import re
from collections import Counter

from ddconsole.core.xids import FATAL, MEANINGS, OF_PROGRAMS
from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran

_DEADLINE = 8.0
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)")
_EXPECTED = "none of this boot that needs a reset"


async def run(facts: Facts) -> Verdict:
    """By the log of `facts.machine`."""
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    text, complaint = await _log(facts)
    if text is None:
        remedy = f"ask the host: `dmesg -T | grep -i xid` ({complaint})"
        return unknown("the kernel log cannot be read here, so nothing is known of Xids", remedy)
    buses = {_bus(gpu.pci_address.value or ""): gpu.index for gpu in facts.needed()}
    seen: Counter[tuple[int, int]] = Counter()
    lines: list[str] = []
    for line in text.splitlines():
        match = _XID.search(line)
        if match is None or _bus(match[1]) not in buses:
            continue
        lines.append(line.strip())
        seen[buses[_bus(match[1])], int(match[2])] += 1
    evidence = lines[-6:] or [f"dmesg: {len(text.splitlines())} lines, no Xid of a needed GPU"]
    bad = {key: count for key, count in seen.items() if key[1] not in OF_PROGRAMS}
    if bad:
        observed = ", ".join(_in_words(index, number, count) for (index, number), count in bad.items())
        remedy = "reset the GPU on the host, or reboot it; look the number up in NVIDIA's Xid catalogue"
        known = any(number in FATAL for _, number in bad)
        verdict = failed if known else warned
        return verdict(observed, _EXPECTED, remedy, evidence, f"GPU {next(iter(bad))[0]}")
    if seen:
        words = ", ".join(_in_words(index, number, count) for (index, number), count in seen.items())
        return passed(f"only of programs: {words}", _EXPECTED, evidence)
    return passed("no Xid of a needed GPU", _EXPECTED, evidence)


def _in_words(index: int, number: int, count: int) -> str:
    times = f" {count} times" if count > 1 else ""
    return f"GPU {index}: Xid {number}{times} ({MEANINGS.get(number, 'not in our list')})"


def _bus(address: str) -> str:
    """Domain, bus and device without the function, as the log writes it: `0000:16:00`."""
    bare = address.lower().partition(".")[0]
    domain, _, rest = bare.partition(":")
    return f"{int(domain, 16):04x}:{rest}" if rest.count(":") == 1 and domain else bare


async def _log(facts: Facts) -> tuple[str | None, str]:
    """The kernel's log, or None and why not."""
    try:
        ran: Ran = await facts.machine.run(("dmesg",), _DEADLINE)
    except OSError as problem:
        return None, f"dmesg: {problem.strerror or problem}"
    if ran.exit_code != 0:
        return None, ran.err.strip()[-120:] or f"dmesg ended with {ran.exit_code}"
    if not ran.out.strip():
        return None, "dmesg is empty: another name space's log"
    return ran.out, ""


CHECK = Check(
    "gpu.xid",
    "the kernel reported no fault of a needed GPU since it was booted",
    run,
    needs=("host.reachable", "driver.match", "driver.answers", "gpu.count"),
)
