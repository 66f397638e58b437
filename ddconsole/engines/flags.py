"""From a plan's engine arguments to argv: names checked, no option smuggled in a value, no secret on a command line."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ddconsole.core.sweep import EngineArgument, Scalar
from ddconsole.core.visible_text import visible_line
from ddconsole.engines.engine import EngineArgumentError

_NAME = re.compile(r"^-{0,2}[A-Za-z][A-Za-z0-9_.-]*$")
_NUMBER = re.compile(r"^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$")
_SECRET_NAME = re.compile(r"(?:^|-)(?:api-?keys?|hf-?token|hft|auth-?token|password|passwd|secret|access-key)(?:-|$)")
_SECRET_VALUE = re.compile(
    r"\bhf_[A-Za-z0-9]{16,}|\bsk-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bAKIA[0-9A-Z]{16}\b|\bBearer\s+\S{8,}"
)
_DESCRIPTION_COLUMN = 8
"""Help texts set options left of it (argparse 2, llama-server 0) and descriptions far to its right (24 and 40)."""
_OPTION = re.compile(r"(?:^|[\s,|\[(])(--?[A-Za-z][A-Za-z0-9_.-]*)")


@dataclass(frozen=True, slots=True)
class FlagRules:
    """How one engine reads its command line."""

    owned: frozenset[str]
    equals: bool
    """`--flag=value` is understood (argparse): then no value can be taken for an option."""
    abbreviates: bool
    """A unique beginning of a flag is taken for the flag (argparse)."""
    same: Mapping[str, str] = field(default_factory=dict)
    """Canonical names of aliases, to the one that we use."""


def canonical(name: str) -> str:
    """A flag's name without dashes in front, underscores as dashes."""
    return name.lstrip("-").replace("_", "-")


def named(args: Mapping[str, EngineArgument], rules: FlagRules) -> dict[str, EngineArgument]:
    """The plan's arguments by canonical name, aliases resolved: what the plan itself decides, `False` included."""
    return {rules.same.get(canonical(key), canonical(key)): value for key, value in args.items()}


def plan_argv(args: Mapping[str, EngineArgument], known: frozenset[str] | None, rules: FlagRules) -> list[str]:
    """The plan's own flags as argv, in its order.

    Raises:
        EngineArgumentError: an owned, unknown or malformed flag, a value that would be read as an option, a secret.
    """
    argv: list[str] = []
    for key, value in args.items():
        _refuse_owned(key, rules, known)
        _refuse_secret(key, value)
        if value is False:
            continue
        argv += option(_spelled(key, known), value, rules, where=f"args.{key}")
    return argv


def option(flag: str, value: EngineArgument, rules: FlagRules, where: str) -> list[str]:
    """One flag with its value or values. `where` names the plan's field in errors."""
    if value is True:
        return [flag]
    if value is False:
        return []
    if isinstance(value, tuple):
        return [flag, *(_separate(one, where) for one in value)] if value else []
    text = _text(value)
    if text.startswith("-") and not _NUMBER.match(text):
        if rules.equals:
            return [f"{flag}={text}"]
        _separate(value, where)
    return [flag, text]


def known_or_unasked(known: frozenset[str] | None, flag: str) -> bool:
    """Whether a build has `flag`, as far as it could be asked."""
    return known is None or flag in known


def holds_secret(text: str) -> bool:
    """Whether a value looks like a key or token."""
    return _SECRET_VALUE.search(text) is not None


def options_of_help(text: str) -> frozenset[str]:
    """The option strings in a help text: of its usage block, and of the lines that begin with one.

    Words in descriptions (`use --other instead`) are not taken for options, wherever their lines are broken.
    """
    found: set[str] = set()
    in_usage = False
    for line in text.splitlines():
        bare = line.strip()
        if bare.lower().startswith("usage:"):
            in_usage = True
        elif not line.startswith((" ", "\t")):
            in_usage = False
        if in_usage:
            found.update(_OPTION.findall(_without_choices(bare)))
        elif bare.startswith("-") and len(line) - len(line.lstrip()) < _DESCRIPTION_COLUMN:
            names = re.split(r"(?<![,\s])\s{2,}", bare, maxsplit=1)[0]
            found.update(_OPTION.findall(_without_choices(names)))
    return frozenset(found)


def _without_choices(text: str) -> str:
    return re.sub(r"\{[^}]*\}", " ", text)


def _spelled(key: str, known: frozenset[str] | None) -> str:
    """The option string for a plan's key: as it is with dashes, else the long form, else the short one."""
    if not _NAME.match(key):
        raise EngineArgumentError(
            f"args.{visible_line(key, 60)}", "is not a flag's name", "write the name alone, its value behind the colon"
        )
    if key.startswith("-"):
        tried = [key]
    else:
        tried = [f"--{key}", f"-{key}"] if known is not None else [f"--{key}" if len(key) > 1 else f"-{key}"]
    if known is None:
        return tried[0]
    for flag in tried:
        if flag in known:
            return flag
    raise EngineArgumentError(f"args.{key}", f"this build has no flag {tried[0]}", _nearest(tried[0], known))


def _nearest(flag: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(flag.replace("_", "-"), sorted(known), n=3, cutoff=0.6)
    if not near:
        return "look at the build's --help; a flag of a patched build needs that build"
    return f"did you mean {' or '.join(near)}?"


def _refuse_owned(key: str, rules: FlagRules, known: frozenset[str] | None) -> None:
    name = canonical(key)
    owned = {canonical(flag) for flag in rules.owned}
    known_as_it_is = known is not None and f"--{name}" in known
    short = rules.abbreviates and not known_as_it_is and any(flag.startswith(name) for flag in owned)
    if name in owned or short:
        raise EngineArgumentError(
            f"args.{key}", "ddconsole sets this flag itself", "leave it out; the plan has a field of its own for it"
        )


def _refuse_secret(key: str, value: EngineArgument) -> None:
    texts = [str(one) for one in (value if isinstance(value, tuple) else (value,))]
    if any("\x00" in text for text in texts):
        raise EngineArgumentError(f"args.{key}", "the value holds a NUL character", "take it out")
    if _SECRET_NAME.search(canonical(key)) or any(holds_secret(text) for text in texts):
        raise EngineArgumentError(
            f"args.{key}",
            "looks like a secret, and command lines can be read by every user of the host",
            "serve without a key on 127.0.0.1, and give models as local paths",
        )


def _text(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)


def _separate(value: Scalar, where: str) -> str:
    """A value that stands alone in argv."""
    text = _text(value)
    if text.startswith("-") and not _NUMBER.match(text):
        raise EngineArgumentError(
            where, f"the value {visible_line(text, 60)!r} would be read as an option", "begin it with something else"
        )
    return text
