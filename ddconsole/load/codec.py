"""The lines between runner and load process: one JSON object a line, named by its only key."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from ddconsole.core.attempt_file import record_from_json
from ddconsole.core.records import CellProgress, RequestRecord
from ddconsole.core.sweep import point_from_json, to_json
from ddconsole.load.task import LoadReport, LoadTask, Prompt, Script, Share, Turn


@dataclass(frozen=True, slots=True)
class Hello:
    """The load process is up."""

    pid: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """End this attempt at once."""

    cell: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Quit:
    """End the attempt that runs, if any, and leave."""


Order = LoadTask | Cancel | Quit
"""What the runner says."""
Message = Hello | CellProgress | RequestRecord | LoadReport
"""What the load process says. A `LoadReport` is the last word on a task."""


_Read = TypeVar("_Read")


class LineError(ValueError):
    """A line that is not one of ours. The text says what is wrong with it."""


def order_line(order: Order) -> bytes:
    """One line for the load process's stdin, its newline included."""
    match order:
        case LoadTask():
            return _line({"task": task_to_json(order)})
        case Cancel():
            return _line({"cancel": {"cell": order.cell, "attempt": order.attempt}})
        case Quit():
            return _line({"quit": True})


def order_of_line(line: bytes) -> Order:
    """The inverse of `order_line`.

    Raises:
        LineError: the line is none.
    """
    return _read(line, _ORDERS)


def message_line(message: Message) -> bytes:
    """One line of the load process's stdout, its newline included."""
    match message:
        case Hello():
            return _line({"hello": {"pid": message.pid}})
        case CellProgress():
            return _line({"progress": to_json(message)})
        case RequestRecord():
            return _line({"record": record_to_json(message)})
        case LoadReport():
            return _line({"report": to_json(message)})


def message_of_line(line: bytes) -> Message:
    """The inverse of `message_line`.

    Raises:
        LineError: the line is none.
    """
    return _read(line, _MESSAGES)


def task_to_json(task: LoadTask) -> dict[str, Any]:
    """A task as JSON."""
    return dict(to_json(task))


def task_from_json(data: Mapping[str, Any]) -> LoadTask:
    """The inverse of `task_to_json`; fields this version does not know are ignored."""
    known = _known(LoadTask, data)
    known["point"] = point_from_json(data["point"])
    known["prompts"] = tuple(prompt_from_json(one) for one in data["prompts"])
    script = data.get("script")
    known["script"] = script_from_json(script) if script is not None else None
    share = data.get("share")
    known["share"] = Share(**_known(Share, share)) if share is not None else None
    return LoadTask(**known)


def prompt_from_json(data: Mapping[str, Any]) -> Prompt:
    """A prompt as `to_json` wrote it."""
    return Prompt(**_known(Prompt, data))


def script_from_json(data: Mapping[str, Any]) -> Script:
    """A script as `to_json` wrote it."""
    known = _known(Script, data)
    known["turns"] = tuple(Turn(**_known(Turn, one)) for one in data["turns"])
    return Script(**known)


def record_to_json(record: RequestRecord) -> dict[str, Any]:
    """As `to_json`, without a call for each of thousands of chunk gaps."""
    data = {name: getattr(record, name) for name in RequestRecord.__dataclass_fields__}
    data["chunk_gaps_us"] = list(record.chunk_gaps_us)
    data["acceptance"] = to_json(record.acceptance)
    return data


def report_from_json(data: Mapping[str, Any]) -> LoadReport:
    """The inverse of `to_json`; fields this version does not know are ignored."""
    known = _known(LoadReport, data)
    known["notes"] = tuple(data.get("notes", ()))
    return LoadReport(**known)


def _line(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, separators=(",", ":")).encode() + b"\n"


def _read(line: bytes, readers: Mapping[str, Callable[[Any], _Read]]) -> _Read:
    try:
        data = json.loads(line)
    except ValueError as problem:
        raise LineError(f"not JSON: {line[:80]!r}") from problem
    if not isinstance(data, dict) or len(data) != 1:
        raise LineError(f"not an object with one key: {line[:80]!r}")
    name, value = next(iter(data.items()))
    reader = readers.get(name)
    if reader is None:
        raise LineError(f"{name!r} is not one of {', '.join(readers)}")
    try:
        return reader(value)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise LineError(f"{name}: {type(problem).__name__} {problem}") from problem


def _known(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]  # `kind` is one of our dataclasses
    return {name: data[name] for name in names if name in data}


_ORDERS: dict[str, Callable[[Any], Order]] = {
    "task": task_from_json,
    "cancel": lambda data: Cancel(cell=data["cell"], attempt=data["attempt"]),
    "quit": lambda _: Quit(),
}
_MESSAGES: dict[str, Callable[[Any], Message]] = {
    "hello": lambda data: Hello(pid=data["pid"]),
    "progress": lambda data: CellProgress(**_known(CellProgress, data)),
    "record": record_from_json,
    "report": report_from_json,
}
