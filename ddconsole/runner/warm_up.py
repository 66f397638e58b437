"""Warming up: requests before the measured ones, once, or until two passes in a row are as fast."""

import statistics
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.core.figures import output_rate
from ddconsole.core.records import RequestOutcome, RequestRecord

MeasurePass = Callable[[], Awaitable[Sequence[RequestRecord]]]
"""Sends the requests of one pass."""


@dataclass(frozen=True, slots=True)
class WarmUp:
    """What warming up came to."""

    rates: tuple[float | None, ...] = ()
    """By pass: tokens a second, median of its requests; None where none gave a rate."""
    agreed: bool | None = None
    """Whether the last two passes were as fast; None where that was not asked for."""

    def flags(self) -> tuple[str, ...]:
        """What is to be told beside the figures."""
        if self.agreed is not False:
            return ()
        last = " and ".join("none" if rate is None else f"{rate:.1f}" for rate in self.rates[-2:])
        return (f"still warming up: after {len(self.rates)} passes the last two gave {last} tok/s",)

    def to_json(self) -> dict[str, Any]:
        """For the attempt's file and the journal; empty without a pass."""
        return {"rates": list(self.rates), "agreed": self.agreed} if self.rates else {}


async def warm_up(one_pass: MeasurePass, until: Mapping[str, Any] | None, ended: Callable[[], bool]) -> WarmUp:
    """Send passes of requests.

    Args:
        one_pass: sends one.
        until: `protocol.warmup_until`: `agree`, the share by which two passes in a row may differ, and `most`, the
            passes after which it is given up; one pass without it.
        ended: whether nobody wants the cell any more.
    """
    rates: list[float | None] = []
    most = int(until["most"]) if until else 1
    while len(rates) < most and not ended():
        rates.append(rate_of(await one_pass()))
        if until and len(rates) > 1 and agree(rates[-2], rates[-1], float(until["agree"])):
            return WarmUp(tuple(rates), agreed=True)
    return WarmUp(tuple(rates), agreed=False if until and not ended() else None)


def agree(one: float | None, other: float | None, share: float) -> bool:
    """Whether two rates differ by at most this share of the larger one."""
    return one is not None and other is not None and abs(one - other) <= share * max(one, other)


def rate_of(records: Sequence[RequestRecord]) -> float | None:
    """The median rate of a pass."""
    told = [output_rate(record) for record in records if record.outcome in (RequestOutcome.OK, RequestOutcome.SHORT)]
    rates = [rate for rate in told if rate is not None]
    return statistics.median(rates) if rates else None
