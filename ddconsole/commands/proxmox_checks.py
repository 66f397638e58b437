"""The checks of the Proxmox host below the container, by the console over that host's own SSH entry."""

from ddconsole.commands.asking import prompts_of_terminal
from ddconsole.core.host_state import HostState
from ddconsole.core.plan_parts import ProxmoxPart
from ddconsole.core.sweep import Deployment
from ddconsole.link.host_spec import parse_host
from ddconsole.link.ssh_host import SshSettings, connect_ssh
from ddconsole.link.ssh_machine import SshMachine
from ddconsole.link.stages import StageError
from ddconsole.preflight.check import Finding, Tier
from ddconsole.preflight.facts import Facts, PreflightPlan, Reach
from ddconsole.preflight.recorded_machine import RecordedMachine
from ddconsole.preflight.register import PROXMOX_CHECKS
from ddconsole.preflight.run_checks import run_checks


async def proxmox_findings(
    below: ProxmoxPart,
    host: HostState | None,
    deployments: tuple[Deployment, ...],
    settings: SshSettings | None = None,
) -> list[Finding]:
    """Ask it; a host that cannot be reached is a finding too.

    Args:
        below: the plan's word on it.
        host: the container's sample.
        deployments: whose GPUs are meant.
        settings: how to connect; the operator's own without it.
    """
    plan = PreflightPlan(run_directory="", deployments=deployments)
    reach = Reach(f"ssh {below.host}")
    try:
        connection = await connect_ssh(parse_host(below.host), settings or SshSettings(), prompts=prompts_of_terminal())
    except StageError as problem:
        reach = Reach(reach.how, problem.text, problem.do)
        facts = Facts(plan, RecordedMachine(), host, reach=reach, container=below.container)
        return await run_checks(facts, Tier.PROXMOX, PROXMOX_CHECKS)
    try:
        facts = Facts(plan, SshMachine(connection), host, reach=reach, container=below.container)
        return await run_checks(facts, Tier.PROXMOX, PROXMOX_CHECKS)
    finally:
        await connection.close()
