"""The host's clock and the console's agree, so that times of the two can be laid side by side."""

from ddconsole.preflight.check import Check, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.facts import Facts

_NOTICED, _WRONG = 0.5, 5.0
"""Seconds."""


async def _run(facts: Facts) -> Verdict:
    reach = facts.reach
    if reach.how == "local":
        return skipped("console and host have one clock")
    if facts.simulated:
        return skipped("a simulated host has a clock of its own")
    if reach.clock_offset is None:
        return unknown("the console did not compare its clock", "ask again with this version's console")
    doubt = (reach.round_trip or 0.0) / 2
    offset = reach.clock_offset
    evidence = [f"agent's time less the console's: {offset:+.3f} s, give or take {doubt:.3f} s"]
    expected = f"less than {_NOTICED:g} s apart"
    if abs(offset) - doubt < _NOTICED:
        return passed(f"{offset:+.2f} s", expected, evidence)
    observed = f"the host's clock is {abs(offset):.1f} s {'ahead' if offset > 0 else 'behind'}"
    remedy = (
        "set the wrong one: `timedatectl` on either; a container has the clock of its Proxmox host. Ages and durations "
        "here are right all the same, `until:` is the host's time of day"
    )
    return (failed if abs(offset) - doubt > _WRONG else warned)(observed, expected, remedy, evidence)


CHECK = Check("host.clock", "host and console have the same time", _run, blocks=("comparison",), tier=Tier.STANDARD)
