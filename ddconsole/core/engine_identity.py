"""What became different about engine, model or configuration between two launches, in words.

An identity is a JSON object with any of `build`, `packages`, `files`, `environment` and `model`, each an object of
plain values, as the agent asked it before a launch.
"""

from collections.abc import Iterator, Mapping
from typing import Any

_MOST = 6
"""Changes that are named one by one."""


def engine_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Old → new, one change each. What could not be asked this time is no change."""
    found = [line for section in after for line in _changed(section, _part(before, section), _part(after, section))]
    if len(found) <= _MOST:
        return tuple(found)
    return (*found[:_MOST], f"and {len(found) - _MOST} more")


def _part(identity: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    value = identity.get(section)
    return value if isinstance(value, Mapping) else {}


def _changed(section: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    if section in ("build", "packages") and not after:
        return
    for name in dict.fromkeys((*before, *after)):
        old, new = before.get(name), after.get(name)
        if section == "model" and new is None:
            continue  # the gate holds a launch back whose model is not whole; staged again it is the same
        if old != new and not (section == "build" and name == "dirty"):
            yield _in_words(section, name, old, new)


def _in_words(section: str, name: str, old: object, new: object) -> str:
    if section == "build" and name == "changes":
        state = "are there now" if old is None else "are gone" if new is None else "are others now"
        return f"uncommitted changes {state}"
    what = {"build": name, "packages": f"package {name}", "environment": f"variable {name}"}.get(section)
    if what is not None:
        return f"{what} {_short(old)} → {_short(new)}"
    kind = "model file" if section == "model" else "file"
    return f"{kind} {name} {'is new' if old is None else 'is gone' if new is None else 'changed'}"


def _short(value: object) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) < 40 else f"{text[:12]}…"
