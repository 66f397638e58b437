"""`ddconsole plan`: what a plan expands to, before anything starts."""

import argparse

from ddconsole.commands.connection import EXPECTED, fail, printed
from ddconsole.commands.run import read_sweep
from ddconsole.core.duration import estimate_of_expansion
from ddconsole.core.expansion import Expansion
from ddconsole.core.plan_problem import PlanError
from ddconsole.core.row_text import seconds_in_words
from ddconsole.core.sweep import Cell, Deployment, to_json
from ddconsole.load.prompts import WorkloadTextError
from ddconsole.planfile.submission import unobeyed


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
                "notes": [*expansion.notes, *unobeyed(sweep.plan)],
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
    for note in (*expansion.notes, *unobeyed(sweep.plan)):
        print(f"note: {note}")
    return 0


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
        points = " ".join(f"c{one.point.concurrency}/{one.point.max_tokens}" for one in group)
        print(f"    {group[0].id} {workload:14} {points}{f'   ({reason})' if reason else ''}")
