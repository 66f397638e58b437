"""One check over facts with one thing changed."""

import json
from dataclasses import replace
from typing import Any

from ddconsole.core.sweep import Placement
from ddconsole.preflight.check import Finding, Tier
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.machine import Ran
from ddconsole.preflight.register import CHECKS
from ddconsole.preflight.run_checks import run_checks


async def one(facts: Facts, check: str) -> Finding:
    """The finding of one check, without those it needs."""
    chosen = [replace(known, needs=()) for known in CHECKS if known.id == check]
    (finding,) = await run_checks(facts, Tier.LOAD, chosen)
    return finding


def plan(facts: Facts, **changes: Any) -> Facts:
    return replace(facts, plan=replace(facts.plan, **changes))


def arguments(facts: Facts, **args: Any) -> Facts:
    changed = tuple(replace(each, args={**each.args, **args}) for each in facts.plan.deployments)
    return plan(facts, deployments=changed)


def placed(facts: Facts, gpus: tuple[int, ...]) -> Facts:
    changed = tuple(
        replace(each, placement=Placement(gpus), tensor_parallel=len(gpus)) for each in facts.plan.deployments
    )
    return plan(facts, deployments=changed)


def libraries(**files: str | None) -> Ran:
    names = {"cuda": "libcuda.so.1", "nvml": "libnvidia-ml.so.1"}
    answer = {
        names[name]: {"file": file, "error": None if file else "cannot open shared object file"}
        for name, file in files.items()
    }
    return Ran(0, json.dumps(answer), "", 0.1)
