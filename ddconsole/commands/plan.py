"""`ddconsole plan`: what a plan expands to, before anything starts."""

import argparse
import time

from ddconsole.agent.run_store import first_events
from ddconsole.commands.connection import EXPECTED, fail, printed
from ddconsole.commands.run import read_sweep
from ddconsole.core.deadline import deadline_in_words, fit, next_time_of_day
from ddconsole.core.duration import estimate_of_expansion, estimates_for
from ddconsole.core.events import Entry
from ddconsole.core.expansion import Expansion
from ddconsole.core.fold import fold
from ddconsole.core.plan_problem import PlanError
from ddconsole.core.row_text import seconds_in_words
from ddconsole.core.sweep import Cell, Deployment, to_json
from ddconsole.load.prompts import WorkloadTextError
from ddconsole.planfile.submission import PlannedSweep, submission_of


def main(options: argparse.Namespace) -> int:
    """Print cells, launches, predicted time and memory, and what will not fit."""
    try:
        sweep = read_sweep(options.plan)
    except (*EXPECTED, PlanError, WorkloadTextError) as problem:
        return fail(problem)
    expansion = sweep.expansion
    seconds = estimate_of_expansion(expansion, sweep.plan.engine.kind)
    if options.json:
        printed(
            {
                "plan": sweep.plan.name,
                "host": sweep.plan.host,
                "deployments": [to_json(one) for one in expansion.deployments],
                "cells": [to_json(one) for one in expansion.cells],
                "skipped": dict(expansion.skipped),
                "unfit": dict(expansion.unfit),
                "notes": list(expansion.notes),
                "launches": expansion.launches,
                "seconds": seconds,
                "memory": {name: to_json(fit) for name, fit in expansion.memory.items()},
            }
        )
        return 0
    print(
        f"{sweep.plan.name} on {sweep.plan.host}: {len(expansion.cells)} cells, {expansion.launches} launches, ", end=""
    )
    print(f"about {seconds_in_words(seconds)}; {len(expansion.skipped)} skipped, {len(expansion.unfit)} do not fit")
    for deployment in expansion.deployments:
        _print_deployment(deployment, expansion)
    print(_until_line(sweep), end="")
    for note in expansion.notes:
        print(f"note: {note}")
    return 0


def _until_line(sweep: PlannedSweep) -> str:
    """What would not fit before the plan's deadline if it were begun now."""
    until = sweep.plan.protocol.until
    if until is None:
        return ""
    now = time.time()
    at = next_time_of_day(until, now)
    entries = [
        Entry(1, number + 1, now, event)
        for number, event in enumerate(first_events(submission_of(sweep, "plan", sweep.plan.host)))
    ]
    state = fold(entries)
    found = fit(state, estimates_for(state), at - now, now)
    cells = ", ".join(list(found.dropped)[:4]) + (", ..." if len(found.dropped) > 4 else "")
    left_out = f"{len(found.dropped)} cells will not fit ({cells})" if found.dropped else "everything fits"
    return f"until {deadline_in_words(at, now)} (this machine's clock; the host's decides): {left_out}\n"


def _print_deployment(deployment: Deployment, expansion: Expansion) -> None:
    cells = [cell for cell in expansion.cells if cell.deployment == deployment.id]
    gpus = f"GPUs {','.join(map(str, deployment.placement.gpus))}" if deployment.placement.gpus else "no GPU"
    fit = expansion.memory.get(deployment.id)
    memory = f"  {fit.needed_gib:.1f} of {fit.available_gib:.1f} GiB a GPU" if fit else ""
    print(f"{deployment.id} {deployment.label:16} size {deployment.size}  {gpus}{memory}")
    reasons = {**dict(expansion.skipped), **dict(expansion.unfit)}
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.point.workload, reasons.get(cell.id, "")), []).append(cell)
    for (workload, reason), group in groups.items():
        points = " ".join(f"{one.point.load}/{one.point.max_tokens}" for one in group)
        print(f"    {group[0].id} {workload:14} {points}{f'   ({reason})' if reason else ''}")
