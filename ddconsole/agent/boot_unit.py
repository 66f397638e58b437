"""A unit that starts the agent at boot: there while something is owed, and not a moment longer."""

import contextlib
import json
import os
from pathlib import Path

from ddconsole.agent.placement import agent_properties, state_digest
from ddconsole.agent.systemd import Manager, ManagerProblem, host_managers
from ddconsole.core.own_process import own_process
from ddconsole.core.plan_secrets import secret_reason
from ddconsole.core.survival import HostManagers, ManagerKind, starts_after_reboot
from ddconsole.runner.durable import write_whole
from ddconsole.runner.handed_environment import boot_environment

_TARGETS = {"system": "multi-user.target", "user": "default.target"}


class BootUnit:
    """Enables and removes the unit of one state folder.

    Args:
        state: the state folder.
        path: of the agent's socket.
        runs: the folder of the run directories.
        host: what the host says of its managers; asked for at the first use where it is not given.
    """

    def __init__(self, state: Path, path: Path, runs: Path, host: HostManagers | None = None) -> None:
        self._state = state.absolute()
        self._path = path
        self._runs = runs.absolute()
        self._host = host
        self.unit = f"ddconsole-agent-{state_digest(state)}-boot.service"
        self.words = ""
        """Whether the agent starts again after a reboot, and why not."""

    def owe(self, owed: bool) -> None:
        """Make it so that the agent starts at boot, or that it does not. Trouble is told in `words`."""
        try:
            if owed:
                self._enable()
            else:
                self._remove()
        except (ManagerProblem, OSError) as problem:
            self.words = f"no: {problem}"

    def _enable(self) -> None:
        host = self._host or host_managers()
        verdict = starts_after_reboot(host)
        self.words = verdict.text
        if not verdict.survives:
            return
        kept = {name: value for name, value in os.environ.items() if secret_reason(name, value) is None}
        write_whole(boot_environment(self._state), json.dumps(kept).encode(), 0o600)
        file = self._file(host)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, self._text(host).encode())
        Manager(host.kind).ask("--quiet", "enable", self.unit)

    def _remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            boot_environment(self._state).unlink()
        self.words = ""
        kind: ManagerKind = "system" if os.geteuid() == 0 else "user"
        file = _folder(kind) / self.unit
        if not file.exists():
            return
        manager = Manager(kind)
        with contextlib.suppress(ManagerProblem):
            manager.ask("--quiet", "disable", self.unit)
        file.unlink(missing_ok=True)
        with contextlib.suppress(ManagerProblem):
            manager.ask("daemon-reload")

    def _file(self, host: HostManagers) -> Path:
        return _folder(host.kind) / self.unit

    def _text(self, host: HostManagers) -> str:
        held = f"systemd {host.kind} unit {self.unit} (started at boot)"
        arguments = ("--state", str(self._state), "--socket", str(self._path), "--runs", str(self._runs))
        argv = own_process("ddconsole.agent", *arguments, "--held", held)
        lines = [
            "# Written by ddconsole while a run is unfinished, and removed by it afterwards.",
            "[Unit]",
            f"Description=ddconsole: goes on with an unfinished run of {_escaped(str(self._state))}",
            "",
            "[Service]",
            "Type=exec",
            f"ExecStart={' '.join(map(quoted, argv))}",
            *(f"{name}={_escaped(value)}" for name, value in agent_properties(self._state / "agent.log").items()),
            "",
            "[Install]",
            f"WantedBy={_TARGETS[host.kind]}",
        ]
        return "\n".join(lines) + "\n"


def _folder(kind: ManagerKind) -> Path:
    return Path("/etc/systemd/system") if kind == "system" else Path.home() / ".config" / "systemd" / "user"


def _escaped(text: str) -> str:
    return text.replace("%", "%%").replace("\n", " ")


def quoted(word: str) -> str:
    """A word of a command line in a unit file: nothing in it is expanded or split."""
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%").replace("$", "$$")
    return f'"{text}"'
