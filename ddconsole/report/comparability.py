"""What may stand in one table: only attempts of one driver, build and model."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.core.attempt_file import AttemptFile
from ddconsole.core.fingerprint import differences as fingerprint_differences

PARTS = ("driver", "build", "model")
"""The parts of a fingerprint that must agree between all figures of a result set."""


@dataclass(frozen=True, slots=True)
class Environment:
    """The parts of one attempt that decide whether it compares, as canonical JSON."""

    parts: str
    simulated: bool

    def difference(self, other: "Environment") -> str:
        """What of this one differs from `other`, for the operator; empty when nothing does."""
        found = fingerprint_differences(json.loads(other.parts), json.loads(self.parts))
        if self.simulated != other.simulated:
            found.append("it is simulated" if self.simulated else "it is measured, the others are simulated")
        return "; ".join(found)


def environment_of(attempt: AttemptFile) -> Environment:
    """Driver, build and model of an attempt, from its fingerprint's parts (at their top or in `context`)."""
    return Environment(_canonical({name: fingerprint_part(attempt, name) for name in PARTS}), attempt.simulated)


def fingerprint_part(attempt: AttemptFile, name: str) -> Any:
    """One part of an attempt's fingerprint; None where it is not told. The build is also the attempt's own field."""
    told = attempt.fingerprint_parts.get(name)
    if told is None and isinstance(context := attempt.fingerprint_parts.get("context"), Mapping):
        told = context.get(name)
    if told is None and name == "build":
        return dict(attempt.build) or None
    return told


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


_MEANT = ("speculati", "branches")
"""Beginnings of argument names in which methods are meant to differ."""
_OF_ONE_LAUNCH = ("port", "served", "pid", "dist_init", "launch", "log", "seed", "host", "time", "path_hash", "uuid")
"""Parts of argument names that differ between any two launches, or that the plan sets for all."""


Deployed = tuple[str, int]
"""Method and tensor-parallel size."""


def differences(effective: Sequence[tuple[Deployed, Mapping[str, Any]]]) -> tuple[Difference, ...]:
    """Where the effective server arguments of deployments differ; a missing one reads `not told`.

    Speculation is left out, that is what methods are, and so is what differs between any two launches.
    """
    flat = [(deployed, _flat(arguments)) for deployed, arguments in effective if arguments]
    names = sorted({name for _, arguments in flat for name in arguments})
    found = []
    for name in names:
        if name.lower().startswith(_MEANT) or any(part in name.lower() for part in _OF_ONE_LAUNCH):
            continue
        by_value: dict[str, dict[Deployed, None]] = {}
        for deployed, arguments in flat:
            by_value.setdefault(arguments.get(name, "not told"), {})[deployed] = None
        if len(by_value) > 1:
            everyone = {deployed for deployed, _ in flat}
            values = tuple((value, _labels(list(who), everyone)) for value, who in by_value.items())
            found.append(Difference(name, values))
    return tuple(found)


def _labels(who: Sequence[Deployed], everyone: set[Deployed]) -> tuple[str, ...]:
    """A method alone where all its sizes are meant, else with its sizes."""
    labels: dict[str, None] = {}
    for method, size in who:
        whole = all((method, other) in who for name, other in everyone if name == method)
        labels[method if whole else f"{method} TP{size}"] = None
    return tuple(labels)


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
