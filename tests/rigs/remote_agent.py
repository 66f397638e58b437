"""A state directory on a real sshd's machine, and ways to an agent in it."""

import asyncio
import os
import secrets
import signal
from pathlib import Path

import psutil
from sshd import Sshd, until_gone

from ddconsole.link.bundle import BundleExtras
from ddconsole.link.deploy import HostAgent
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.on_host import socket_path
from ddconsole.link.ssh_agent import SshAgentRoute
from ddconsole.link.stages import Stage

FAKE = Path(__file__).parent / "fake_agent.py"


class Remote:
    """A state directory in the account's home, and a route to an agent in it."""

    def __init__(self, sshd: Sshd, cache: Path) -> None:
        self.sshd = sshd
        self.cache = cache
        self.name = f"ddconsole-test-{secrets.token_hex(4)}"
        self.state = f"{sshd.user.pw_dir}/{self.name}"
        self.stages: list[Stage] = []

    def agent(self, **changes: object) -> HostAgent:
        given: dict[str, object] = {
            "state": f"~/{self.name}",
            "module": "fake_agent",
            "extras": BundleExtras({"fake_agent.py": FAKE.read_bytes()}),
            "cache": self.cache,
            **changes,
        }
        return HostAgent(**given)  # type: ignore[arg-type]  # fields of HostAgent by name

    def route(self, agent: HostAgent | None = None, **settings: object) -> SshAgentRoute:
        return SshAgentRoute(
            self.sshd.spec,
            self.sshd.settings(**settings),
            agent or self.agent(),
            on_stage=self.stages.append,
        )

    def client(self, agent: HostAgent | None = None, **settings: object) -> HttpAgentClient:
        route = self.route(agent, **settings)
        return HttpAgentClient(route.open, self.sshd.spec.text, on_close=route.close)

    def agents(self) -> list[int]:
        """Agents that run from this state directory."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            argv = process.info["cmdline"] or [""]
            if argv[0].startswith(f"{self.state}/agent/"):
                found.append(process.pid)
        return found

    async def clear(self) -> None:
        for pid in self.agents():
            os.kill(pid, signal.SIGKILL)
            assert await until_gone(pid)
        socket = Path(socket_path(self.state, self.sshd.user.pw_uid))
        process = await asyncio.create_subprocess_exec("rm", "-rf", self.state, str(socket.parent))
        await process.wait()
