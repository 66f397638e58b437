"""What the driver itself says is wrong with a needed GPU."""

from collections.abc import Awaitable, Callable
from typing import Any

from ddconsole.core.host_state import reason_names
from ddconsole.core.inventory import GpuInventory, is_not_supported
from ddconsole.core.readings import Reading
from ddconsole.preflight.check import Check, Outcome, Verdict, failed, passed, skipped, unknown
from ddconsole.preflight.each_gpu import Wrong, each_gpu
from ddconsole.preflight.facts import Facts

_NEEDS = ("host.reachable", "driver.match", "driver.answers", "gpu.count")
_RESET = "reset it on the host with nothing on it (`nvidia-smi -r -i N`), or reboot the host"
_RECOVERY = {
    1: ("the driver asks for a reset", _RESET),
    2: ("the driver asks for a reboot of the host", "reboot the host"),
    3: ("the driver asks to drain its peer traffic", "stop what runs on it and its peers, then look again"),
    4: ("the driver asks to drain it and reset it", f"stop what runs on it; {_RESET}"),
}
_MOST_ROWS = 512
"""Rows remapped for uncorrectable errors above which NVIDIA's own diagnostics give a card up."""
_SLOWED = 0x20 | 0x40 | 0x80
"""Thermal by software and by hardware, power brake. 0x8 comes with every change of P-state, the power cap with load."""

Run = Callable[[Facts], Awaitable[Verdict]]


def _recovery(value: int) -> Wrong | None:
    if value == 0:
        return None
    text, remedy = _RECOVERY.get(value, (f"the driver asks for recovery action {value}", "look it up in nvml.h"))
    return Outcome.FAIL, text, remedy


def _uncorrected(value: int) -> Wrong | None:
    if value == 0:
        return None
    text = f"{value} uncorrectable memory errors since the driver was loaded"
    return Outcome.FAIL, text, f"{_RESET}; where it comes again, the card is to be replaced"


def _rows(value: tuple[int, int, int, int]) -> Wrong | None:
    _, uncorrectable, pending, broken = value
    if broken:
        return Outcome.FAIL, "a broken row could not be remapped", "the card is to be replaced"
    if pending:
        return Outcome.FAIL, "a broken row waits to be remapped", _RESET
    if uncorrectable > _MOST_ROWS:
        return Outcome.FAIL, f"{uncorrectable} rows were remapped", "the card is to be replaced"
    return None


async def _row_remap(facts: Facts) -> Verdict:
    """Only of cards with error correction: others answer success with numbers that mean nothing."""

    def rows(gpu: GpuInventory) -> Reading[Any]:
        return gpu.ecc if is_not_supported(gpu.ecc) else gpu.rows

    return each_gpu(facts, rows, _rows, "none waits and none failed", _rows_in_words)


def _rows_in_words(value: tuple[int, int, int, int]) -> str:
    return f"corrected {value[0]}, uncorrected {value[1]}, pending {value[2]}, failed {value[3]}"


async def _slowdown(facts: Facts) -> Verdict:
    if not facts.plan.needed_gpus:
        return skipped("the plan uses no GPU")
    gpus = facts.needed()
    blind = [gpu for gpu in gpus if not gpu.clock_event_reasons.known]
    if blind or not gpus:
        reasons = "; ".join(f"GPU {gpu.index}: {gpu.clock_event_reasons.unavailable}" for gpu in blind)
        return unknown(reasons or f"no sample of the host: {facts.host_problem}")
    evidence = [
        f"nvmlDeviceGetCurrentClocksEventReasons GPU {gpu.index}: 0x{gpu.clock_event_reasons.require():x} "
        f"({', '.join(reason_names(gpu.clock_event_reasons.require())) or 'none'})"
        for gpu in gpus
    ]
    slowed = [(gpu, gpu.clock_event_reasons.require() & _SLOWED) for gpu in gpus]
    found = [(gpu, mask) for gpu, mask in slowed if mask]
    expected = "neither heat nor the power brake holds it back"
    if not found:
        return passed(f"{expected} ({len(gpus)} GPUs)", expected, evidence)
    observed = ", ".join(f"GPU {gpu.index}: {', '.join(reason_names(mask))}" for gpu, mask in found)
    remedy = "power brake: power supplies and their cables; heat: fans, air flow, the server's fan profile"
    return failed(observed, expected, remedy, evidence, f"GPU {found[0][0].index}")


def _check(name: str, proves: str, run: Run) -> Check:
    return Check(name, proves, run, needs=_NEEDS)


def _of(read: Callable[[GpuInventory], Reading[Any]], judge: Callable[[Any], Wrong | None], expected: str) -> Run:
    async def run(facts: Facts) -> Verdict:
        return each_gpu(facts, read, judge, expected)

    return run


CHECKS = (
    _check(
        "gpu.recovery",
        "the driver asks for no reset of a needed GPU",
        _of(lambda gpu: gpu.recovery, _recovery, "nothing is asked for"),
    ),
    _check(
        "gpu.ecc-errors",
        "the needed GPUs' memory made no uncorrectable error",
        _of(lambda gpu: gpu.ecc_uncorrected, _uncorrected, "none since the driver was loaded"),
    ),
    _check("gpu.row-remap", "no broken memory row waits or failed to be remapped", _row_remap),
    _check("gpu.slowdown", "no needed GPU is slowed by heat or the power brake now", _slowdown),
)
