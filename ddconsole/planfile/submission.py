"""From a checked plan to what is sent to the host: cells, deployments, prompts and scripts, and nothing to look up."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddconsole import __version__
from ddconsole.core.expansion import Expansion, expand, memory_of, size_of_prompts, size_of_script
from ddconsole.core.plan import Plan
from ddconsole.core.plan_values import random_length
from ddconsole.core.plan_workloads import TextSize, text_name
from ddconsole.core.sweep import to_json
from ddconsole.core.wire import Submission
from ddconsole.engines.register import engine as engine_of
from ddconsole.load.prompts import WorkloadTexts, read_workload_texts
from ddconsole.planfile.plan_file import LoadedPlan
from ddconsole.planfile.shipped import shipped_folder


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A simulated host: what is started in place of the engine, and how it goes wrong."""

    command: tuple[str, ...]
    scale: float
    faults: tuple[Mapping[str, Any], ...] = ()
    until: str | None = None
    """A deadline by the simulated host's clock. The plan's own is left out: a fast clock would be past it at once."""


@dataclass(frozen=True, slots=True)
class PlannedSweep:
    """A plan written out, with the texts that its workloads need."""

    loaded: LoadedPlan
    plan: Plan
    expansion: Expansion
    texts: WorkloadTexts


def plan_sweep(loaded: LoadedPlan, plan: Plan) -> PlannedSweep:
    """Write a plan out.

    Raises:
        WorkloadTextError: a prompt set or script cannot be used.
    """
    names = {text_name(workload) for workload in plan.workloads.values()}
    names = {name for name in names if random_length(name) is None}
    texts = read_workload_texts(shipped_folder() / "workloads", names)
    sizes: dict[str, TextSize] = {
        name: size_of_prompts([prompt.text for prompt in prompts]) for name, prompts in texts.prompts.items()
    }
    for name, script in texts.scripts.items():
        sizes[name] = size_of_script(script.system, [(turn.user, turn.assistant) for turn in script.turns])
    return PlannedSweep(loaded, plan, expand(plan, memory_of(plan), sizes), texts)


def submission_of(sweep: PlannedSweep, run: str, host: str, rehearsal: Rehearsal | None = None) -> Submission:
    """What the agent needs to run the sweep."""
    plan = sweep.plan
    command = rehearsal.command if rehearsal else engine_command(plan)
    protocol = plan.protocol.model_dump(mode="json")
    if rehearsal:
        protocol["until"] = rehearsal.until
    return Submission(
        run=run,
        plan_text=sweep.loaded.text,
        plan_name=plan.name,
        plan_sha256=sweep.loaded.sha256,
        host="local" if rehearsal else host,
        baseline=plan.baseline,
        engine={
            "kind": plan.engine.kind,
            "command": list(command),
            "env": dict(plan.engine.env),
            "cwd": None if rehearsal else plan.engine.cwd,
        },
        model={
            "path": plan.model.path,
            "draft": plan.model.draft,
            "source": _plain(plan.model.source),
        },
        protocol=protocol,
        deployments=tuple(to_json(one) for one in sweep.expansion.deployments),
        cells=tuple(to_json(one) for one in sweep.expansion.cells),
        skipped=sweep.expansion.skipped,
        unfit=sweep.expansion.unfit,
        texts=sweep.texts.to_json(),
        expect=plan.expect.model_dump(mode="json", exclude_none=True),
        displace=() if rehearsal else tuple(one.model_dump(mode="json") for one in plan.displace),
        notify=plan.notify,
        rehearsal={"scale": rehearsal.scale, "faults": list(rehearsal.faults)} if rehearsal else None,
        version=__version__,
    )


def engine_command(plan: Plan) -> tuple[str, ...]:
    """How the plan's engine is started: its command, or its interpreter with the engine's module."""
    if plan.engine.command is not None:
        return plan.engine.command
    return engine_of(plan.engine.kind).default_command(plan.engine.python or sys.executable)


def _plain(source: str | tuple[str, ...] | None) -> Any:
    return list(source) if isinstance(source, tuple) else source


def shipped_plan(name: str) -> Path:
    """The file of a plan that ships."""
    return shipped_folder() / f"{name}.yaml"
