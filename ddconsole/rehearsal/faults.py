"""Faults on demand: rules in `faults.json` of the state folder, counted there, so that they survive restarts.

    {"rules": [{"match": {"method": "ddtree-b32", "tp": 1}, "fault": "crash-streaming", "at_chunk": 20, "times": 1}]}

`match` names arguments by their long flag or SGLang's name for them (`speculative_ddtree_budget`, `tp` for
`tp_size`); `method` is the method's label (`ar`, `dflash`, `ddtree-b15`), `served_name` a part of the served model
name, `start` the how manieth start among those that everything else matches. What is not named matches everything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from ddconsole.rehearsal.arguments import ServerArguments
from ddconsole.rehearsal.state import locked, read_json, write_whole

RULES_FILE = "faults.json"
COUNTS_FILE = "faults-counted.json"


class FaultName(StrEnum):
    """What can go wrong."""

    CRASH_LOADING = "crash-loading"
    HANG_LOADING = "hang-loading"
    OOM = "oom"
    DOES_NOT_FIT = "does-not-fit"
    DRIVER_FAULT = "driver-fault"
    DRAFT_NOT_USED = "draft-not-used"
    PORT_TAKEN = "port-taken"
    DRAIN_FOR_EVER = "drain-for-ever"
    CRASH_STREAMING = "crash-streaming"
    HANG_STREAMING = "hang-streaming"
    DETOKENIZER_DEAD = "detokenizer-dead"
    ERROR_IN_STREAM = "error-in-stream"
    NO_TOKENS = "no-tokens"


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One rule."""

    fault: FaultName
    match: Mapping[str, Any] = field(default_factory=dict)
    times: int | None = 1
    """Starts of a server that it hits; None for every one."""
    at_request: int = 1
    """For faults while streaming: the request, counted from 1 over the server's life, without health checks."""
    requests: int = 1
    """For faults of single requests: how many in a row."""
    at_chunk: int = 5
    """For faults while streaming: chunks with text that come before it, at least 1."""
    text: str | None = None
    """For `crash-loading`: the exception's line instead of the built-in one."""


class FaultFileError(ValueError):
    """`faults.json` cannot be read as rules."""


def write_faults(folder: Path, rules: Sequence[FaultRule]) -> None:
    """Put rules into the state folder and forget the counts of earlier ones."""
    write_whole(folder / RULES_FILE, {"rules": [asdict(rule) for rule in rules]})
    (folder / COUNTS_FILE).unlink(missing_ok=True)


def read_faults(folder: Path) -> tuple[FaultRule, ...]:
    """The rules of the state folder; none where there is no file.

    Raises:
        FaultFileError: a rule is wrong; the text says which and why.
    """
    path = folder / RULES_FILE
    if not path.exists():
        return ()
    value = read_json(path)
    if not isinstance(value, dict) or not isinstance(value.get("rules"), list):
        raise FaultFileError(f'{path}: not a JSON object with a list "rules"')
    return rules_from_json(value["rules"], str(path))


def rules_from_json(values: Sequence[Any], place: str) -> tuple[FaultRule, ...]:
    """Rules out of a JSON list.

    Raises:
        FaultFileError: a rule is wrong; the text says which, at `place`, and why.
    """
    return tuple(_rule(one, f"{place}: rule {number}") for number, one in enumerate(values, 1))


def claim_fault(folder: Path, arguments: ServerArguments) -> FaultRule | None:
    """The fault of this start of a server, counted as used.

    Raises:
        FaultFileError: the rules cannot be read.
    """
    rules = read_faults(folder)
    if not rules:
        return None
    with locked(folder, "faults"):
        counts: dict[str, dict[str, int]] = read_json(folder / COUNTS_FILE) or {}
        chosen = None
        for number, rule in enumerate(rules):
            count = counts.setdefault(str(number), {"matched": 0, "fired": 0})
            if not _matches(rule.match, arguments):
                continue
            count["matched"] += 1
            started = rule.match.get("start")
            if started is not None and int(started) != count["matched"]:
                continue
            if chosen is None and (rule.times is None or count["fired"] < rule.times):
                count["fired"] += 1
                chosen = rule
        write_whole(folder / COUNTS_FILE, counts)
    return chosen


def _rule(value: Any, place: str) -> FaultRule:
    if not isinstance(value, dict):
        raise FaultFileError(f"{place}: not an object")
    unknown = sorted(set(value) - set(FaultRule.__dataclass_fields__))
    if unknown:
        raise FaultFileError(f"{place}: unknown field {unknown[0]!r}; there are {', '.join(_fields())}")
    try:
        name = FaultName(str(value.get("fault")))
    except ValueError:
        raise FaultFileError(f"{place}: fault {value.get('fault')!r} is none of {', '.join(FaultName)}") from None
    return FaultRule(**{**value, "fault": name})


def _fields() -> list[str]:
    return sorted(FaultRule.__dataclass_fields__)


def _matches(match: Mapping[str, Any], arguments: ServerArguments) -> bool:
    return all(_matches_one(key.lstrip("-").replace("-", "_"), wanted, arguments) for key, wanted in match.items())


def _matches_one(key: str, wanted: Any, arguments: ServerArguments) -> bool:
    if key == "start":
        return True
    if key in {"served_name", "served_model_name"}:
        return str(wanted) in arguments.served_name
    if key == "method":
        return bool(wanted == arguments.method.label)
    name = {"tp": "tp_size", "tensor_parallel": "tp_size", "budget": "speculative_ddtree_budget"}.get(key, key)
    return bool(getattr(arguments.options, name, None) == wanted)
