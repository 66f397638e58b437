"""What the agent orders of a runner: `launch.json`, written before the runner starts."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddconsole.core.sweep import Deployment, deployment_from_json, to_json


@dataclass(frozen=True, slots=True)
class LaunchOrder:
    """One launch, with all that the runner needs to know of the plan."""

    run: str
    launch: int
    round: int
    deployment: Deployment
    engine: Mapping[str, Any]
    """kind, command (argv), env, cwd."""
    model: Mapping[str, Any]
    """path, draft."""
    served_name: str
    port: int
    protocol: Mapping[str, Any]
    """Times in seconds."""
    simulated: bool
    baseline: str
    known_flags: tuple[str, ...] | None = None
    fingerprint_context: Mapping[str, Any] = field(default_factory=dict)
    """Driver, model identity, hash of the texts: what decides, beside cell and build, whether results compare."""
    gpu_uuids: tuple[str, ...] = ()


def order_to_bytes(order: LaunchOrder) -> bytes:
    """As in `launch.json`."""
    return json.dumps(to_json(order), ensure_ascii=False, indent=1).encode() + b"\n"


def read_order(path: Path) -> LaunchOrder:
    """The inverse.

    Raises:
        OSError: the file cannot be read.
        ValueError, KeyError: it is not a launch order.
    """
    data = json.loads(path.read_bytes())
    known = {name: data[name] for name in LaunchOrder.__dataclass_fields__ if name in data}
    known["deployment"] = deployment_from_json(data["deployment"])
    known["known_flags"] = tuple(data["known_flags"]) if data.get("known_flags") is not None else None
    known["gpu_uuids"] = tuple(data.get("gpu_uuids", ()))
    return LaunchOrder(**known)
