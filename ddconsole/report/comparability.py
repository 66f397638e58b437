"""What may stand in one table: only attempts of one driver, build and model."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.core.attempt_file import AttemptFile

PARTS = ("driver", "build", "model")
"""The parts of a fingerprint that must agree between all figures of a result set."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of one attempt that decide whether it compares, each as canonical JSON; `null` where not told."""

    driver: str
    build: str
    model: str
    simulated: bool

    def difference(self, other: "Environment") -> str:
        """What of this one differs from `other`, for the operator; empty when nothing does."""
        found = [
            f"{name} {_short(getattr(self, name))} instead of {_short(getattr(other, name))}"
            for name in PARTS
            if getattr(self, name) != getattr(other, name)
        ]
        if self.simulated != other.simulated:
            found.append("simulated" if self.simulated else "measured, the others are simulated")
        return "; ".join(found)


def environment_of(attempt: AttemptFile) -> Environment:
    """Driver, build and model of an attempt, from its fingerprint's parts (at their top or in `context`)."""
    return Environment(
        driver=_canonical(fingerprint_part(attempt, "driver")),
        build=_canonical(fingerprint_part(attempt, "build")),
        model=_canonical(fingerprint_part(attempt, "model")),
        simulated=attempt.simulated,
    )


def fingerprint_part(attempt: AttemptFile, name: str) -> Any:
    """One part of an attempt's fingerprint; None where it is not told. The build is also the attempt's own field."""
    parts = attempt.fingerprint_parts
    context = parts.get("context")
    for place in (parts, context if isinstance(context, Mapping) else {}):
        if place.get(name) is not None:
            return place[name]
    return dict(attempt.build) or None if name == "build" else None


def common_environment(environments: Iterable[Environment]) -> Environment | None:
    """The one that most attempts have; among equals the first."""
    counted = Counter(environments)
    return max(counted, key=lambda one: counted[one]) if counted else None


@dataclass(frozen=True, slots=True)
class Difference:
    """A server argument that compared deployments do not share."""

    argument: str
    values: tuple[tuple[str, tuple[str, ...]], ...]
    """(value, labels of the deployments that run with it)."""


_OF_ONE_LAUNCH = ("port", "served", "pid", "dist_init", "launch", "log", "seed", "host", "time", "path_hash", "uuid")
"""Parts of argument names that differ between any two launches, or that the plan sets for all."""


def differences(effective: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[Difference, ...]:
    """Where the effective server arguments of (label, arguments) pairs differ; a missing one reads `not told`."""
    flat = [(label, _flat(arguments)) for label, arguments in effective if arguments]
    names = sorted({name for _, arguments in flat for name in arguments})
    found = []
    for name in names:
        if any(part in name.lower() for part in _OF_ONE_LAUNCH):
            continue
        by_value: dict[str, list[str]] = {}
        for label, arguments in flat:
            labels = by_value.setdefault(arguments.get(name, "not told"), [])
            if label not in labels:
                labels.append(label)
        if len(by_value) > 1:
            found.append(Difference(name, tuple((value, tuple(labels)) for value, labels in by_value.items())))
    return tuple(found)


def _flat(arguments: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            values |= _flat(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value if isinstance(value, str) else _canonical(value)
    return values


def _canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), default=str)


def _short(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
