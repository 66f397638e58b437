"""Ports that the plan fixes are free."""

from ddconsole.core.visible_text import visible_line
from ddconsole.preflight.check import Check, Verdict, failed, passed, skipped
from ddconsole.preflight.facts import Facts


async def _run(facts: Facts) -> Verdict:
    if not facts.plan.ports:
        return skipped("the plan fixes no port: a free one is taken for each launch")
    uses = [(port, await facts.machine.port_use(port)) for port in facts.plan.ports]
    taken = [(port, use) for port, use in uses if not use.free]
    evidence = [
        f"bind 127.0.0.1:{port}: {use.error or 'taken'}; "
        + (f"pid {use.pid} {visible_line(use.command)}" if use.pid else "the owner cannot be seen by this user")
        for port, use in taken
    ]
    if not taken:
        return passed(f"{len(uses)} free", "free", [f"bind 127.0.0.1:{port}: ok" for port, _ in uses])
    owners = ", ".join(
        f"port {port} is taken by {f'pid {use.pid}' if use.pid else 'another user'}" for port, use in taken
    )
    remedy = "stop what listens there (look at it first: it may be somebody's server), or change the plan's port"
    return failed(owners, "free", remedy, evidence, f"port {taken[0][0]}")


CHECK = Check("port.free", "the servers' ports are free", _run)
