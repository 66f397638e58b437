"""`ddconsole run`, `rehearse` and `demo`: begin a sweep, and stay on it or leave."""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ddconsole.commands.connection import EXPECTED, UsageProblem, agent_of, fail, say_what_ssh_leaves_out
from ddconsole.commands.host_choices import HostChoice
from ddconsole.commands.places import runs_folder, state_home
from ddconsole.commands.staying import Stay, stay_on
from ddconsole.core.coming_back import LOCAL, come_back
from ddconsole.core.deadline import NO_DEADLINE, until_problem
from ddconsole.core.plan_problem import PlanError
from ddconsole.core.plan_values import ID_RULE, id_problem
from ddconsole.core.wire import Submission
from ddconsole.engines.register import ENGINE_KINDS
from ddconsole.engines.register import engine as engine_of
from ddconsole.link.client import LinkLost
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.load.prompts import WorkloadTextError
from ddconsole.planfile.placeholders import resolve_placeholders
from ddconsole.planfile.plan_file import find_plan, load_plan
from ddconsole.planfile.submission import PlannedSweep, Rehearsal, plan_sweep, submission_of
from ddconsole.preflight.check import Outcome, finding_from_json
from ddconsole.preflight.preflight_text import preflight_lines


@dataclass(frozen=True, slots=True)
class Begun:
    """A sweep that is ready to be sent."""

    submission: Submission
    host: str
    choice: HostChoice
    environment: Mapping[str, str] | None
    """Of a rehearsal."""


def main(options: argparse.Namespace) -> int:
    """Begin a sweep; the exit status: 0 done, 1 some cells failed, 2 it could not begin, 3 it is paused."""
    try:
        _check_name(options.name)
        host = LOCAL if options.verb == "rehearse" else options.host
        sweep = read_sweep("demo" if options.verb == "demo" else options.plan, host)
        begun = _begin(options, sweep)
        return asyncio.run(_run(options, sweep, begun))
    except (*EXPECTED, PlanError, WorkloadTextError) as problem:
        return fail(problem)


def read_sweep(plan: str, host: str | None = None) -> PlannedSweep:
    """A plan by its file or name, checked and written out.

    Args:
        plan: its file or name.
        host: where it is to run; None for the plan's own host.

    Raises:
        PlanError: it is no possible plan.
        WorkloadTextError: a prompt set or script cannot be used.
    """
    flags = {kind: engine_of(kind).owned_flags for kind in ENGINE_KINDS}
    loaded = load_plan(find_plan(plan), flags)
    return plan_sweep(loaded, resolve_placeholders(loaded.plan, host))


def _check_name(run: str | None) -> None:
    """Before anything is read or reached for.

    Raises:
        UsageProblem: a run cannot be called so.
    """
    if run is not None and (refused := id_problem(run)):
        raise UsageProblem(f"run id: {refused}; allowed: {ID_RULE}")


def choice_of(sweep: PlannedSweep) -> HostChoice:
    """What a plan says about the agent of its host."""
    return HostChoice(
        sweep.plan.agent.python or "",
        sweep.plan.agent.state or "",
        getattr(sweep.plan.engine, "python", None) or "",
    )


def _begin(options: argparse.Namespace, sweep: PlannedSweep) -> Begun:
    run = options.name or f"{sweep.plan.name}-{time.strftime('%m%d-%H%M%S')}"
    _check_name(run)
    choice = choice_of(sweep)
    if options.verb != "rehearse":
        host = options.host or sweep.plan.host
        return Begun(submission_of(sweep, run, host), host, choice, None)
    from ddconsole.rehearsal.command import environment, prepare_state, rehearsal_command  # noqa: PLC0415
    from ddconsole.rehearsal.faults import FaultFileError, rules_from_json  # noqa: PLC0415

    faults = _faults(options.faults)
    state = state_home() / "rehearsal" / "hosts" / run
    try:
        prepare_state(state, rules_from_json(faults, str(options.faults)))
    except FaultFileError as problem:
        raise UsageProblem(str(problem)) from problem
    rehearsal = Rehearsal(rehearsal_command(), options.scale, tuple(faults), _asked_deadline(options.until))
    submission = submission_of(sweep, run, "local", rehearsal)
    return Begun(submission, "local", choice, environment(state, options.scale))


