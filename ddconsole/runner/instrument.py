"""What says that a cell measured the instrument, or not what it was meant to: flags of a result that counts."""

import statistics
from collections.abc import Sequence

from ddconsole.core.figures import WORTH_TELLING, Summary
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines.engine import Counters
from ddconsole.load.task import LoadReport

BUSY = 0.85
"""Share of one core at which the load generator counts as near its limit: each of its processes is one event loop."""
LAG_SHARE, LAG_LEAST = 0.1, 0.005
"""A mean delay of the event loop beyond both, as a share of the TTFT and in seconds, is told: the kernel's times stand,
but what a stream got meanwhile is one read, and its next request goes out late."""
IN_FLIGHT_SHARE = 0.9
SEND_DELAY_LEAST = 0.05
"""Seconds by which an open loop may be late with a request, once."""
TTFT_RATIO, TTFT_ROOM = 1.5, 0.02
"""Ours may be longer than the engine's, which begins behind its HTTP server: by half and 20 ms."""


def instrument_flags(
    point: WorkloadPoint,
    figures: Summary,
    report: LoadReport | None,
    records: Sequence[RequestRecord],
    counters: tuple[Counters | None, Counters | None],
) -> tuple[str, ...]:
    """What is to be told beside the figures of a cell that is done.

    Args:
        point: what was asked.
        figures: what came of it.
        report: what the load generator says of itself.
        records: of all requests.
        counters: the engine's before and after.
    """
    flags = [*figure_flags(figures), *ttft_flags(records, *counters)]
    if report is not None:
        flags += generator_flags(point, figures, report)
    return tuple(flags)


def figure_flags(figures: Summary) -> list[str]:
    """How far the figures are from what they are called."""
    flags = []
    if figures.estimated_tokens:
        flags.append("output tokens were estimated from chunks: the engine told no usage")
    if figures.rate_bias is not None and figures.rate_bias >= WORTH_TELLING:
        flags.append(
            f"tok/s may be {figures.rate_bias:.1%} too high: the first chunks look as if they held several tokens, and "
            "the engine does not tell how many → protocol.count_each_chunk: true asks it to"
        )
    return flags


def generator_flags(point: WorkloadPoint, figures: Summary, report: LoadReport) -> list[str]:
    """Where the load generator was the limit."""
    flags = []
    share = report.busiest
    if share is None:
        share = report.cpu_seconds / report.wall_seconds if report.wall_seconds > 0 else 0.0
    if share >= BUSY:
        flags.append(f"the load generator used {share:.0%} of a core: the figures may be its limit, not the server's")
    lag = report.mean_loop_lag
    if lag is not None and lag > max(LAG_LEAST, LAG_SHARE * (figures.ttft or 0.0)):
        late = f"the load generator was {lag * 1000:.0f} ms late on the mean"
        flags.append(f"{late}: so are its requests, and chunks of a stream that came within that time share one time")
    in_flight = report.achieved_concurrency
    asked = point.concurrency if point.kind == "closed-loop" and point.concurrency > 1 else 0
    if in_flight is not None and in_flight < IN_FLIGHT_SHARE * asked:
        flags.append(f"only {in_flight:.1f} of {asked} requests were in flight while there was work to send")
    if figures.send_delay is not None and figures.send_delay > SEND_DELAY_LEAST:
        flags.append(f"a request was sent {figures.send_delay * 1000:.0f} ms after its time: counted, from its time on")
    return flags


def ttft_flags(records: Sequence[RequestRecord], before: Counters | None, after: Counters | None) -> list[str]:
    """Whether the engine's own histogram contradicts the times to the first token, by their means over the cell."""
    engine = engine_ttft(before, after, len(records))
    firsts = [one.first_text - one.sent for one in records if one.first_text is not None]
    if engine is None or len(firsts) < len(records) or any(one.outcome is not RequestOutcome.OK for one in records):
        return []
    ours = statistics.fmean(firsts)
    if ours > TTFT_RATIO * engine + TTFT_ROOM:
        why = "the rest passed between the engine and its client"
    elif engine > TTFT_RATIO * ours + TTFT_ROOM:
        why = "a client cannot have a token before the engine"
    else:
        return []
    return [f"mean TTFT is {ours * 1000:.0f} ms here and {engine * 1000:.0f} ms in the engine's histogram: {why}"]


def engine_ttft(before: Counters | None, after: Counters | None, requests: int) -> float | None:
    """The engine's mean time to the first token over the cell, seconds; None where it did not count just these."""
    if before is None or after is None or after.ttft_count is None or after.ttft_seconds is None:
        return None
    count = after.ttft_count - (before.ttft_count or 0)  # a histogram that nothing was counted in may not be there yet
    seconds = after.ttft_seconds - (before.ttft_seconds or 0.0)
    return seconds / count if count == requests and count > 0 and seconds >= 0 else None
