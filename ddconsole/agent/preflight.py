"""Pre-flight checks of a submission, or of the part of it that one launch is, on this host."""

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ddconsole.agent.preflight_notes import PreflightNotes, accepted_reasons
from ddconsole.core.clock import Clock
from ddconsole.core.displacing import displaced_of
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Deployment, deployment_from_json
from ddconsole.core.wire import Submission
from ddconsole.engines.engine import Engine
from ddconsole.engines.register import engine as engine_of
from ddconsole.preflight.check import Finding, Outcome, Tier, finding_to_json, holding_back
from ddconsole.preflight.facts import DisplacedUnit, Facts, PreflightPlan, Reach
from ddconsole.preflight.local_machine import LocalMachine
from ddconsole.preflight.machine import Machine
from ddconsole.preflight.profile import profile_of
from ddconsole.preflight.put_load import put_load
from ddconsole.preflight.rehearsed_machine import RehearsedMachine
from ddconsole.preflight.run_checks import run_checks
from ddconsole.preflight.take_inventory import take_inventory
from ddconsole.probe.monitor import ProbeProblem, one_sample
from ddconsole.runner.durable import write_json
from ddconsole.runner.run_directory import RunDirectory

_BUILD_DEADLINE = 30.0


def manifests_folder(runs: Path) -> Path:
    """Where manifests of models lie, beside the runs."""
    return runs / ".manifests"


class PreflightRefused(Exception):
    """What was asked of pre-flight cannot be done: what is wrong, and what to do."""

    def __init__(self, text: str, do: str) -> None:
        super().__init__(f"{text} → {do}")
        self.text = text
        self.do = do


@dataclass(frozen=True, slots=True)
class PreflightOrder:
    """What an operator asks of pre-flight beside the findings."""

    tier: Tier = Tier.STANDARD
    accept: str = ""
    """A check whose finding is accepted from now on."""
    because: str = ""
    by: str = ""
    revoke: str = ""
    """A check whose acceptances are taken back."""
    record: bool = False
    """Whether the host is recorded as good."""
    seen: Mapping[str, float] = field(default_factory=dict)
    """What the console saw of the host: `round_trip` and `clock_offset`, in seconds."""


async def preflight_findings(
    submission: Submission, order: PreflightOrder, runs: Path, clock: Clock
) -> Sequence[Mapping[str, Any]]:
    """The findings over a whole submission, as JSON.

    Raises:
        PreflightRefused: there is nothing to accept or to take back, or the host is not good.
        OSError: what was to be kept could not be written.
    """
    notes = PreflightNotes(runs, simulated=submission.rehearsal is not None)
    deployments = tuple(deployment_from_json(one) for one in submission.deployments)
    if order.revoke and not notes.revoke(order.revoke):
        raise PreflightRefused(f"nothing was accepted of {order.revoke}", "the findings say what is accepted")
    facts = await facts_of(submission, deployments, str(runs / submission.run), tier=order.tier)
    seen = order.seen
    reach = replace(facts.reach, round_trip=seen.get("round_trip"), clock_offset=seen.get("clock_offset"))
    facts = replace(facts, reach=reach)
    if order.tier is Tier.LOAD and not facts.simulated:
        facts = replace(facts, load=await put_load(facts))
    findings = await run_checks(facts, order.tier, accepted=accepted_reasons(notes.accepted()))
    if order.accept:
        _accept(order, findings, notes, clock.now())
        findings = await run_checks(facts, order.tier, accepted=accepted_reasons(notes.accepted()))
    if order.record:
        failing = [one.id for one in findings if one.outcome is Outcome.FAIL and not one.accepted]
        if failing:
            do = "put it right, or accept it with `--accept ID --because TEXT`"
            raise PreflightRefused(f"a host that fails is not recorded as good: {', '.join(failing)}", do)
        notes.record(profile_of(facts, clock.now()))
    return [finding_to_json(one) for one in findings]


def _accept(order: PreflightOrder, findings: Sequence[Finding], notes: PreflightNotes, at: float) -> None:
    if not order.because.strip():
        raise PreflightRefused("an accepted finding needs a reason", "--because TEXT; it stands in every run's record")
    open_ones = [one for one in findings if one.outcome not in {Outcome.PASS, Outcome.SKIP}]
    for one in open_ones:
        if one.id == order.accept:
            notes.accept({"id": one.id, "about": one.about, "because": order.because.strip(), "by": order.by, "at": at})
            return
    names = ", ".join(one.id for one in open_ones) or "no finding is open"
    raise PreflightRefused(f"{order.accept} found nothing that could be accepted", f"open are: {names}")


async def gate_findings(
    submission: Submission,
    state: RunState,
    deployments: tuple[Deployment, ...],
    known_flags: frozenset[str] | None,
    run: RunDirectory,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[str, ...]:
    """What holds launches of these deployments back, in words; empty when they may begin.

    `note` is told of each finding that the operator accepted, with the reason.

    The findings and the machine as it was stand in the run directory afterwards.

    Raises:
        OSError: they could not be written.
    """
    facts = await facts_of(submission, deployments, str(run.path), known_flags, _displaced(submission, state))
    accepted = PreflightNotes(run.path.parent, simulated=submission.rehearsal is not None).accepted()
    findings = await run_checks(facts, Tier.GATE, accepted=accepted_reasons(accepted))
    for one in findings:
        if one.accepted:
            note(f"{one.id}: {one.observed}; accepted: {one.accepted}")
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
    tier: Tier = Tier.GATE,
) -> Facts:
    """What the checks go by: the plan's side, and a fresh sample of the machine."""
    notes = PreflightNotes(Path(run_directory).parent, simulated=submission.rehearsal is not None)
    engine = engine_of(str(submission.engine["kind"]))
    sampling = asyncio.create_task(_sample())
    inventory = await take_inventory(LocalMachine())
    host, problem = await sampling
    units = _displaced(submission, RunState()) if displaced is None else displaced
    plan = _plan_of(submission, deployments, run_directory, units)
    machine = _machine(submission, plan, host)
    return Facts(
        plan=plan,
        machine=machine,
        host=host,
        host_problem=problem,
        inventory=inventory,
        look_again=_look_again,
        environment=dict(os.environ),
        engine=engine,
        profile=notes.profile(),
        build=None if tier is Tier.GATE else await _build(machine, engine, plan),
        smoke=notes.smoke(),
        known_flags=known_flags,
        reach=Reach("local" if submission.host == "local" else f"ssh {submission.host}"),
    )


async def _build(machine: Machine, engine: Engine, plan: PreflightPlan) -> Mapping[str, Any] | None:
    """What build of the engine this is, by its own interpreter; None where it does not tell."""
    argv = engine.build_command(plan.engine_command)
    if argv is None:
        return None
    try:
        ran = await machine.run(argv, _BUILD_DEADLINE, plan.engine_env)
        found = json.loads((ran.out.strip().splitlines() or ["null"])[-1])
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


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
