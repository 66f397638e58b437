"""A host made ready beforehand: the agent's files are there and checked, and here is all that a later start needs."""

from dataclasses import dataclass

from ddconsole.link.deploy import Brought, HostAgent, HostDeployment
from ddconsole.link.host_spec import parse_host
from ddconsole.link.prompting import Prompts
from ddconsole.link.ssh_host import connect_ssh
from ddconsole.link.ssh_settings import SshSettings
from ddconsole.link.stages import StageListener, nobody_listens


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was done."""

    brought: Brought
    state: str
    """The state directory there."""
    removed: tuple[str, ...]
    """Older bundles from which nothing ran."""


async def prepare_host(
    host: str,
    agent: HostAgent,
    settings: SshSettings | None = None,
    prompts: Prompts | None = None,
    on_stage: StageListener = nobody_listens,
) -> Prepared:
    """Find Python, make the bundle, bring it, check it, and clear older ones; nothing is started.

    Args:
        host: an alias of the ssh configuration, `user@host` or `user@host:port`.
        agent: what to bring.
        settings: how to connect.
        prompts: who is asked for passwords and about unknown host keys.
        on_stage: told what is being done.

    Raises:
        StageError: says at which stage it ended, and what helps.
        LinkLost: the connection ended.
    """
    connection = await connect_ssh(parse_host(host), settings or SshSettings(), on_stage, prompts)
    try:
        deployment = HostDeployment(connection, agent, on_stage)
        await deployment.find()
        brought = await deployment.bring()
        await deployment.verify(brought)
        removed = await deployment.clear(brought.bundle)
        return Prepared(brought, deployment.state, tuple(removed))
    finally:
        await connection.close()
