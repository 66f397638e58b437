"""How many bytes a second go over each GPU's PCIe link, from counters that run over.

The counters are 32 bits wide: on a link of 64 GB/s they run over every 67 ms (seen on H200), so both readings of a rate
lie in one sample, a few hundredths of a second apart. A reading costs 0.6 ms in which the driver spins.
"""

import time
from collections.abc import Iterable
from dataclasses import replace

from ddconsole.core.host_state import NOT_READ, GpuState
from ddconsole.core.readings import Reading, read, unavailable
from ddconsole.probe.nvml_calls import GpuHandle, NvmlCalls

_SENT, _RECEIVED = 197, 198
_SHORTEST, _LONGEST = 0.02, 0.06
"""Real seconds between the two readings: the counter moves in steps of milliseconds, and runs over."""
_WIDTH = 2.0**32

_Counters = tuple[float, dict[int, Reading[float]]]
_Rates = tuple[Reading[float], Reading[float]]


class PcieTraffic:
    """Takes the rates of all GPUs in one sample in a while; between, the last ones are kept with their time."""

    def __init__(self, calls: NvmlCalls) -> None:
        self._calls = calls
        self._taken_at = float("-inf")
        self._first: dict[int, tuple[GpuHandle, _Counters]] = {}
        self._rates: dict[int, _Rates] = {}

    def begin(self, gpus: Iterable[GpuHandle], seconds: float) -> None:
        """Read the counters the first time, if the rates are older than so many seconds."""
        self._first = {}
        if self._calls.now() - self._taken_at < seconds:
            return
        self._first = {gpu.index: (gpu, self._counters(gpu)) for gpu in gpus if gpu.lost is None}

    def end(self, gpus: tuple[GpuState, ...]) -> tuple[GpuState, ...]:
        """The GPUs with their rates."""
        if self._first:
            self._taken_at = self._calls.now()
            self._rates = {index: self._rate(gpu, counters) for index, (gpu, counters) in self._first.items()}
        return tuple(self._with_rates(gpu) for gpu in gpus)

    def _with_rates(self, gpu: GpuState) -> GpuState:
        sent, received = self._rates.get(gpu.index, (NOT_READ, NOT_READ))
        return replace(gpu, pcie_sent=sent, pcie_received=received)

    def _counters(self, gpu: GpuHandle) -> _Counters:
        return time.monotonic(), self._calls.fields(gpu, (_SENT, _RECEIVED))

    def _rate(self, gpu: GpuHandle, first: _Counters) -> _Rates:
        wait = first[0] + _SHORTEST - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        second = self._counters(gpu)
        seconds = second[0] - first[0]
        return (
            moved(first[1][_SENT], second[1][_SENT], seconds),
            moved(first[1][_RECEIVED], second[1][_RECEIVED], seconds),
        )


def moved(first: Reading[float], second: Reading[float], seconds: float) -> Reading[float]:
    """Bytes a second between two readings of a counter of 32 bits."""
    if first.value is None or second.value is None:
        return second if second.value is None else first
    if seconds > _LONGEST:
        return unavailable("the counter may have run over between its readings", second.at, second.source)
    return read(float(round((second.value - first.value) % _WIDTH / seconds)), second.at, second.source)
