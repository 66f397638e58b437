"""Where the console keeps things on this machine. Imports next to nothing: `status --short` uses it."""

import os
from pathlib import Path


def state_home() -> Path:
    """`$XDG_STATE_HOME/ddconsole`, or its default."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "ddconsole"


def runs_folder() -> Path:
    """`logs/` of the checkout that this ddconsole runs from, else `runs/` in the state folder."""
    named = os.environ.get("DDCONSOLE_RUNS")
    if named:
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file() and (checkout / "logs").is_dir():
        return checkout / "logs"
    return state_home() / "runs"
