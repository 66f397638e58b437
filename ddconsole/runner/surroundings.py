"""What the machine around the GPUs did while a cell was measured: who waited for what, and what the page cache held."""

import statistics
from collections.abc import Sequence
from typing import Any

from ddconsole.core.host_state import HostState

_WAITED = {"memory": 5.0, "io": 20.0, "cpu": 25.0}
"""Percent of ten seconds in which some task waited for it, from which a cell is flagged."""
_NAMES = {"memory": "memory", "io": "disks", "cpu": "CPUs"}


def surroundings_record(samples: Sequence[HostState]) -> dict[str, Any]:
    """Mean and highest pressure, page cache at first and last, least available memory. What is not told is left out."""
    record: dict[str, Any] = {}
    for name in _WAITED:
        values = [value for one in samples if (value := getattr(one, f"pressure_{name}").value) is not None]
        if values:
            record[f"pressure_{name}_mean"] = round(statistics.fmean(values), 2)
            record[f"pressure_{name}_max"] = max(values)
    caches = [value for one in samples if (value := one.page_cache.value) is not None]
    if caches:
        record["page_cache_first"], record["page_cache_last"] = caches[0], caches[-1]
    free = [value for one in samples if (value := one.memory_available.value) is not None]
    if free:
        record["memory_available_min"] = min(free)
    return record


def waiting_flags(record: dict[str, Any], *, on_gpus: bool) -> tuple[str, ...]:
    """What disturbed the cell, in words.

    Args:
        record: of `surroundings_record`.
        on_gpus: whether the server computes on GPUs: one that computes on CPUs makes others wait for them, as it must.
    """
    flags = []
    for name, most in _WAITED.items():
        highest = record.get(f"pressure_{name}_max", 0.0)
        if highest >= most and (on_gpus or name != "cpu"):
            flags.append(f"programs waited for {_NAMES[name]} in up to {highest:.0f} % of ten seconds")
    return tuple(flags)
