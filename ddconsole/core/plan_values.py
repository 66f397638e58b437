"""The kinds of values in a plan, each with the error that its field shows."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

from ddconsole.core.sweep import EngineArgument, Scalar


class PlanPart(BaseModel):
    """A mapping of a plan: no unknown keys, no conversion of types, no change afterwards."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", arbitrary_types_allowed=True)


def refusal(code: str, text: str, do: str = "") -> PydanticCustomError:
    """An error for pydantic that keeps a problem's code, text and remedy apart."""
    return PydanticCustomError("plan_value", "{text}", {"code": code, "text": text, "do": do})


def shown(value: Any) -> str:
    """A value as an error names it: `text "8"`, `boolean false`, `a list`."""
    match value:
        case bool():
            return f"boolean {str(value).lower()}"
        case None:
            return "nothing"
        case int() | float():
            return f"number {value}"
        case str():
            return f'text "{value}"'
        case Mapping():
            return "a mapping"
        case _:
            return "a list"


# --- numbers ---------------------------------------------------------------------------------------------------


def whole(low: int, high: int) -> BeforeValidator:
    """A whole number; a boolean or text is none."""

    def check(value: Any) -> Any:
        problem = whole_number(value, low, high)
        if problem is not None:
            raise refusal("E210", problem)
        return value

    return BeforeValidator(check)


def _number(low: float, high: float, *, above: bool = False) -> BeforeValidator:
    def check(value: Any) -> Any:
        number = not isinstance(value, bool) and isinstance(value, int | float)
        if not number or not low <= value <= high or (above and value == low):
            bounds = f"above {low:g}, at most {high:g}" if above else f"{low:g}…{high:g}"
            raise refusal("E210", f"must be a number {bounds}, got {shown(value)}")
        return value

    return BeforeValidator(check)


Concurrency = Annotated[int, whole(1, 65_536)]
Tokens = Annotated[int, whole(1, 1_048_576)]
Repetitions = Annotated[int, whole(1, 10_000)]
Requests = Annotated[int, whole(1, 1_000_000)]
RequestRate = Annotated[float, _number(0, 100_000, above=True)]
"""Requests a second."""
ParallelSize = Annotated[int, whole(1, 1024)]
Launches = Annotated[int, whole(1, 100)]
Retries = Annotated[int, whole(0, 10)]
GpuIndex = Annotated[int, whole(0, 1023)]
Port = Annotated[int, whole(1024, 65_535)]
Seed = Annotated[int, whole(0, 2**31 - 1)]
TopK = Annotated[int, whole(1, 1_048_576)]
Temperature = Annotated[float, _number(0, 100)]
Fraction = Annotated[float, _number(0, 1)]
FractionAboveZero = Annotated[float, _number(0, 1, above=True)]
Gibibytes = Annotated[float, _number(0, 1_000_000)]
Count = Annotated[int, whole(0, 1_048_576)]
CountAboveZero = Annotated[int, whole(1, 1_048_576)]


def whole_number(value: Any, low: int, high: int) -> str | None:
    """What is wrong with `value` as a whole number from `low` to `high`, or None."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        return f"must be a whole number {low}…{high}, got {shown(value)}"
    return None


# --- booleans and lists ----------------------------------------------------------------------------------------


def _flag(value: Any) -> Any:
    if not isinstance(value, bool):
        raise refusal("E113", f"expected true or false, got {shown(value)}")
    return value


Flag = Annotated[bool, BeforeValidator(_flag)]


def _one_or_many(value: Any) -> Any:
    """A scalar stands for a list of one; a list has no value twice."""
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not values:
        raise refusal("E210", "is empty", "give at least one value")
    seen: list[Any] = []
    for one in values:
        if any(same_scalar(one, other) for other in seen):
            raise refusal("E210", f"has {shown(one)} twice")
        seen.append(one)
    return values


def same_scalar(one: Any, other: Any) -> bool:
    """Equal, and of the same kind: `1` is not `true`, but 1 is 1.0."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _list(value: Any) -> Any:
    if not isinstance(value, list | tuple):
        raise refusal("E113", f"expected a list, got {shown(value)}")
    return tuple(value)


OneOrMany = BeforeValidator(_one_or_many)
"""`[1, 2, 4]`, or `1` for a list of one."""
ListOf = BeforeValidator(_list)


# --- text ------------------------------------------------------------------------------------------------------


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise refusal("E113", f"expected text, got {shown(value)}", _quoting(value))
    if not value:
        raise refusal("E210", "is empty")
    if "\0" in value:
        raise refusal("E210", "holds a NUL character", "remove it")
    return value


