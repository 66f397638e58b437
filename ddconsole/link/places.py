"""Where the console's side keeps things, by the XDG rules."""

import os
from collections.abc import Mapping
from pathlib import Path


def default_state_directory(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_STATE_HOME/ddconsole`, else `~/.local/state/ddconsole`; relative values of the variable do not count."""
    return _base("XDG_STATE_HOME", ".local/state", environment)


def default_cache_directory(environment: Mapping[str, str] | None = None) -> Path:
    """`$XDG_CACHE_HOME/ddconsole`, else `~/.cache/ddconsole`; relative values of the variable do not count."""
    return _base("XDG_CACHE_HOME", ".cache", environment)


def _base(variable: str, default: str, environment: Mapping[str, str] | None) -> Path:
    value = (os.environ if environment is None else environment).get(variable, "")
    return (Path(value) if value.startswith("/") else Path.home() / default) / "ddconsole"
