"""Pre-flight checks of a submission, or of the part of it that one launch is, on this host."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ddconsole.core.displacing import displaced_of
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Deployment, deployment_from_json
from ddconsole.core.wire import Submission
from ddconsole.engines.register import engine as engine_of
from ddconsole.preflight.check import Finding, Outcome, Tier, finding_to_json, holding_back
from ddconsole.preflight.facts import DisplacedUnit, Facts, PreflightPlan, Reach
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.machine import Machine
from ddconsole.preflight.rehearsed_machine import RehearsedMachine
from ddconsole.preflight.run_checks import run_checks
from ddconsole.preflight.take_inventory import take_inventory
from ddconsole.probe.monitor import ProbeProblem, one_sample
from ddconsole.runner.durable import write_json
from ddconsole.runner.run_directory import RunDirectory


def manifests_folder(runs: Path) -> Path:
    """Where manifests of models lie, beside the runs."""
    return runs / ".manifests"


async def preflight_findings(submission: Submission, tier: str, run_directory: str) -> Sequence[Mapping[str, Any]]:
    """The findings of a tier over a whole submission, as JSON."""
    deployments = tuple(deployment_from_json(one) for one in submission.deployments)
    facts = await facts_of(submission, deployments, run_directory)
    return [finding_to_json(one) for one in await run_checks(facts, Tier(tier))]


async def gate_findings(
    submission: Submission,
    state: RunState,
    deployments: tuple[Deployment, ...],
    known_flags: frozenset[str] | None,
    run: RunDirectory,
) -> tuple[str, ...]:
    """What holds launches of these deployments back, in words; empty when they may begin.

    The findings and the machine as it was stand in the run directory afterwards.

    Raises:
        OSError: they could not be written.
    """
    facts = await facts_of(submission, deployments, str(run.path), known_flags, _displaced(submission, state))
    findings = await run_checks(facts, Tier.GATE)
    about = ", ".join(one.id for one in deployments)
    write_json(run.preflight, {"deployment": about, "findings": [finding_to_json(one) for one in findings]})
    if facts.host is not None:
        write_json(run.environment, host_state_to_json(facts.host))
    return tuple(_in_words(one) for one in holding_back(findings, "launch") if one.outcome is Outcome.FAIL)


def _in_words(finding: Finding) -> str:
    return f"{finding.id}: {finding.observed}" + (f" ({finding.remedy})" if finding.remedy else "")


async def facts_of(
    submission: Submission,
    deployments: tuple[Deployment, ...],
    run_directory: str,
    known_flags: frozenset[str] | None = None,
    displaced: tuple[DisplacedUnit, ...] | None = None,
) -> Facts:
    """What the checks go by: the plan's side, and a fresh sample of the machine."""
    sampling = asyncio.create_task(_sample())
    inventory = await take_inventory(LocalMachine())
    host, problem = await sampling
    units = _displaced(submission, RunState()) if displaced is None else displaced
    plan = _plan_of(submission, deployments, run_directory, units)
    return Facts(
        plan=plan,
        machine=_machine(submission, plan, host),
        host=host,
        host_problem=problem,
        inventory=inventory,
        look_again=_look_again,
        environment=dict(os.environ),
        engine=engine_of(str(submission.engine["kind"])),
        known_flags=known_flags,
        reach=Reach("local" if submission.host == "local" else f"ssh {submission.host}"),
    )


async def _sample() -> tuple[HostState | None, str]:
    """The machine now, or why not."""
    try:
        return await one_sample(), ""
    except ProbeProblem as silent:
        return None, str(silent)


async def _look_again() -> HostState | None:
    return (await _sample())[0]


def _plan_of(
    submission: Submission,
    deployments: tuple[Deployment, ...],
    run_directory: str,
    displaced: tuple[DisplacedUnit, ...],
) -> PreflightPlan:
    model, expect = submission.model, submission.expect
    port = submission.protocol.get("port")
    link = expect.get("pcie") or {}
    return PreflightPlan(
        run_directory=run_directory,
        deployments=deployments,
        engine_command=tuple(submission.engine["command"]),
        engine_env={name: str(value) for name, value in submission.engine.get("env", {}).items()},
        model=str(model.get("path") or ""),
        draft=model.get("draft"),
        model_source=str(model.get("source") or ""),
        manifests=str(manifests_folder(Path(run_directory).parent)),
        baseline=submission.baseline,
        expected_gpus=expect.get("gpus"),
        expected_gpu_name=str(expect.get("gpu_name") or ""),
        bind_numa=any(one.placement.bind == "numa" for one in deployments),
        expected_link=(link.get("gen"), link.get("width")),
        expected_nodes=expect.get("numa_nodes"),
        ports=(int(port),) if port else (),
        displaced=displaced,
    )


def _displaced(submission: Submission, state: RunState) -> tuple[DisplacedUnit, ...]:
    """The units that may hold GPUs now: not those that are down for the run; waived ones are the operator's to stop."""
    return tuple(
        DisplacedUnit(one.unit, one.gpu, by_sweep=one.unit not in state.waived)
        for one in displaced_of(submission.displace)
        if one.unit not in state.debts
    )


def _machine(submission: Submission, plan: PreflightPlan, host: HostState | None) -> Machine:
    if submission.rehearsal is None or host is None:
        return LocalMachine()
    models = [path for path in (plan.model, *plan.drafts) if path]
    return RehearsedMachine(host, models)