def _quoting(value: Any) -> str:
    if isinstance(value, bool):
        return 'quote it: "true"' if value else 'quote it: "false"'
    if isinstance(value, int | float):
        return f'quote it: "{value}"'
    return ""


Text = Annotated[str, BeforeValidator(_text)]

ID_PATTERN = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
"""Names of plans, methods, workloads, prompt sets and runs: they become folders and labels."""
ID_RULE = "1 to 64 of a-z 0-9 . _ -, beginning with a letter or digit"


def id_problem(value: Any) -> str | None:
    """What is wrong with `value` as a name, or None."""
    if isinstance(value, str) and ID_PATTERN.fullmatch(value):
        return None
    return f'"{value}" is not a name' if isinstance(value, str) else f"{shown(value)} is not a name"


def _id(value: Any) -> Any:
    problem = id_problem(value)
    if problem is not None:
        do = f'quote it: "{value}"' if isinstance(value, int) and not isinstance(value, bool) else f"allowed: {ID_RULE}"
        raise refusal("E203", problem, do)
    return value


Id = Annotated[str, BeforeValidator(_id)]

_TEXTS = re.compile(r"[A-Za-z0-9/~.][A-Za-z0-9._/-]*\.jsonl?")


def _text_set(value: Any) -> Any:
    """The name of a prompt set or script, or the path of its file."""
    if isinstance(value, str) and (ID_PATTERN.fullmatch(value) or _TEXTS.fullmatch(value)):
        return value
    raise refusal("E203", f"{shown(value)} names no prompts", "write the name of a set, or a path to .json or .jsonl")


TextSet = Annotated[str, BeforeValidator(_text_set)]


def _prompt_set(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(RANDOM):
        problem = whole_number(_number_in(value.removeprefix(RANDOM)), 8, 1_048_576)
        if problem is not None:
            raise refusal("E203", f"{shown(value)}: {problem}", "write random:1024 for prompts of so many tokens")
        return value
    return _text_set(value)


def _number_in(text: str) -> Any:
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else text


RANDOM = "random:"
"""Prefix of prompt sets that are made up: `random:1024` is prompts of 1024 tokens."""
PromptSet = Annotated[str, BeforeValidator(_prompt_set)]


def random_length(name: str) -> int | None:
    """The tokens of each prompt of a set that is made up; None for a set from a file."""
    return int(name.removeprefix(RANDOM)) if name.startswith(RANDOM) else None


_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST_RULE = "write user@host:port or an ssh alias"


def _host(value: Any) -> Any:
    """A check for an ssh alias, user@host, user@host:port, or `local`."""
    if not isinstance(value, str):
        raise refusal("E113", f"expected text, got {shown(value)}", _quoting(value))
    for position, character in enumerate(value, start=1):
        legal = character.isascii() and (character.isalnum() or character in "._-@:")
        if not legal or (position == 1 and character == "-"):
            raise refusal("E101", f'illegal character "{character}" at {position}', _HOST_RULE)
    user, at, rest = value.rpartition("@")
    name, colon, port = rest.partition(":")
    good = _HOST.fullmatch(name) and (not at or _USER.fullmatch(user))
    if not good or (colon and not (len(port) <= 5 and port.isdigit() and 1 <= int(port) <= 65_535)):
        raise refusal("E101", f'"{value}" is not a host', _HOST_RULE)
    return value


_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._@-]*\.(service|scope|slice|socket|timer|target)")


def check_unit(value: Any) -> Any:
    """A check for the name of a systemd unit."""
    if not isinstance(value, str) or not _UNIT.fullmatch(value):
        raise refusal("E203", f"{shown(value)} is not a systemd unit", "write its whole name, as in name.service")
    return value


HostName = Annotated[str, BeforeValidator(_host)]

_NOT_IN_A_PATH = re.compile(r"[\x00-\x1f\x7f;|&$`<>\"'\\*?!()\[\]{}]")
_PACKAGE_DATA = re.compile(r"\{package:[A-Za-z_][A-Za-z0-9_]*\}(?=/)")


def _model_place(value: Any) -> Any:
    """A path on the host, a model id, or `{package:NAME}/file` for data of an installed Python package."""
    if not isinstance(value, str):
        raise refusal("E113", f"expected text, got {shown(value)}", _quoting(value))
    bare = _PACKAGE_DATA.sub("", value, count=1) if value.startswith("{") else value
    if not value.strip() or value[0] in "-~ " or _NOT_IN_A_PATH.search(bare):
        raise refusal("E201", f'not a model id or path: "{value}"', "write a whole path, or an id such as owner/name")
    return value


