"""`ddconsole preflight`: check the host before a sweep; exit status 0, 1, 2 for pass, warn, fail."""

import argparse
import asyncio
import shutil
import sys
from collections.abc import Sequence

from ddconsole.commands.connection import (
    EXPECTED,
    UsageProblem,
    agent_of,
    fail,
    printed,
    say_what_ssh_leaves_out,
)
from ddconsole.commands.places import runs_folder
from ddconsole.commands.run import choice_of, read_sweep
from ddconsole.core.coming_back import LOCAL
from ddconsole.core.plan_parts import ProxmoxPart
from ddconsole.core.plan_problem import PlanError
from ddconsole.link.console_identity import operator
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.load.prompts import WorkloadTextError
from ddconsole.planfile.submission import PlannedSweep, submission_of
from ddconsole.preflight.check import Finding, Tier, finding_from_json, finding_to_json
from ddconsole.preflight.preflight_text import exit_status, preflight_lines


def main(options: argparse.Namespace) -> int:
    """Run the checks on the plan's host and print what they found."""
    try:
        _check_words(options)
        sweep = read_sweep(options.plan, options.host)
        findings = asyncio.run(_findings(options, sweep))
    except (*EXPECTED, PlanError, WorkloadTextError) as problem:
        return fail(problem)
    if options.json:
        printed([finding_to_json(one) for one in findings])
    else:
        for line in preflight_lines(findings, shutil.get_terminal_size().columns):
            print(line)
    if options.record:
        print(
            f"recorded as good in {_profile_place(options.host or sweep.plan.host)}: later checks are compared with it",
            file=sys.stderr,
        )
    return exit_status(findings)


def _check_words(options: argparse.Namespace) -> None:
    """What would be ignored, or refused only after the checks have run.

    Raises:
        UsageProblem: a reason without a finding, or the other way round.
    """
    if options.because and not options.accept:
        raise UsageProblem("--because is the reason of --accept ID: name the check whose finding is accepted")
    if options.accept and not options.because.strip():
        raise UsageProblem("an accepted finding needs a reason: --because TEXT; it stands in every run's record")


def _profile_place(host: str) -> str:
    here = host == LOCAL
    return str(runs_folder() / ".profile.json") if here else f".profile.json beside the runs of the agent on {host}"


async def _findings(options: argparse.Namespace, sweep: PlannedSweep) -> Sequence[Finding]:
    host = options.host or sweep.plan.host
    submission = submission_of(sweep, f"{sweep.plan.name}-preflight", host)
    say_what_ssh_leaves_out(host)
    async with agent_of(host, choice=choice_of(sweep), say=True) as client:
        asked = {
            "accept": options.accept or "",
            "because": options.because,
            "by": operator(),
            "revoke": options.revoke or "",
            "record": options.record,
        }
        below = sweep.plan.proxmox
        if options.tier == Tier.PROXMOX:
            if below is None:
                raise UsageProblem("the plan names no Proxmox host; add `proxmox: {host: ALIAS, container: NUMBER}`")
            return await _below(client, below, sweep)
        findings = [finding_from_json(one) for one in await client.preflight(submission, options.tier, **asked)]
        if below is not None and options.tier != Tier.GATE:
            findings += await _below(client, below, sweep)
        return findings


async def _below(client: HttpAgentClient, below: ProxmoxPart, sweep: PlannedSweep) -> list[Finding]:
    """What the Proxmox host below the container says; the container's sample says which cards are meant."""
    from ddconsole.commands.proxmox_checks import proxmox_findings  # noqa: PLC0415  # it imports asyncssh

    return await proxmox_findings(below, await client.host_state(), sweep.expansion.deployments)
