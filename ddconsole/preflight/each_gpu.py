"""Judging one reading of every needed GPU: what is not supported is left out, what is not known is never green."""

from collections.abc import Callable
from typing import Any

from ddconsole.core.inventory import GpuInventory, is_not_supported
from ddconsole.core.readings import Reading
from ddconsole.preflight.check import Outcome, Verdict, passed, skipped, unknown
from ddconsole.preflight.facts import Facts

Wrong = tuple[Outcome, str, str]
"""Outcome, what is wrong with this GPU, and what to do."""

_WORST_FIRST = (Outcome.FAIL, Outcome.UNKNOWN, Outcome.WARN)


def each_gpu(
    facts: Facts,
    read: Callable[[GpuInventory], Reading[Any]],
    judge: Callable[[Any], Wrong | None],
    expected: str,
    show: Callable[[Any], str] = str,
) -> Verdict:
    """One reading of the inventory of all needed GPUs; the worst of them is the verdict.

    Args:
        facts: what is known.
        read: which reading.
        judge: what is wrong with a value; None where nothing is.
        expected: in words.
        show: a value in the evidence.
    """
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    gpus = needed_inventories(facts)
    if not gpus:
        return unknown(f"the driver was not asked for it: {facts.inventory.problem or facts.inventory.silent}")
    readings = [(gpu.index, read(gpu)) for gpu in gpus]
    if all(is_not_supported(reading) for _, reading in readings):
        return skipped(readings[0][1].unavailable or "not supported")
    evidence = [f"{reading.source} GPU {index}: {_shown(reading, show)}" for index, reading in readings]
    found = [(index, _wrong(reading, judge)) for index, reading in readings if not is_not_supported(reading)]
    wrong = [(index, one) for index, one in found if one is not None]
    if not wrong:
        return passed(f"on {len(found)} GPUs: {expected}", expected, evidence)
    index, (outcome, _, remedy) = min(wrong, key=lambda one: _WORST_FIRST.index(one[1][0]))
    same: dict[str, list[str]] = {}
    for at, (_, text, _) in wrong:
        same.setdefault(text, []).append(str(at))
    observed = "; ".join(f"GPU {', '.join(indices)}: {text}" for text, indices in same.items())
    return Verdict(outcome, observed, expected, remedy, tuple(evidence), f"GPU {index}")


def needed_inventories(facts: Facts) -> list[GpuInventory]:
    """The inventories of the plan's GPUs that there are."""
    return [gpu for gpu in facts.inventory.gpus if gpu.index in facts.plan.needed_gpus]


def _wrong(reading: Reading[Any], judge: Callable[[Any], Wrong | None]) -> Wrong | None:
    if not reading.known:
        return Outcome.UNKNOWN, reading.unavailable or "not known", "ask on the host with `nvidia-smi -q`"
    return judge(reading.value)


def _shown(reading: Reading[Any], show: Callable[[Any], str]) -> str:
    return show(reading.value) if reading.known else str(reading.unavailable)
