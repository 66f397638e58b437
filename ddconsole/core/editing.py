"""Edits of a cell, field by field: checked while they are typed, and once more where they take effect.

What the client does changes the cell's workload point. What the server is started with (`flag:--name`) moves the cell
to another deployment, and so does a point for which its server is too small.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ddconsole.core.plan_checks import OWNED_FLAGS, flag_faults
from ddconsole.core.plan_problem import did_you_mean
from ddconsole.core.plan_values import duration_text, parse_duration
from ddconsole.core.sweep import Cell, Deployment, EngineArgument, WorkloadPoint

FLAG = "flag:"
"""Prefix of changes that concern the server: `flag:--attention-backend`."""

PROMPT_ALLOWANCE = 1024
"""Tokens of a prompt, at most, where a longer output is asked for and the prompts are not at hand."""

ALL_KINDS = frozenset({"single", "closed-loop", "open-loop", "conversation"})


class EditProblem(ValueError):
    """An edit that is not possible. `field` says which, `text` why, `do` what helps."""

    def __init__(self, field: str, text: str, do: str = "") -> None:
        super().__init__(f"{field}: {text} ({do})" if do else f"{field}: {text}")
        self.field = field
        self.text = text
        self.do = do


@dataclass(frozen=True, slots=True)
class EditableField:
    """One field of a workload point that can be edited in place."""

    name: str
    label: str
    help: str
    parse: Callable[[str], Any]
    """Text to value; `ValueError` with a text for the operator."""
    show: Callable[[WorkloadPoint], str]
    """The present value as it would be typed."""
    kinds: frozenset[str] = ALL_KINDS
    sampling: bool = False
    """It belongs to the point's sampling."""


# --- parsers ---------------------------------------------------------------------------------------------------


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,10}", text) or not low <= int(text) <= high:
            raise ValueError(f"must be a whole number {low}…{high}")
        return int(text)

    return parse


def _decimal(low: float, high: float, *, above: bool = False) -> Callable[[str], float]:
    def parse(text: str) -> float:
        good = re.fullmatch(r"[+-]?([0-9]{1,10}(\.[0-9]{0,10})?|\.[0-9]{1,10})", text) is not None
        if not good or not low <= float(text) <= high or (above and float(text) == low):
            raise ValueError(f"must be a number {f'above {low:g}, at most {high:g}' if above else f'{low:g}…{high:g}'}")
        return float(text)

    return parse