ModelPlace = Annotated[str, BeforeValidator(_model_place)]


# --- durations -------------------------------------------------------------------------------------------------

_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,6})m)?(?:(\d{1,8}(?:\.\d{1,3})?)s)?")
_DAY = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9]")


def parse_duration(text: str) -> float:
    """Seconds of `20m`, `90s`, `1h30m` or `0.5s`.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()):
        raise ValueError(f'"{text}" is not a duration')
    hours, minutes, seconds = match.groups(default="0")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def duration_text(seconds: float) -> str:
    """Seconds as `parse_duration` reads them: `1h30m`, `90s` as `1m30s`."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    rest = seconds - (hours * 60 + minutes) * 60
    parts = [f"{hours}h" if hours else "", f"{minutes}m" if minutes else "", f"{rest:g}s" if rest else ""]
    return "".join(parts) or "0s"


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        try:
            seconds = parse_duration(value)
        except ValueError as problem:
            raise refusal("E210", str(problem), "write 90s, 20m or 1h30m") from problem
        if seconds <= 0:
            raise refusal("E210", "must be longer than nothing")
        return seconds
    do = f"write {value}s" if isinstance(value, int) and not isinstance(value, bool) else "write 90s, 20m or 1h30m"
    raise refusal("E210", f"expected a duration, got {shown(value)}", do)


Duration = Annotated[float, BeforeValidator(_duration)]
"""Seconds."""


_LONGEST_BARE = 120.0
"""Seconds of a request that a number may mean without saying so: 500 is milliseconds that were forgotten."""
_LATENCY = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s)")


def _latency(value: Any) -> Any:
    match = _LATENCY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is not None:
        value = float(match[1]) / (1000 if match[2] == "ms" else 1)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise refusal("E210", f"expected a time of a request, got {shown(value)}", "write 0.5, 0.5s or 500ms")
    if match is None and value > _LONGEST_BARE:
        raise refusal(
            "E210", f"{value:g} without a unit is in seconds", f"write {value:g}ms, or {value:g}s if it is so"
        )
    return float(value)


Latency = Annotated[float, BeforeValidator(_latency)]
"""Seconds: `0.5`, `0.5s` or `500ms`."""


def _time_of_day(value: Any) -> Any:
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise refusal("E210", f"expected a time of day, got {shown(value)}", 'write "07:00"')
    return value


TimeOfDay = Annotated[str, BeforeValidator(_time_of_day)]


# --- engine arguments and environment --------------------------------------------------------------------------


def _mapping(value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise refusal("E113", f"expected a mapping, got {shown(value)}")
    return value


def _argument(value: Any) -> Any:
    if value is None:
        raise refusal("E210", "null is no value of a flag", "true is a bare flag, false leaves it out")
    if isinstance(value, Mapping):
        raise refusal("E113", "expected a value or a list of values, got a mapping", "quote JSON: '{...}'")
    if isinstance(value, list | tuple):
        for one in value:
            if not isinstance(one, bool | int | float | str):
                raise refusal("E113", f"expected a list of numbers or text, got {shown(one)} in it")
        return tuple(value)
    return value


def _environment_value(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise refusal("E113", f"expected text, got {shown(value)}", _quoting(value))
    return value


def _word(value: Any) -> Any:
    if not isinstance(value, str):
        raise refusal("E113", f"expected a word as key, got {shown(value)}", _quoting(value))
    return value


Word = Annotated[str, BeforeValidator(_word)]
Argument = Annotated[EngineArgument, BeforeValidator(_argument)]
Arguments = Annotated[Mapping[Word, Argument], BeforeValidator(_mapping)]
Environment = Annotated[Mapping[Word, Annotated[str, BeforeValidator(_environment_value)]], BeforeValidator(_mapping)]


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise refusal("E113", f"expected a number or text, got {shown(value)}")
    return value


ScalarValue = Annotated[Scalar, BeforeValidator(_scalar)]
Check: TypeAlias = Callable[[Any], Any]


def number_or_placeholder(low: int, high: int) -> Check:
    """A check for a whole number, or for a placeholder that a method's `for:` fills with one."""

    def check(value: Any) -> Any:
        if value is None or (isinstance(value, str) and value.startswith("{") and value.endswith("}")):
            return value
        problem = whole_number(value, low, high)
        if problem is not None:
            raise refusal("E210", problem)
        return value

    return check
