"""The file of one attempt, `cells/<cell>/<attempt>.json`: what was asked, on what, and every request's record.

It is written whole by the runner (temp file, fsync, rename, fsync of the folder) and never changed. Every figure of
an export can be made again from these files alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.core.sweep import to_json

FORMAT = 1


@dataclass(frozen=True, slots=True)
class AttemptFile:
    """One attempt. Mappings are JSON as the runner wrote them."""

    run: str
    cell: Mapping[str, Any]
    """`ddconsole.core.sweep.Cell` at the time of the attempt."""
    deployment: Mapping[str, Any]
    attempt: int
    launch: int
    round: int
    outcome: str
    """`done`, `failed` or `stopped`."""
    started_at: float
    """Wall time, seconds since 1970."""
    ended_at: float
    simulated: bool
    fingerprint: str
    fingerprint_parts: Mapping[str, Any]
    figures: Mapping[str, Any]
    """`ddconsole.core.figures.Summary`."""
    requests: tuple[RequestRecord, ...]
    build: Mapping[str, Any] = field(default_factory=dict)
    effective: Mapping[str, Any] = field(default_factory=dict)
    counters: Mapping[str, Any] = field(default_factory=dict)
    """`before` and `after`: the engine's counters around the cell."""
    load: Mapping[str, Any] = field(default_factory=dict)
    """What the load process says of itself."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    """What the GPUs did meanwhile: per GPU index, mean and minimum clocks, power, energy, throttling, link."""
    flags: tuple[str, ...] = ()
    cause: Mapping[str, Any] | None = None
    slo: Mapping[str, Any] = field(default_factory=dict)
    """The plan's limits for the goodput, seconds."""
    warm_up: Mapping[str, Any] = field(default_factory=dict)
    """`rates`, one for each pass, and `agreed`: whether the last two were as fast, where that was asked for."""
    format: int = FORMAT


def attempt_to_json(attempt: AttemptFile) -> dict[str, Any]:
    """As written to disk."""
    return dict(to_json(attempt))


def attempt_from_json(data: Mapping[str, Any]) -> AttemptFile:
    """The inverse; fields this version does not know are ignored.

    Raises:
        ValueError: the format is newer than this version, or a field is missing.
    """
    if data.get("format", 0) > FORMAT:
        raise ValueError(f"attempt file of format {data.get('format')}, this ddconsole reads up to {FORMAT}")
    names = AttemptFile.__dataclass_fields__
    values: dict[str, Any] = {name: data[name] for name in names if name in data}
    try:
        values["requests"] = tuple(record_from_json(one) for one in data["requests"])
        values["flags"] = tuple(data.get("flags", ()))
        return AttemptFile(**values)
    except (KeyError, TypeError) as problem:
        raise ValueError(f"attempt file lacks {problem}") from problem


def record_from_json(data: Mapping[str, Any]) -> RequestRecord:
    """One request record; fields this version does not know are ignored."""
    values: dict[str, Any] = {name: data[name] for name in RequestRecord.__dataclass_fields__ if name in data}
    values["chunk_gaps_us"] = tuple(data.get("chunk_gaps_us", ()))
    values["outcome"] = RequestOutcome(data["outcome"])
    source = data.get("token_source")
    values["token_source"] = TokenSource(source) if source else None
    acceptance = data.get("acceptance")
    values["acceptance"] = acceptance_from_json(acceptance) if acceptance else None
    return RequestRecord(**values)


def acceptance_from_json(data: Mapping[str, Any]) -> Acceptance:
    """One acceptance count; fields this version does not know are ignored."""
    values = {name: data[name] for name in Acceptance.__dataclass_fields__ if name in data}
    if values.get("accepted_at") is not None:
        values["accepted_at"] = tuple(values["accepted_at"])
    return Acceptance(**values)
