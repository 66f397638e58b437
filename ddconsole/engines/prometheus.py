"""The text form of Prometheus metrics, as far as engines use it: sums of samples."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_METRICS = 4 * 1024 * 1024
"""Characters of an answer that are read."""

MOST_LABELS = 1024
"""Values of a counting label that are read."""

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Sample:
    """One line."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str, prefix: str) -> Iterator[Sample]:
    """The samples whose name begins with `prefix`, without histograms' buckets and lines that do not parse."""
    for line in text[:LONGEST_METRICS].splitlines():
        if not line.startswith(prefix) or "_bucket{" in line:
            continue
        match = _SAMPLE.match(line)
        if match is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        yield Sample(match["name"], dict(_LABEL.findall(match["labels"] or "")), value)


def sums(text: str, prefix: str) -> dict[str, float]:
    """Each metric's sum over its samples.

    Tensor- and pipeline-parallel ranks beyond the first count the same tokens again, so they are left out;
    data-parallel ranks count their own and are summed.
    """
    totals: dict[str, float] = {}
    for one in samples(text, prefix):
        if one.labels.get("tp_rank", "0") == "0" and one.labels.get("pp_rank", "0") == "0":
            totals[one.name] = totals.get(one.name, 0.0) + one.value
    return totals


def by_label(text: str, name: str, label: str) -> tuple[int, ...] | None:
    """A counter's sums by a label that counts from 0; None where the build does not have it."""
    found: dict[int, float] = {}
    for one in samples(text, name):
        place = one.labels.get(label, "")
        if one.name == name and place.isdigit() and int(place) < MOST_LABELS:
            found[int(place)] = found.get(int(place), 0.0) + one.value
    return tuple(round(found.get(place, 0.0)) for place in range(max(found) + 1)) if found else None


def whole(totals: dict[str, float], name: str) -> int | None:
    """A counter's sum as a whole number; None where the build does not have it."""
    value = totals.get(name)
    return None if value is None else round(value)
