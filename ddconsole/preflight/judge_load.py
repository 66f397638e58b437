"""What the checks of the load tier share: when there is nothing to judge, and what a figure is."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from ddconsole.preflight.check import Check, Outcome, Tier, Verdict, failed, skipped, unknown
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.load_report import LoadReport

NEEDS = ("host.reachable", "driver.match", "driver.answers", "gpu.count", "dev.uvm-open", "cuda.init", "load.torch")
_FIRST = "load.answers"
"""A run that hung says nothing of the rest."""

Judge = Callable[[Facts, LoadReport], Awaitable[Verdict]]


def load_check(name: str, proves: str, judge: Judge) -> Check:
    """A check of the load tier over what the run gave."""
    needs = NEEDS if name == _FIRST else (*NEEDS, _FIRST)
    return Check(name, proves, _judged(judge), needs, ("sweep",), tier=Tier.LOAD)


def nothing_was_done(facts: Facts) -> Verdict | None:
    """Why there is no load to judge, or None."""
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    if facts.simulated:
        return skipped("simulated GPUs can be put under no load")
    if facts.load is None:
        return unknown("no load was put on any GPU", "ask for it by name: `--tier load`")
    return None


def are_figures(values: Mapping[str, Any], *names: str) -> bool:
    """Whether they are numbers above zero: NaN and 0 are what a broken measurement says, not a result."""
    return all(
        isinstance(values.get(name), int | float) and math.isfinite(values[name]) and values[name] > 0 for name in names
    )


def listed(indices: Iterable[int]) -> str:
    """`4, 5, 6`."""
    return ", ".join(map(str, indices))


def _judged(judge: Judge) -> Callable[[Facts], Awaitable[Verdict]]:
    async def run(facts: Facts) -> Verdict:
        nothing = nothing_was_done(facts)
        load = facts.load
        if nothing is not None or load is None:
            return nothing or unknown("no load was put on any GPU")
        if load.hung:
            remedy = "reset the GPU on the host, or reboot it; look at its kernel log for Xid"
            return failed(f"{load.hung} began and did not end", "it ends", remedy, [f"after {load.seconds:g} s"])
        if load.problem:
            return unknown(load.problem, "correct the plan's engine, or wait until the GPUs are free")
        verdict = await judge(facts, load)
        if load.busy and verdict.outcome is Outcome.PASS:
            left = f"GPU {listed(load.busy)} is used by somebody and was left alone; the others: {verdict.observed}"
            return unknown(left, "ask again when it is free", verdict.evidence)
        return verdict

    return run
