"""Run the checks: side by side, each with its deadline, children of a failed check left out."""

import asyncio
import time
from collections.abc import Mapping, Sequence

from ddconsole.core.clock import Clock, SystemClock
from ddconsole.preflight.check import Check, Finding, Outcome, Tier, Verdict, skipped, unknown
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.register import CHECKS

_LONGEST_TEXT = 2000
"""Characters of one line of evidence."""


async def run_checks(
    facts: Facts,
    tier: Tier = Tier.STANDARD,
    checks: Sequence[Check] = CHECKS,
    clock: Clock | None = None,
    accepted: Mapping[tuple[str, str], str] | None = None,
) -> list[Finding]:
    """All checks of a tier, in the register's order. Never raises for a check's sake.

    A check that does not end within its deadline, or breaks, is `unknown` with the reason. What is accepted, by check
    and what it is about, keeps its outcome and holds nothing back.
    """
    chosen = [check for check in checks if list(Tier).index(check.tier) <= list(Tier).index(tier)]
    now = (clock or SystemClock()).now
    tasks: dict[str, asyncio.Task[Finding]] = {}
    async with asyncio.TaskGroup() as group:
        for check in chosen:
            needed = [tasks[name] for name in check.needs if name in tasks]
            tasks[check.id] = group.create_task(_find(check, facts, needed, now(), accepted or {}))
    return [task.result() for task in tasks.values()]


async def _find(
    check: Check,
    facts: Facts,
    needed: Sequence[asyncio.Task[Finding]],
    at: float,
    accepted: Mapping[tuple[str, str], str],
) -> Finding:
    blocked_by = ""
    for task in needed:
        before = await task
        stands = before.outcome is Outcome.FAIL and not before.accepted
        blocked_by = blocked_by or (before.id if stands else before.blocked_by)
    began = time.monotonic()
    verdict = skipped(f"blocked by {blocked_by}") if blocked_by else await _verdict(check, facts)
    green = verdict.outcome in {Outcome.PASS, Outcome.SKIP}
    return Finding(
        accepted="" if green else accepted.get((check.id, verdict.about), ""),
        id=check.id,
        proves=check.proves,
        outcome=verdict.outcome,
        observed=verdict.observed,
        expected=verdict.expected,
        evidence=tuple(line[:_LONGEST_TEXT] for line in verdict.evidence),
        remedy=verdict.remedy,
        blocks=check.blocks,
        about=verdict.about,
        blocked_by=blocked_by,
        at=at,
        seconds=round(time.monotonic() - began, 3),
        simulated=facts.simulated,
    )


async def _verdict(check: Check, facts: Facts) -> Verdict:
    try:
        async with asyncio.timeout(check.deadline):
            return await check.run(facts)
    except TimeoutError:
        return unknown(f"no answer within {check.deadline:g} s", "something it asks hangs: look at the machine by hand")
    except OSError as problem:
        return unknown(f"could not be looked at: {problem}")
    except Exception as problem:  # noqa: BLE001  # a broken check must not hide what the others found
        return unknown(f"the check itself broke: {type(problem).__name__}: {problem}", "report this")
