"""The host answers."""

from ddconsole.preflight.check import Check, Verdict, failed, passed, warned
from ddconsole.preflight.facts import Facts

_SLOW_ROUND_TRIP = 0.25
"""Seconds."""
_DEADLINE = 5.0


async def _run(facts: Facts) -> Verdict:
    reach = facts.reach
    expected = "a program runs there and ends"
    if reach.problem:
        return failed(reach.problem, expected, reach.remedy or "check the network, the name and the key, then again")
    ran = await facts.machine.run(("true",), _DEADLINE)
    evidence = [f"true: exit {ran.exit_code} in {ran.seconds:.2f} s"]
    if ran.exit_code != 0:
        observed = "`true` did not end" if ran.exit_code is None else f"`true` ended with {ran.exit_code}"
        return failed(observed, expected, "log in by hand and look at the machine's load and processes", evidence)
    if reach.round_trip is not None and reach.round_trip > _SLOW_ROUND_TRIP:
        return warned(
            f"{reach.how}, round trip {reach.round_trip * 1000:.0f} ms",
            f"at most {_SLOW_ROUND_TRIP * 1000:.0f} ms",
            "the sweep is not disturbed (load is made on the host); the console is slow",
            evidence,
        )
    return passed(reach.how, expected, evidence)


CHECK = Check("host.reachable", "the host can be reached and runs programs", _run, needs=(), blocks=("launch", "sweep"))
