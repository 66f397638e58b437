"""Where an agent lives: in a unit of a systemd manager where one holds it longest, else in its own session."""

import contextlib
import hashlib
import os
import resource
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddconsole.agent.systemd import Manager, ManagerProblem, host_managers
from ddconsole.core.own_process import own_process
from ddconsole.core.survival import HostManagers, choose
from ddconsole.runner.handed_environment import agent_environment, hand_over

START_TIME = 30.0
"""Real seconds until an agent in a unit must listen."""
_LOST_LOCK = 3
_LIMITS = {
    "LimitNOFILE": resource.RLIMIT_NOFILE,
    "LimitMEMLOCK": resource.RLIMIT_MEMLOCK,
    "LimitSTACK": resource.RLIMIT_STACK,
    "LimitCORE": resource.RLIMIT_CORE,
}
"""A manager's defaults are not a login's: pinned memory and thousands of sockets need the login's."""


@dataclass(frozen=True, slots=True)
class Placed:
    """What came of it."""

    status: int | None
    """The exit status of this process, whose work is done; None: the agent is to live in this process."""
    held: str
    """Who holds the agent, and why, for people."""


def state_digest(state: Path) -> str:
    """Stands for a state folder in names of units."""
    return hashlib.sha256(os.fsencode(state.absolute())).hexdigest()[:12]


def agent_properties(log: Path) -> Mapping[str, str]:
    """Properties of a unit that holds an agent.

    Its end ends no runner: only the agent's own process is the unit's to kill, though runners may live in its cgroup.
    """
    return {
        "KillMode": "process",
        "Restart": "on-failure",
        "RestartSec": "1",
        "SuccessExitStatus": str(_LOST_LOCK),
        "RestartPreventExitStatus": "2",
        "WorkingDirectory": "/",
        "StandardOutput": f"append:{log}",
        "StandardError": f"append:{log}",
        **process_properties(),
    }


def process_properties() -> Mapping[str, str]:
    """What a process of ours has from its login, and would lose in a unit."""
    mask = os.umask(0)
    os.umask(mask)
    limits = {name: ":".join(map(_limit, resource.getrlimit(number))) for name, number in _LIMITS.items()}
    # A server that the kernel ends for want of memory must not take the unit's other processes along.
    return {"UMask": f"{mask:04o}", "TasksMax": "infinity", "OOMPolicy": "continue", **limits}


def _limit(value: int) -> str:
    return "infinity" if value == resource.RLIM_INFINITY else str(value)


def place(arguments: Sequence[str], state: Path, path: Path, host: HostManagers | None = None) -> Placed:
    """Start the agent in a unit of the manager that holds it longest, if there is one.

    Args:
        arguments: of `python -m ddconsole.agent`.
        state: the state folder.
        path: of the agent's socket, in a folder that nobody else can enter.
        host: what the host says of its managers; asked for where it is not given.
    """
    choice = choose(host or host_managers())
    if not choice.manager:
        return Placed(None, f"a session of its own ({choice.reason})")
    unit = f"ddconsole-agent-{state_digest(state)}-{secrets.token_hex(3)}.service"
    held = f"systemd {choice.manager} unit {unit} ({choice.reason})"
    manager = Manager(choice.manager)
    argv = own_process("ddconsole.agent", *arguments, "--held", held)
    handed = agent_environment(path)
    try:
        hand_over(handed)
        manager.start(unit, argv, agent_properties(state / "agent.log"), collect=True)
    except (ManagerProblem, OSError) as problem:
        with contextlib.suppress(OSError):
            handed.unlink()
        return Placed(None, f"a session of its own (the {choice.manager} manager refused: {problem})")
    return Placed(_wait(manager, unit, path), held)


def _wait(manager: Manager, unit: str, path: Path) -> int:
    """Until somebody listens, or the unit is over: whoever waits for this process sees the agent's fate by it."""
    end = time.monotonic() + START_TIME
    ask_at = time.monotonic() + 1.0
    while time.monotonic() < end and not _listens(path):
        time.sleep(0.1)
        if time.monotonic() < ask_at:
            continue
        ask_at = time.monotonic() + 1.0
        with contextlib.suppress(ManagerProblem):
            if manager.show(unit, "ActiveState").get("ActiveState") in {"failed", "inactive"}:
                return 0 if _listens(path) else 1
    return 0


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
