"""What a load run on a synthetic host gave, and ways in which it goes wrong."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from synthetic_host import Gpus, SyntheticHost

from ddconsole.core.host_state import HostState
from ddconsole.core.readings import read
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.load_report import LoadReport
from ddconsole.preflight.recorded_machine import RecordedMachine

GPUS = (4, 5, 6, 7)
CARD = {"name": "NVIDIA RTX PRO 6000 Blackwell Server Edition", "capability": [12, 0]}
BUSY: dict[str, Any] = {
    "nvmlDeviceGetClockInfo[1]": {"value": 1900},
    "nvmlDeviceGetCurrentClocksEventReasons": {"value": 0x4},
    "nvmlDeviceGetCurrPcieLinkGeneration": {"value": 5},
}
Change = Callable[[Facts, RecordedMachine, SyntheticHost], Facts]


def loaded(synthetic: SyntheticHost, gpus: Gpus | None = None, times: int = 6) -> LoadReport:
    """Four GPUs under load: copies from 100 to 104, products from 104 to 108. The first `times` samples have `gpus`."""
    ats = (101.5, 102.5, 103.5, 105.5, 106.5, 107.5)
    usual = synthetic(dict.fromkeys(GPUS, BUSY))
    other = synthetic({index: {**BUSY, **gpus.get(index, {})} for index in GPUS}) if gpus else usual
    samples = tuple(replace(other if place < times else usual, at=at) for place, at in enumerate(ats))
    return LoadReport(
        gpus=GPUS,
        copies={gpu: {"to_gpu": 55.0, "from_gpu": 54.0} for gpu in GPUS},
        products={gpu: {"tflops": 400.0, "exact": True} for gpu in GPUS},
        peers={(4, 5): {"rate": 50.0, "exact": True}, (4, 6): {"rate": 51.0, "exact": True}},
        collectives={GPUS: {"exact": True, "latency_us": 40.0, "rate": 38.0, "ways": {"P2P/CUMEM": 24}}},
        torch={"version": "2.9.1", "cuda": "13.0", "available": True, "devices": [CARD] * 4, "kernels": ["sm_120"]},
        after=usual,
        windows={(part, gpu): (at, at + 4) for part, at in (("copy", 100.0), ("compute", 104.0)) for gpu in GPUS},
        samples=samples,
        seconds=60.0,
    )


def under_load(**changes: Any) -> Change:
    """Another outcome of the run; figures of single GPUs or pairs replace those."""

    def change(facts: Facts, _: RecordedMachine, __: SyntheticHost) -> Facts:
        assert facts.load is not None
        whole: dict[str, Any] = {
            name: {**getattr(facts.load, name), **value} if isinstance(value, dict) else value
            for name, value in changes.items()
        }
        return replace(facts, load=replace(facts.load, **whole))

    return change


def trained_down(times: int) -> Change:
    """GPU 5's link stands at generation 2 in the first samples under load."""
    slow: Gpus = {5: {"nvmlDeviceGetCurrPcieLinkGeneration": {"value": 2}}}
    return lambda facts, _, synthetic: replace(facts, load=loaded(synthetic, slow, times))


def counted(**counters: int) -> Change:
    """These of GPU 5's counters have grown by so much when it was over: `pcie_replays`, `aer_corrected`, ..."""

    def change(facts: Facts, _: RecordedMachine, __: SyntheticHost) -> Facts:
        assert facts.load is not None
        assert facts.host is not None
        at_first = {name: read(7, 5.0, "test") for name in counters}
        then = {name: read(7 + grown, 5.0, "test") for name, grown in counters.items()}
        after = _with(facts.host, then)
        return replace(facts, host=_with(facts.host, at_first), load=replace(facts.load, after=after))

    return change


def _with(host: HostState, readings: dict[str, Any]) -> HostState:
    gpus = tuple(replace(gpu, **readings) if gpu.index == 5 else gpu for gpu in host.gpus)
    return replace(host, gpus=gpus)


def summed(**changes: Any) -> Change:
    """Another outcome of the all-reduce."""

    def change(facts: Facts, _: RecordedMachine, __: SyntheticHost) -> Facts:
        assert facts.load is not None
        found = {**facts.load.collectives[GPUS], **changes}
        return replace(facts, load=replace(facts.load, collectives={GPUS: found}))

    return change


def capped(clock: int, reasons: int = 0x4) -> Change:
    """GPU 5 runs at this clock, for these reasons."""
    gpu: Gpus = {
        5: {
            "nvmlDeviceGetClockInfo[1]": {"value": clock},
            "nvmlDeviceGetCurrentClocksEventReasons": {"value": reasons},
        }
    }
    return lambda facts, _, synthetic: replace(facts, load=loaded(synthetic, gpu))