def _asked_deadline(until: str | None) -> str | None:
    """The deadline that a rehearsal was given; None for none.

    Raises:
        UsageProblem: it is no time of day.
    """
    if until is None or until == NO_DEADLINE:
        return None
    if problem := until_problem(until):
        raise UsageProblem(f"--until {until}: {problem}")
    return until


def _faults(path: str | None) -> list[Mapping[str, object]]:
    if path is None:
        return []
    try:
        faults = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as problem:
        raise UsageProblem(f"--faults {path}: {problem}") from problem
    if not isinstance(faults, list):
        raise UsageProblem(f"--faults {path}: expected a list of faults")
    return faults


async def _run(options: argparse.Namespace, sweep: PlannedSweep, begun: Begun) -> int:
    print(plan_line(sweep), file=sys.stderr)
    for note in sweep.expansion.notes:
        print(f"note: {note}", file=sys.stderr)
    if sweep.plan.protocol.until and begun.environment is not None and options.until is None:
        left_out = f"until {sweep.plan.protocol.until} is left out: the rehearsal runs the whole sweep"
        print(f"note: {left_out} (--until HH:MM of its fast clock)", file=sys.stderr)
    say_what_ssh_leaves_out(begun.host)
    async with agent_of(begun.host, rehearsal=begun.environment, choice=begun.choice, say=True) as client:
        hello = await client.hello()
        if hello.run is not None:
            raise UsageProblem(
                f"run {hello.run} is active on {begun.host}; {come_back(hello.run, begun.host)}, or stop-run it"
            )
        if options.name and options.name in {one.run for one in await client.runs()}:
            raise UsageProblem(f"there is a run {options.name} on {begun.host} already: give it another --name")
        if not options.force and not await _checked(client, begun.submission):
            return 2
        run = await send(client, begun)
        _remember(run, begun)
        print(f"run {run} has begun on {begun.host}", file=sys.stderr)
        if options.detach:
            print(come_back(run, begun.host))
            return 0
        export = options.verb == "demo"
        return await stay_on(client, run, Stay(options.headless, begun.submission, export_at_end=export, begun=True))


async def send(client: HttpAgentClient, begun: Begun) -> str:
    """Begin the run; its id.

    Raises:
        UsageProblem: the link was lost meanwhile: it says how to find out.
        AgentError: the agent refuses.
    """
    try:
        return await client.submit(begun.submission)
    except LinkLost as problem:
        run = begun.submission.run
        look = f"{come_back(run, begun.host)} opens it if so"
        raise UsageProblem(f"{problem.text} → whether run {run} has begun is not known: {look}") from problem


def plan_line(sweep: PlannedSweep) -> str:
    """What a plan comes to, in one line."""
    expansion = sweep.expansion
    left_out = f", {len(expansion.skipped)} skipped" if expansion.skipped else ""
    unfit = f", {len(expansion.unfit)} do not fit" if expansion.unfit else ""
    return f"{sweep.plan.name}: {len(expansion.measured)} cells on {expansion.launches} launches{left_out}{unfit}"


async def _checked(client: HttpAgentClient, submission: Submission) -> bool:
    """Run the checks and show what is not well; False when something would spoil the sweep."""
    findings = [finding_from_json(one) for one in await client.preflight(submission, "standard")]
    trouble = [one for one in findings if one.outcome in (Outcome.FAIL, Outcome.WARN, Outcome.UNKNOWN)]
    if trouble:
        for line in preflight_lines(trouble):
            print(line, file=sys.stderr)
    failed = [one for one in findings if one.outcome is Outcome.FAIL and not one.accepted]
    if failed:
        what, them = ("1 check fails", "it") if len(failed) == 1 else (f"{len(failed)} checks fail", "them")
        print(f"{what}: nothing was begun. Put {them} right, or begin with --force.", file=sys.stderr)
    return not failed


def _remember(run: str, begun: Begun) -> None:
    """A rehearsal has an agent of its own: its environment is kept, so that `attach` finds it again."""
    if begun.environment is None:
        return
    folder = runs_folder() / run
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rehearsal.json").write_text(json.dumps(dict(begun.environment)))
