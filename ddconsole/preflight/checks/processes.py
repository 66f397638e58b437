"""No process is stuck in the driver; no server of an ended run lives on."""

import json
from typing import Any

from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, unknown, warned
from ddconsole.preflight.facts import Facts

_DEADLINE = 10.0


async def _processes(facts: Facts) -> dict[str, Any] | str:
    """What the child saw in /proc, or why it saw nothing."""
    ran = await facts.machine.child("processes", deadline=_DEADLINE)
    if ran.exit_code is None:
        return f"looking through /proc took longer than {_DEADLINE:g} s: something there hangs"
    if ran.exit_code != 0:
        return f"the child ended with {ran.exit_code}: {ran.err.strip()[-160:]}"
    found: dict[str, Any] = json.loads(ran.out)
    return found


async def _stuck(facts: Facts) -> Verdict:
    found = await _processes(facts)
    if isinstance(found, str):
        return unknown(found)
    stuck = found["stuck"]
    evidence = [f"pid {one['pid']} {one['command']}: D in {one['where'] or 'the kernel'}" for one in stuck]
    expected = "no process that only a reboot ends"
    driver = [one for one in stuck if one["driver"]]
    if driver:
        pids = ", ".join(str(one["pid"]) for one in driver)
        remedy = "it cannot be killed: reboot the host. The driver's lock that it holds stops others too"
        return failed(f"pid {pids} hangs in the NVIDIA driver", expected, remedy, evidence, f"pid {driver[0]['pid']}")
    return passed(f"none of {found['looked']} processes hangs in the driver", expected, evidence)


async def _left(facts: Facts) -> Verdict:
    found = await _processes(facts)
    if isinstance(found, str):
        return unknown(found)
    left = [one for one in found["servers"] if one["pid"] not in facts.own_pids]
    evidence = [f"pid {one['pid']}, parent {one['parent']}: {one['command']}" for one in left]
    expected = "no inference server without a parent"
    if left:
        pids = ", ".join(str(one["pid"]) for one in left)
        remedy = "look whose they are before you end them: they hold ports, shared memory and perhaps a GPU"
        return warned(f"orphaned servers: pid {pids}", expected, remedy, evidence, f"pid {left[0]['pid']}")
    return passed(f"none among {found['looked']} processes", expected, evidence)


CHECKS = (
    Check("proc.stuck", "no process hangs in the driver", _stuck),
    Check("proc.leftovers", "no server of an ended run lives on", _left, blocks=("comparison",), tier=Tier.STANDARD),
)
