"""The agent's answers out of JSON. Fields that this version does not know are ignored."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import Controller
from ddconsole.core.visible_text import visible
from ddconsole.core.wire import CommandAnswer, DecodeFigures, Hello, LogPiece, RunSummary, Watchers
from ddconsole.link.client import AgentError, LiveItem, NotInControl

Value = TypeVar("Value")

_LONGEST_QUOTE = 400


def hello_from_json(data: Any) -> Hello:
    """Who answers."""
    return value_from_json(Hello, data)


def run_summary_from_json(data: Any) -> RunSummary:
    """One run of the host."""
    return value_from_json(RunSummary, data)


def command_answer_from_json(data: Any) -> CommandAnswer:
    """What became of a command."""
    answer = value_from_json(CommandAnswer, data)
    controller = data.get("controller")
    return answer if controller is None else replace(answer, controller=value_from_json(Controller, controller))


def live_item_from_json(data: Any) -> LiveItem | None:
    """One line of the live stream, `{"progress": ...}` and the like; None for what this version does not know."""
    if not isinstance(data, Mapping):
        return None
    for name, value in data.items():
        if name == "host":
            return _host_state(value)
        if name in _LIVE_TYPES:
            return value_from_json(_LIVE_TYPES[name], value)
    return None


_LIVE_TYPES: dict[str, type[CellProgress | DecodeFigures | LogPiece | Watchers]] = {
    "progress": CellProgress,
    "decode": DecodeFigures,
    "log": LogPiece,
    "watchers": Watchers,
}


def _host_state(data: Any) -> HostState:
    try:
        return host_state_from_json(data)
    except (ValueError, AttributeError) as problem:
        raise _strange(f"host state: {problem}") from problem


def value_from_json(kind: type[Value], data: Any) -> Value:
    """One of our dataclasses.

    Raises:
        AgentError: a field is missing, or it is no JSON object.
    """
    if not isinstance(data, Mapping):
        raise _strange(f"{kind.__name__} is no object: {visible(json.dumps(data), _LONGEST_QUOTE)}")
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]  # `kind` is one of our dataclasses
    values = {name: tuple(one) if isinstance(one := data[name], list) else one for name in names if name in data}
    try:
        return kind(**values)
    except TypeError as problem:
        raise _strange(f"{kind.__name__}: {problem}") from problem


def parse(body: bytes) -> Any:
    """JSON of an answer.

    Raises:
        AgentError: it is none.
    """
    try:
        return json.loads(body)
    except ValueError as problem:
        raise _strange(f"no JSON: {_quote(body)}") from problem


def refusal(status: int, body: bytes) -> AgentError:
    """The error of an answer that is not 200: the agent's own words where it gave any."""
    try:
        data = json.loads(body)
        if data.get("controller"):
            return NotInControl(command_answer_from_json(data), visible(str(data.get("do", ""))))
        return AgentError(visible(str(data["error"])), visible(str(data.get("do", ""))))
    except (ValueError, KeyError, TypeError, AttributeError):
        return AgentError(f"the agent answered with status {status}: {_quote(body)}", "look into the agent's log")


def _strange(text: str) -> AgentError:
    return AgentError(f"the agent's answer is not understood: {text}", "compare the versions of console and agent")


def _quote(body: bytes) -> str:
    return visible(body.decode(errors="replace"), _LONGEST_QUOTE)
