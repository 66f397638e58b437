"""A unit that a sweep displaces: a small server in a box, what it says about itself, and a sweep that needs its GPU."""

import json
import socket
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sweeps import cells, deployment, submission
from systemd_box import SystemdBox

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Placement
from ddconsole.core.wire import Submission

_SERVER = Path(__file__).with_name("unit_server.py")
_INSTALLED = "/usr/local/bin/unit_server.py"
PYTHON = "/usr/bin/python3"


def install_server(box: SystemdBox) -> None:
    """Put the server where every account of the box may run it."""
    box.run("install", "-m", "755", str(_SERVER), _INSTALLED)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def command(port: int, *arguments: str) -> str:
    return " ".join((PYTHON, _INSTALLED, str(port), *arguments))


def up(box: SystemdBox, unit: str, text: str, port: int) -> None:
    """Install a unit and start it, until it serves."""
    box.write(f"/etc/systemd/system/{unit}", text)
    box.run("systemctl", "start", unit)
    wait_until_served(port)


def up_transient(box: SystemdBox, unit: str, settings: Sequence[str], port: int) -> None:
    """Start a unit that vanishes when it stops, until it serves."""
    box.run("systemd-run", "--quiet", f"--unit={unit}", *settings, "--", *command(port).split())
    wait_until_served(port)


def wait_until_served(port: int) -> None:
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(port)


def told_by(port: int) -> dict[str, Any]:
    """What the unit's server says about itself, without what changes from start to start."""
    body = json.dumps({"model": "displaced", "prompt": "", "max_tokens": 1}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", body, 10) as answer:
        told = json.loads(answer.read())
    passing = ("INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "LISTEN_PID")
    env = {name: value for name, value in told["env"].items() if name not in passing}
    return {"argv": told["argv"], "env": env}


def order(unit: str, run: str, *, number: int = 1, then: int = 0) -> Submission:
    """Cells that need GPU 0, where the unit is, and then some that do not."""
    plan = [replace(deployment("d01"), placement=Placement(gpus=(0,)))]
    plan += [deployment("d02", "other")] if then else []
    wanted = cells("d01", number) + cells("d02", then, number + 1)
    return replace(submission(plan, wanted, run=run), displace=({"unit": unit, "needs_gpu": 0},))


def over(state: RunState) -> bool:
    return state.phase is st.RunPhase.ENDED and state.live_launch() is None


def measures(state: RunState) -> bool:
    return state.running_cell() is not None
