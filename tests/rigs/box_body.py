"""The body of an agent that dies again and again in a box: a unit of the box's systemd each time."""

import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from systemd_box import SystemdBox

_PROGRAM = Path(__file__).with_name("box_agent.py")


class BoxBody:
    """A `mortal_agent.Body`, as root in a box, with more in its environment; runners outlive it."""

    def __init__(self, box: SystemdBox, environment: Mapping[str, str]) -> None:
        self._box = box
        self._environment = {"HOME": "/root", **environment}
        self._unit = ""
        self._pid = 0

    async def start(self, *arguments: str) -> None:
        self._unit = f"mortal-agent-{secrets.token_hex(3)}.service"
        given = [f"--setenv={name}={value}" for name, value in self._environment.items()]
        settings = ["--quiet", "--collect", f"--unit={self._unit}", "--property=KillMode=process", *given]
        self._box.run("systemd-run", *settings, "--", sys.executable, str(_PROGRAM), *arguments)
        self._pid = int(self._box.show(self._unit, "MainPID"))

    def alive(self) -> bool:
        # The box's own /proc: no program has to be started in the box to look.
        return self._pid > 0 and self._box.path(f"/proc/{self._pid}").exists()

    async def end(self) -> None:
        if self.alive():
            self._box.run("systemctl", "stop", self._unit, check=False)
