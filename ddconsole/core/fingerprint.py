"""What decides whether two results compare, and whether an old one may be used when a sweep goes on."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from ddconsole.core.sweep import Deployment, WorkloadPoint, to_json

_WATCHING_ONLY = frozenset({"request_timeout", "stall_timeout"})
"""Fields of a workload point that end a request but do not change a figure."""
_OPEN_LOOP = frozenset({"rate", "arrivals", "arrival_seed"})
"""Absent from the other kinds of load, so that their results compare with those of versions without an open loop."""


def fingerprint_parts(
    *, deployment: Deployment, point: WorkloadPoint, build: Mapping[str, Any], context: Mapping[str, Any]
) -> dict[str, Any]:
    """The parts, by name.

    Args:
        deployment: with placement, environment and size; its id, variables and context length do not count.
        point: what was asked of the server.
        build: what the engine itself told once it ran. What it was bound to is left out: that is the placement's.
        context: driver, model identity, hash of prompts and scripts, and as `build` what was asked before the launch:
            version, commit, a hash of uncommitted changes, packages.
    """
    server = to_json(deployment)
    for name in ("id", "variables", "context_tokens"):
        server.pop(name, None)
    asked = {
        name: value
        for name, value in to_json(point).items()
        if name not in _WATCHING_ONLY and not (name in _OPEN_LOOP and value is None)
    }
    return {
        "deployment": server,
        "workload": asked,
        **{name: to_json(value) for name, value in context.items()},
        "build": {
            **{name: value for name, value in build.items() if name != "binding"},
            **to_json(context.get("build", {})),
        },
    }


def fingerprint(parts: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of the parts."""
    canonical = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def differences(one: Mapping[str, Any], other: Mapping[str, Any], path: str = "") -> list[str]:
    """What differs between two sets of parts, as `deployment.args.threads: 1 → 2`, in a stable order."""
    found: list[str] = []
    for name in sorted({*one, *other}):
        where = f"{path}.{name}" if path else name
        left, right = one.get(name), other.get(name)
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            found += differences(left, right, where)
        elif left != right:
            found.append(f"{where}: {_short(left)} → {_short(right)}")
    return found


def _short(value: Any) -> str:
    return "–" if value is None else json.dumps(value, ensure_ascii=False)[:80]