def _or_none(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    def either(text: str) -> Any:
        if text.lower() in {"none", ""}:
            return None
        try:
            return parse(text)
        except ValueError as problem:
            raise ValueError(f"{problem}, or none") from problem

    return either


def _yes_no(text: str) -> bool:
    if text not in {"true", "false"}:
        raise ValueError("must be true or false")
    return text == "true"


def _seconds(text: str) -> float:
    seconds = float(text) if re.fullmatch(r"[0-9]{1,8}(\.[0-9]{1,3})?", text) else parse_duration(text)
    if seconds <= 0:
        raise ValueError("must be longer than nothing")
    return seconds


def _turns(text: str) -> str:
    if text not in {"replay", "live"}:
        raise ValueError("must be replay or live")
    return text


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


# --- the fields ------------------------------------------------------------------------------------------------


def _field(name: str, label: str, help_text: str, parse: Callable[[str], Any], *kinds: str) -> EditableField:
    return EditableField(
        name, label, help_text, parse, lambda point: _shown(getattr(point, name)), frozenset(kinds) or ALL_KINDS
    )


def _time_field(name: str, label: str, help_text: str) -> EditableField:
    return EditableField(name, label, help_text, _seconds, lambda point: duration_text(getattr(point, name)))


def _sampling_field(name: str, label: str, help_text: str, parse: Callable[[str], Any]) -> EditableField:
    return EditableField(
        name, label, help_text, parse, lambda point: _shown(getattr(point.sampling, name)), sampling=True
    )


EDITABLE_FIELDS: Mapping[str, EditableField] = {
    one.name: one
    for one in (
        _field(
            "concurrency",
            "concurrency",
            "requests in flight, 1…65536; more than the server is sized for costs a launch",
            _whole(1, 65_536),
            "closed-loop",
            "conversation",
        ),
        _field("max_tokens", "output tokens", "tokens asked for in each request", _whole(1, 1_048_576)),
        _field("repetitions", "repetitions", "how often the whole is repeated in one attempt", _whole(1, 10_000)),
        _field("requests", "requests", "requests of one repetition", _whole(1, 1_000_000), "closed-loop", "open-loop"),
        _field("rate", "rate", "requests a second that are sent", _decimal(0, 100_000, above=True), "open-loop"),
        _field(
            "turns", "turns", "replay: scripted answers in the context; live: the model's own", _turns, "conversation"
        ),
        _time_field("request_timeout", "request timeout", "until a request counts as failed, as 90s or 10m"),
        _time_field("stall_timeout", "stall timeout", "without any token until the cell fails, as 90s or 3m"),
        _sampling_field("temperature", "temperature", "0 is greedy", _decimal(0, 100)),
        _sampling_field("seed", "seed", "of the sampler, or none", _or_none(_whole(0, 2**31 - 1))),
        _sampling_field("top_p", "top p", "above 0 to 1, or none", _or_none(_decimal(0, 1, above=True))),
        _sampling_field("top_k", "top k", "1 or more, or none", _or_none(_whole(1, 1_048_576))),
        _sampling_field(
            "ignore_eos", "ignore EOS", "true: the length is fixed; false: the model may end early", _yes_no
        ),
        _sampling_field("thinking", "thinking", "true, false, or none for the template's own", _or_none(_yes_no)),
    )
}
"""What of a workload point can be edited, in the order of the editor."""


def editable_fields(point: WorkloadPoint) -> tuple[EditableField, ...]:
    """The fields that mean something for this kind of workload."""
    return tuple(one for one in EDITABLE_FIELDS.values() if point.kind in one.kinds)


def parse_field(point: WorkloadPoint, name: str, text: str) -> Any:
    """The value that a text stands for.

    Raises:
        EditProblem: there is no such field for this kind of workload, or no such value.
    """
    there_is = {one.name: one for one in editable_fields(point)}
    if name not in there_is:
        if name in EDITABLE_FIELDS:
            raise EditProblem(name, f"means nothing for a {point.kind} workload")
        raise EditProblem(name, "is no field that can be edited", did_you_mean(name, there_is))
    try:
        return there_is[name].parse(text.strip())
    except ValueError as problem:
        raise EditProblem(name, f'{problem}, got "{text}"') from problem


# --- edits -----------------------------------------------------------------------------------------------------


def edited_point(point: WorkloadPoint, changes: Mapping[str, str]) -> WorkloadPoint:
    """The point with some fields changed.

    Args:
        point: as it is.
        changes: field to text, as it was typed.

    Raises:
        EditProblem: a field or value is not possible.
    """
    values = {name: parse_field(point, name, text) for name, text in changes.items()}
    sampling = {name: value for name, value in values.items() if EDITABLE_FIELDS[name].sampling}
    asked = {name: value for name, value in values.items() if not EDITABLE_FIELDS[name].sampling}
    edited = replace(point, **asked, sampling=replace(point.sampling, **sampling))
    if edited.kind == "closed-loop" and edited.requests < edited.concurrency:
        field = "concurrency" if "concurrency" in changes else "requests"
        text = f"{edited.requests} requests can never be {edited.concurrency} in flight"
        raise EditProblem(field, text, f"set requests to {edited.concurrency} at least")
    return edited


def edited_deployment(
    deployment: Deployment, changes: Mapping[str, EngineArgument | None], owned: frozenset[str] = OWNED_FLAGS
) -> Deployment:
    """The deployment with some of the engine's flags changed. Its id is the caller's to give.

    Args:
        deployment: as it is.
        changes: flag (with or without dashes) to value; None takes the flag away.
        owned: flags that ddconsole sets itself.

    Raises:
        EditProblem: a flag is owned by ddconsole, is none, holds a secret, or is not there to be taken away.
    """
    args = dict(deployment.args)
    for name, value in changes.items():
        flag = name.lstrip("-")
        if value is None:
            if flag not in args:
                raise EditProblem(f"--{flag}", "is not set", did_you_mean(flag, args))
            del args[flag]
            continue
        for fault in flag_faults((flag,), flag, value, owned):
            raise EditProblem(f"--{flag}", fault.text, fault.do)
        args[flag] = value
    return replace(deployment, args=args)


def flag_value(text: str) -> EngineArgument:
    """What a typed flag stands for: `true` a bare flag, `false` left out, a number, `[1, 2]` several values, or text.

    Raises:
        ValueError: nothing was typed.
    """
    bare = text.strip()
    if not bare:
        raise ValueError("is empty: true is a bare flag, false leaves it out")
    if bare in {"true", "false"}:
        return bare == "true"
    if re.fullmatch(r"[+-]?(0|[1-9][0-9]{0,17})", bare):
        return int(bare)
    if re.fullmatch(r"[+-]?[0-9]{1,18}\.[0-9]{1,18}", bare):
        return float(bare)
    if bare.startswith("[") and bare.endswith("]"):
        return _several(bare)
    return bare


def _several(text: str) -> EngineArgument:
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if isinstance(values, list) and values and all(isinstance(one, bool | int | float | str) for one in values):
        return tuple(values)
    return text


SIZED_CONTEXT = frozenset({"llamacpp"})
"""Engines whose servers are started with the context of their cells; others take what the model has."""


def edit_cell(
    cell: Cell,
    deployment: Deployment,
    changes: Mapping[str, Any],
    owned: frozenset[str] = OWNED_FLAGS,
    engine: str = "",
) -> tuple[WorkloadPoint, Deployment]:
    """What a cell asks for, and of which server, after an edit.

    Args:
        cell: as it is.
        deployment: its deployment.
        changes: field to text; `flag:--name` to text or value, None takes the flag away.
        owned: flags that ddconsole sets itself.
        engine: its kind; an unknown one is taken to be started with a context.

    Returns:
        The point, and the deployment: the same one where nothing of the server changes, else one that still has the
        old id.

    Raises:
        EditProblem: something of it is not possible.
    """
    flags = {name.removeprefix(FLAG): value for name, value in changes.items() if name.startswith(FLAG)}
    fields = {name: value for name, value in changes.items() if not name.startswith(FLAG)}
    point = edited_point(cell.point, {name: _as_typed(value) for name, value in fields.items()})
    values = {name: _flag_of_change(name, value) for name, value in flags.items()}
    changed = edited_deployment(deployment, values, owned) if values else deployment
    enough = _large_enough(changed, cell.point, point)
    if engine and engine not in SIZED_CONTEXT and enough.size == changed.size:
        return point, changed
    return point, enough


def _as_typed(value: Any) -> str:
    return value if isinstance(value, str) else _shown(value)


def _flag_of_change(name: str, value: Any) -> EngineArgument | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return tuple(value)
    try:
        return flag_value(str(value))
    except ValueError as problem:
        raise EditProblem(f"--{name.lstrip('-')}", str(problem)) from problem


def _large_enough(deployment: Deployment, before: WorkloadPoint, after: WorkloadPoint) -> Deployment:
    """The deployment, sized up where the edited point needs more requests or a longer context than it has."""
    size = max(deployment.size, after.concurrency)
    context = deployment.context_tokens
    longer = _output(after) - _output(before)
    if context and longer > 0:
        # The cell fitted before. Without a script its context is a prompt and one output, and often still fits.
        needed = context + longer
        if after.kind != "conversation":
            needed = min(needed, PROMPT_ALLOWANCE + _output(after))
        context = max(context, needed)
    if (size, context) == (deployment.size, deployment.context_tokens):
        return deployment
    return replace(deployment, size=size, context_tokens=context)


def _output(point: WorkloadPoint) -> int:
    """Output tokens that stand in one context at the end."""
    return point.max_tokens * (point.requests if point.turns == "live" else 1)
