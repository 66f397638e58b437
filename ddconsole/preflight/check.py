"""What a check is and what it finds. Five outcomes; unknown is never green."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ddconsole.preflight.facts import Facts


class Outcome(StrEnum):
    """What a check says."""

    PASS = "pass"  # noqa: S105  # an outcome, not a password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"
    """It does not apply, or what it needs has failed."""
    UNKNOWN = "unknown"
    """It could not be measured."""


class Tier(StrEnum):
    """When a check runs. `standard` contains `gate`, and `load` contains both."""

    GATE = "gate"
    """Before every launch: seconds."""
    STANDARD = "standard"
    """Before a sweep."""
    LOAD = "load"
    """Asked for by name: it puts work on GPUs that nobody uses."""
    PROXMOX = "proxmox"
    """Asked of the Proxmox host below the container, by the console, where the plan names one."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the function of a check returns."""

    outcome: Outcome
    observed: str
    expected: str = ""
    remedy: str = ""
    evidence: tuple[str, ...] = ()
    """Lines of source and value, as they were read."""
    about: str = ""
    """What it is about, where that is one part: `GPU 3`, a path, a deployment."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check: one file, and one line in `register.py`."""

    id: str
    proves: str
    """What a pass means, as a sentence without its end."""
    run: Callable[[Facts], Awaitable[Verdict]]
    needs: tuple[str, ...] = ("host.reachable",)
    """Checks without which this one says nothing: where one has failed, this one is skipped."""
    blocks: tuple[str, ...] = ("launch",)
    """What its failure holds back: `launch`, `sweep`, `comparison`."""
    tier: Tier = Tier.GATE
    deadline: float = 10.0
    """Seconds, after which the outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found, for people and for `preflight.json`."""

    id: str
    proves: str
    outcome: Outcome
    observed: str
    expected: str = ""
    evidence: tuple[str, ...] = ()
    remedy: str = ""
    blocks: tuple[str, ...] = ()
    about: str = ""
    blocked_by: str = ""
    """The failed check because of which this one was skipped."""
    at: float = 0.0
    """Wall time, seconds since 1970."""
    seconds: float = 0.0
    """How long it took."""
    simulated: bool = field(default=False)
    accepted: str = ""
    """Why the operator accepted it, and who; it holds nothing back then."""


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """A finding as JSON."""
    values = {name: getattr(finding, name) for name in Finding.__dataclass_fields__}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def finding_from_json(data: Mapping[str, Any]) -> Finding:
    """The inverse of `finding_to_json`; unknown fields are ignored, and an unknown outcome is `unknown`.

    Raises:
        ValueError: this is no finding.
    """
    try:
        values = {name: data[name] for name in Finding.__dataclass_fields__ if name in data}
        outcome = data["outcome"]
        values["outcome"] = Outcome(outcome) if outcome in list(Outcome) else Outcome.UNKNOWN
        values["evidence"] = tuple(data.get("evidence", ()))
        values["blocks"] = tuple(data.get("blocks", ()))
        return Finding(**values)
    except (KeyError, TypeError) as problem:
        raise ValueError(f"not a finding: {type(problem).__name__} {problem}") from problem


def holding_back(findings: Sequence[Finding], what: str) -> list[Finding]:
    """The failures that hold `what` back: `launch`, `sweep` or `comparison`."""
    return [one for one in findings if one.outcome is Outcome.FAIL and what in one.blocks and not one.accepted]


# --- short forms for the checks --------------------------------------------------------------------------------


def passed(observed: str, expected: str = "", evidence: Sequence[str] = ()) -> Verdict:
    """It is as it should be."""
    return Verdict(Outcome.PASS, observed, expected, evidence=tuple(evidence))


def warned(observed: str, expected: str, remedy: str, evidence: Sequence[str] = (), about: str = "") -> Verdict:
    """It can go on, but the operator should know."""
    return Verdict(Outcome.WARN, observed, expected, remedy, tuple(evidence), about)


def failed(observed: str, expected: str, remedy: str, evidence: Sequence[str] = (), about: str = "") -> Verdict:
    """It is not as it should be; `remedy` says what to do."""
    return Verdict(Outcome.FAIL, observed, expected, remedy, tuple(evidence), about)


def skipped(why: str) -> Verdict:
    """It does not apply."""
    return Verdict(Outcome.SKIP, why)


def unknown(why: str, remedy: str = "", evidence: Sequence[str] = ()) -> Verdict:
    """It could not be measured."""
    return Verdict(Outcome.UNKNOWN, why, remedy=remedy, evidence=tuple(evidence))
