"""What earlier runs with the same model told of how long things take, kept in a small file beside a host's runs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Observation:
    """A measured cell: the rate of one stream, output tokens a second, everything between included."""

    method: str
    tensor_parallel: int
    kind: str
    concurrency: int
    rate: float
    tokens: int = 0
    """Of an answer; 0 where an older history does not tell."""
    prompts: str = ""
    speculation: str = ""
    """Its kind; empty for a baseline."""


@dataclass(frozen=True, slots=True)
class History:
    """What earlier runs with the same model told, on one host."""

    starts: Mapping[str, float] = field(default_factory=dict)
    """Seconds until ready, by `METHOD TPn`."""
    observations: tuple[Observation, ...] = ()


def history_from_json(data: Mapping[str, Any]) -> History:
    """As `history_to_json` wrote it; what cannot be used is left out, for a history is never worth an error."""
    if data.get("format") != FORMAT:
        return History()
    starts = {
        str(name): float(seconds)
        for name, seconds in dict(data.get("starts") or {}).items()
        if isinstance(seconds, int | float) and seconds > 0
    }
    observations = []
    for one in data.get("observations") or ():
        try:
            found = Observation(str(one[0]), int(one[1]), str(one[2]), int(one[3]), float(one[4]), *_newer(one[5:]))
        except (TypeError, ValueError, IndexError, KeyError):
            continue
        if found.rate > 0 and math.isfinite(found.rate):
            observations.append(found)
    return History(starts, tuple(observations))


def _newer(fields: Sequence[Any]) -> tuple[int, str, str]:
    """What observations tell since they have more than five fields."""
    return (int(fields[0]), str(fields[1]), str(fields[2])) if len(fields) >= 3 else (0, "", "")


def history_to_json(history: History) -> dict[str, Any]:
    """For a small file beside the runs of a host."""
    rows = [
        [o.method, o.tensor_parallel, o.kind, o.concurrency, round(o.rate, 3), o.tokens, o.prompts, o.speculation]
        for o in history.observations
    ]
    return {"format": FORMAT, "starts": dict(history.starts), "observations": rows}
