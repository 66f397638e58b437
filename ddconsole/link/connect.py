"""From a host's name to a client of its agent."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.local_agent import LOCAL, AgentCommand, LocalAgentRoute, installed_agent
from ddconsole.link.places import default_state_directory
from ddconsole.link.prompting import Prompts
from ddconsole.link.stages import StageListener, Stages

if TYPE_CHECKING:
    from ddconsole.link.ssh_settings import SshSettings


async def connect(
    host: str,
    *,
    state_directory: str = "",
    runs: Path | None = None,
    pythons: tuple[str, str] = ("", ""),
    environment: Mapping[str, str] | None = None,
    ssh: "SshSettings | None" = None,
    on_stage: StageListener | None = None,
    prompts: Prompts | None = None,
) -> HttpAgentClient:
    """Reach the agent of a host, starting it if need be. The client makes a new link by itself after a loss.

    Args:
        host: `local`, an alias of the ssh configuration, `user@host` or `user@host:port`.
        state_directory: where the agent keeps its things, on its host; empty: by the XDG rules.
        runs: for `local`, the folder of the run directories, when it is not the state directory's own.
        pythons: over SSH, the host's interpreter where the plan names one, and the serving environment's for a host
            that has no other.
        environment: added to the agent's when it is started here, such as a rehearsal's clock.
        ssh: how to connect.
        on_stage: told what is being done, now and at every later new link.
        prompts: who is asked for passwords and about unknown host keys, now and later; None: nobody.

    Raises:
        StageError: says at which stage it ended, and what helps.
        LinkLost: the connection ended meanwhile.
    """
    added = dict(environment or {})
    stages = Stages()
    if on_stage is not None:
        stages.subscribe(on_stage)
    if host == LOCAL:
        state = Path(state_directory).expanduser() if state_directory else default_state_directory()
        local = LocalAgentRoute(state, _local_agent(runs, added), on_stage=stages)
        client = HttpAgentClient(local.open, host, stages=stages)
        client.route = local
    else:
        about_agent = (state_directory, *pythons, added)
        client = _over_ssh(host, about_agent, ssh, stages, prompts or Prompts())
    try:
        await client.hello()
    except BaseException:
        await client.close()
        raise
    return client


def _over_ssh(
    host: str,
    about_agent: tuple[str, str, str, Mapping[str, str]],
    ssh: "SshSettings | None",
    stages: Stages,
    prompts: Prompts,
) -> HttpAgentClient:
    # asyncssh takes a third of a second to import: who works on this machine does without it.
    from ddconsole.link.deploy import HostAgent  # noqa: PLC0415
    from ddconsole.link.host_spec import parse_host  # noqa: PLC0415
    from ddconsole.link.ssh_agent import SshAgentRoute  # noqa: PLC0415

    state, python, serving_python, environment = about_agent
    agent = HostAgent(state=state, python=python, serving_python=serving_python, environment=environment)
    route = SshAgentRoute(parse_host(host), ssh, agent, on_stage=stages, prompts=prompts)
    client = HttpAgentClient(route.open, host, on_close=route.close, stages=stages, prompts=prompts)
    client.route = route
    return client


def _local_agent(runs: Path | None, environment: Mapping[str, str]) -> AgentCommand:
    installed = installed_agent()
    arguments = () if runs is None else ("--runs", str(runs.absolute()))
    return AgentCommand((*installed.argv, *arguments), {**installed.environment, **environment})
