"""How the needed GPUs are set: each one as it must be, and all of them alike."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from ddconsole.core.inventory import GpuInventory, is_not_supported
from ddconsole.core.readings import Reading
from ddconsole.preflight.check import Check, Outcome, Tier, Verdict, failed, passed, skipped, unknown, warned
from ddconsole.preflight.each_gpu import Wrong, each_gpu, needed_inventories
from ddconsole.preflight.facts import Facts

_NEEDS = ("host.reachable", "driver.match", "driver.answers", "gpu.count")
_MODES = {1: "exclusive to one thread", 2: "prohibited", 3: "exclusive to one process"}
_MEMORY_TOLERANCE = 64 * 1024**2
_SMALL_BAR = 256 * 1024**2
_POWER_TOLERANCE = 1.0
"""Watts."""

Run = Callable[[Facts], Awaitable[Verdict]]


def _mig(value: tuple[int, int]) -> Wrong | None:
    now, after = value
    if now:
        text = "multi-instance mode is on: it is cut into parts, and tensor parallelism over parts does not work"
        return Outcome.FAIL, text, "on the host: `nvidia-smi -mig 0 -i N`, then reset it"
    if after:
        text = "multi-instance mode comes on at its next reset"
        return Outcome.WARN, text, "on the host: `nvidia-smi -mig 0 -i N`"
    return None


def _compute_mode(value: int) -> Wrong | None:
    if value == 0:
        return None
    outcome = Outcome.FAIL if value == 2 else Outcome.WARN
    text = f"compute mode is {_MODES.get(value, value)}: a second process gets `devices are busy or unavailable`"
    return outcome, text, "on the host: `nvidia-smi -c 0`"


def _persistence(value: bool) -> Wrong | None:
    if value:
        return None
    text = "off: the driver forgets limits and takes seconds at each start"
    return Outcome.WARN, text, "on the host: `nvidia-smi -pm 1`, or `systemctl enable --now nvidia-persistenced`"


async def _ecc_mode(facts: Facts) -> Verdict:
    def pending(value: tuple[int, int]) -> Wrong | None:
        if value[0] == value[1]:
            return None
        return Outcome.WARN, "error correction changes at its next reset", "reset it now, or set it back"

    verdict = each_gpu(facts, lambda gpu: gpu.ecc, pending, "as it will stay", lambda value: f"now {value[0]}")
    modes = _values(facts, lambda gpu: gpu.ecc.map(lambda ecc: ecc[0]))
    if verdict.outcome in {Outcome.PASS, Outcome.WARN} and len(set(modes.values())) > 1:
        on = [index for index, mode in modes.items() if mode]
        observed = f"error correction is on for GPU {_list(on)} only: memory and speed differ between ranks"
        return failed(observed, "the same on all", "on the host: `nvidia-smi -e 1`, then reset", verdict.evidence)
    return verdict


async def _power_limit(facts: Facts) -> Verdict:
    """The limit that is enforced now: it may lie below the one that was set, where something else caps it."""
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    gpus = facts.needed()
    if gpus and all(is_not_supported(gpu.power_limit) for gpu in gpus):
        return skipped(gpus[0].power_limit.unavailable or "not supported")
    blind = [gpu for gpu in gpus if not gpu.power_limit.known]
    if blind or not gpus:
        return unknown("; ".join(f"GPU {gpu.index}: {gpu.power_limit.unavailable}" for gpu in blind) or "no sample")
    limits = {gpu.index: gpu.power_limit.require() for gpu in gpus}
    defaults = _values(facts, lambda gpu: gpu.power_limit_default)
    asked = _values(facts, lambda gpu: gpu.power_limit_set)
    evidence = [
        f"GPU {index}: {watts:.0f} W enforced, {_watts(asked.get(index))} set, {_watts(defaults.get(index))} default"
        for index, watts in limits.items()
    ]
    remedy = "on the host: `nvidia-smi -pl W` for all of them; it is forgotten when the driver unloads"
    capped = [index for index, watts in limits.items() if watts < asked.get(index, watts) - _POWER_TOLERANCE]
    if max(limits.values()) - min(limits.values()) > _POWER_TOLERANCE:
        observed = ", ".join(f"GPU {index} {watts:.0f} W" for index, watts in limits.items())
        return failed(observed, "the same on all: a group is as fast as its slowest", remedy, evidence)
    if capped:
        text = f"GPU {_list(capped)}: less is enforced than was set: something outside the driver caps it"
        return warned(text, "what was set", "look at the server's power profile", evidence, f"GPU {capped[0]}")
    low = [index for index, watts in limits.items() if watts < defaults.get(index, watts) - _POWER_TOLERANCE]
    if low:
        text = f"GPU {_list(low)}: {limits[low[0]]:.0f} W, the card's default is {defaults[low[0]]:.0f} W"
        return warned(text, "the card's default", f"if it is not meant: {remedy}", evidence, f"GPU {low[0]}")
    return passed(f"{limits[gpus[0].index]:.0f} W on {len(gpus)} GPUs", "the same on all", evidence)


def _alike(
    read: Callable[[GpuInventory], Reading[Any]], what: str, remedy: str, outcome: Outcome = Outcome.WARN
) -> Run:
    async def run(facts: Facts) -> Verdict:
        verdict = each_gpu(facts, read, lambda _: None, "the same on all")
        values = _values(facts, read)
        if verdict.outcome is not Outcome.PASS or len(set(values.values())) < 2:
            return verdict
        observed = f"{what}: " + ", ".join(f"GPU {index} {value}" for index, value in values.items())
        return Verdict(outcome, observed, "the same on all", remedy, verdict.evidence)

    return run


async def _memory_size(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    sizes = {gpu.index: gpu.memory_total.value for gpu in facts.needed()}
    known = {index: size for index, size in sizes.items() if size is not None}
    if not known or len(known) < len(sizes):
        return unknown(f"not known of GPU {_list([index for index in sizes if index not in known]) or 'any'}")
    evidence = [f"nvmlDeviceGetMemoryInfo GPU {index}: {size:,} bytes" for index, size in known.items()]
    if max(known.values()) - min(known.values()) > _MEMORY_TOLERANCE:
        least = min(known, key=lambda index: known[index])
        observed = f"GPU {least} has {known[least] / 1024**3:.1f} GiB, others {max(known.values()) / 1024**3:.1f} GiB"
        remedy = "the ranks of a group share memory evenly: look at its error correction and at what card it is"
        return failed(observed, "the same on all", remedy, evidence, f"GPU {least}")
    return passed(f"{min(known.values()) / 1024**3:.1f} GiB on {len(known)} GPUs", "the same on all", evidence)


async def _bar(facts: Facts) -> Verdict:
    if all(len(one.placement.gpus) < 2 for one in facts.plan.deployments):
        return skipped("no placement has more than one GPU")

    def small(value: int) -> Wrong | None:
        if value > _SMALL_BAR:
            return None
        text = f"its window is {value // 1024**2} MiB: GPUs cannot reach each other's memory"
        return Outcome.WARN, text, "firmware of the host: Above 4G Decoding and Resizable BAR on"

    return each_gpu(facts, lambda gpu: gpu.bar1, small, "more than 256 MiB", lambda value: f"{value // 1024**2} MiB")


def _values(facts: Facts, read: Callable[[GpuInventory], Reading[Any]]) -> dict[int, Any]:
    readings = {gpu.index: read(gpu) for gpu in needed_inventories(facts)}
    return {index: reading.value for index, reading in readings.items() if reading.known}


def _watts(value: Any) -> str:
    return "?" if value is None else f"{value:.0f} W"


def _list(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices))


def _of(read: Callable[[GpuInventory], Reading[Any]], judge: Callable[[Any], Wrong | None], expected: str) -> Run:
    async def run(facts: Facts) -> Verdict:
        return each_gpu(facts, read, judge, expected)

    return run


CHECKS = (
    Check(
        "gpu.mig",
        "the needed GPUs are whole",
        _of(lambda gpu: gpu.mig, _mig, "multi-instance mode off"),
        needs=_NEEDS,
    ),
    Check(
        "gpu.compute-mode",
        "several processes may use a needed GPU",
        _of(lambda gpu: gpu.compute_mode, _compute_mode, "compute mode default"),
        needs=_NEEDS,
    ),
    Check("gpu.ecc-mode", "error correction is the same on all needed GPUs", _ecc_mode, _NEEDS, tier=Tier.STANDARD),
    Check("gpu.power-limit", "the same power limit on all needed GPUs", _power_limit, _NEEDS),
    Check("gpu.memory-size", "the same memory on all needed GPUs", _memory_size, _NEEDS, tier=Tier.STANDARD),
    Check(
        "gpu.same-firmware",
        "the same VBIOS on all needed GPUs",
        _alike(lambda gpu: gpu.vbios, "VBIOS differs", "note it in the results; a replaced card may have another one"),
        _NEEDS,
        tier=Tier.STANDARD,
    ),
    Check("gpu.bar", "GPUs can reach all of each other's memory", _bar, _NEEDS, tier=Tier.STANDARD),
    Check(
        "driver.persistence",
        "the driver stays loaded between programs",
        _of(lambda gpu: gpu.persistence, _persistence, "on"),
        _NEEDS,
        tier=Tier.STANDARD,
    ),
)
