"""What the operator chose for a host's agent, kept: a verb that reads no plan must find the same agent."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ddconsole.commands.places import state_home


@dataclass(frozen=True, slots=True)
class HostChoice:
    """Where and with what a host's agent runs; empty is the default."""

    python: str = ""
    """The interpreter that the plan names."""
    state: str = ""
    """The folder for what it keeps."""
    serving_python: str = ""
    """The serving environment's interpreter, for a host that has no other."""


def host_choice(host: str, named: HostChoice) -> HostChoice:
    """What holds for a host: what is named now, else what was named last. What is named is kept."""
    known = _read().get(host, {})
    before = HostChoice(**{name: str(known.get(name, "")) for name in ("python", "state", "serving_python")})
    now = replace(before, **{name: value for name, value in asdict(named).items() if value})
    if now != before:
        _write({**_read(), host: {name: value for name, value in asdict(now).items() if value}})
    return now


def _path() -> Path:
    return state_home() / "hosts.json"


def _read() -> Mapping[str, Mapping[str, str]]:
    try:
        data = json.loads(_path().read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def _write(choices: Mapping[str, Mapping[str, str]]) -> None:
    path = _path()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.part")
    fresh.write_text(json.dumps(choices, indent=1) + "\n")
    fresh.rename(path)
