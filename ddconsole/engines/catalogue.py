"""The failure catalogue: `failures.json` as compiled signatures, and the causes that are made from them."""

import functools
import importlib.resources
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.core.states import Cause, Retry
from ddconsole.core.visible_text import visible_line

LONGEST_MATCHED = 4000
"""Characters of a line that are searched: what lies behind is not looked at, so a huge line costs no more than this."""

MOST_EVIDENCE = 8
LONGEST_EVIDENCE = 300

_ENGINES_OF = {
    "sglang": frozenset({"any", "host", "sglang", "sglang-fork"}),
    "vllm": frozenset({"any", "host", "vllm"}),
    "llamacpp": frozenset({"any", "host", "llamacpp"}),
}

_DOING = {
    "allocate": "allocating",
    "capture": "capturing",
    "import": "importing",
    "init": "initialising",
    "load": "loading",
    "resolve": "resolving",
    "warm": "warming",
}


@dataclass(frozen=True, slots=True)
class Signature:
    """One entry of the catalogue."""

    id: str
    engine: str
    """`any`, `host`, `console`, or an engine's kind."""
    phase: str
    rank: str
    """`primary` (a cause), `secondary` (wraps one), `noise` (annotates), `watchdog-rule` (seen by a timer)."""
    retry: Retry
    short: str
    """What happened, for a table's row; `{names}` are groups of the pattern."""
    cause: str
    do: str
    pattern: re.Pattern[str]
    needles: tuple[str, ...]
    """Every match contains one of these: looking for them costs a fraction of the pattern."""
    sample: str
    cite: str
    tier: int
    """0 for the most specific; where several match, the lowest tells most."""
    generic: bool
    """Its words stand in healthy logs too: they count inside a traceback or after death only."""

    def search(self, line: str) -> re.Match[str] | None:
        """Where the pattern matches in the first `LONGEST_MATCHED` characters of `line`."""
        for needle in self.needles:
            if needle in line:
                return self.pattern.search(line[:LONGEST_MATCHED])
        return None


@functools.cache
def signatures(engine_kind: str | None = None) -> tuple[Signature, ...]:
    """The whole catalogue, or the part that an engine's log and its host can show."""
    if engine_kind is None:
        text = importlib.resources.files("ddconsole.engines").joinpath("failures.json").read_text(encoding="utf-8")
        return tuple(_signature(entry) for entry in json.loads(text))
    engines = _ENGINES_OF.get(engine_kind, frozenset({"any", "host", engine_kind}))
    return tuple(one for one in signatures() if one.engine in engines)


@functools.cache
def _by_id() -> dict[str, Signature]:
    return {one.id: one for one in signatures()}


def signature(id_: str) -> Signature | None:
    """One entry by its id; None for causes that are not of the catalogue."""
    return _by_id().get(id_)


def doing(phase: str) -> str:
    """A step or phase as what the server was doing: `capture graphs` becomes `capturing graphs`."""
    first, _, rest = phase.partition(" ")
    if first in _DOING:
        return f"{_DOING[first]} {rest}".strip()
    return "starting" if phase in {"", "starting"} else "serving" if phase in {"ready", "running"} else phase


def cause_of(
    entry: Signature, evidence: Sequence[str], phase: str = "", found: Mapping[str, str | None] | None = None
) -> Cause:
    """The cause that `entry` stands for.

    Args:
        entry: the signature.
        evidence: log lines as they are; they are cut and made visible here.
        phase: what the launch was doing, in the engine's terms.
        found: the named groups of the match.
    """
    values = {name: visible_line(text, 80) for name, text in (found or {}).items() if text is not None}
    text = _fill(entry.short, {"phase": doing(phase), **values})
    return Cause(id=entry.id, text=text, evidence=visible_evidence(evidence), do=entry.do, retry=entry.retry)


def cause_by_id(id_: str, evidence: Sequence[str] = (), phase: str = "", **found: str) -> Cause:
    """The cause of a catalogue entry that was recognised by something else than its text: a timer, a port, NVML.

    Raises:
        KeyError: no such entry.
    """
    return cause_of(_by_id()[id_], evidence, phase, found)


def visible_evidence(lines: Sequence[str]) -> tuple[str, ...]:
    """The first `MOST_EVIDENCE` lines that are not blank, control characters visible, each cut short."""
    kept = [line.rstrip() for line in lines if line.strip()][:MOST_EVIDENCE]
    return tuple(visible_line(line, LONGEST_EVIDENCE) for line in kept)


def _fill(short: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match.group(1), "?"), short)


def _signature(entry: Mapping[str, Any]) -> Signature:
    return Signature(
        id=entry["id"],
        engine=entry["engine"],
        phase=entry["phase"],
        rank=entry["rank"],
        retry=Retry(entry["retry"]),
        short=entry["short"],
        cause=entry["cause"],
        do=entry["do"],
        pattern=re.compile(entry["re"]),
        needles=tuple(entry["needles"]),
        sample=entry["sample"],
        cite=entry["cite"],
        tier=entry.get("tier", 0),
        generic=entry.get("generic", False),
    )
