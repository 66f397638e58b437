"""The figures, each with its definition. The same text stands on screen and in the report."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource

DEFINITIONS: dict[str, str] = {
    "output_rate": (
        "tok/s: output tokens of a request over the time from its first to its last token, (n - 1) / (last - first); "
        "median over the requests that succeeded"
    ),
    "server_rate": "server tok/s: all output tokens of the cell over its wall time, first send to last end",
    "ttft": "TTFT: request sent to first chunk with text (content or reasoning); median",
    "tpot": "TPOT: (last - first) / (n - 1) per request; median",
    "chunk_gap": "chunk gap: time between successive chunks with text; under speculation a chunk holds several tokens",
    "acceptance": (
        "acceptance length: completion tokens / verify steps of this cell's requests, bonus token included; "
        "1.00 for the baseline"
    ),
    "speed_up": "speed-up: median tok/s over the baseline's median tok/s at the same tensor-parallel size and workload",
    "spread": "spread within one launch: half the distance between the 2.5th and 97.5th percentile of the requests",
}


def output_rate(record: RequestRecord) -> float | None:
    """Output tokens a second of one request, (n - 1) / (last - first); None where it is not defined."""
    if record.output_tokens is None or record.first_text is None or record.last_text is None:
        return None
    seconds = record.last_text - record.first_text
    if record.output_tokens < 2 or seconds <= 0:
        return None
    return (record.output_tokens - 1) / seconds


def time_to_first_token(record: RequestRecord) -> float | None:
    """Seconds from sending to the first chunk with text."""
    return None if record.first_text is None else record.first_text - record.sent


def time_per_output_token(record: RequestRecord) -> float | None:
    """Seconds per output token after the first, (last - first) / (n - 1)."""
    rate = output_rate(record)
    return None if rate is None else 1.0 / rate


def percentile(values: Sequence[float], fraction: float) -> float:
    """Linear interpolation between closest ranks, as numpy's default does.

    Raises:
        ValueError: `values` is empty.
    """
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    position = fraction * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of one attempt. Rates in tokens a second, times in seconds; None where it is not defined."""

    requests: int
    succeeded: int
    failed: int
    output_tokens: int
    """Of the requests that succeeded."""
    wall: float
    output_rate: float | None
    output_rate_spread: float | None
    """Half of the central 95 % of the requests: within one launch, not an interval."""
    server_rate: float | None
    ttft: float | None
    tpot: float | None
    chunk_gap: float | None
    tokens_per_chunk: float | None
    acceptance: Acceptance | None
    cached_tokens: int
    estimated_tokens: bool
    """Some output token count was estimated from chunks."""
    achieved_concurrency: float | None
    """Mean number of requests in flight over the wall time."""


def summarise(records: Sequence[RequestRecord], acceptance: Acceptance | None = None) -> Summary:
    """Make the figures of one attempt from its request records.

    Args:
        records: all requests of the attempt, in any order.
        acceptance: from the engine's counters over this cell, where requests do not tell; `acceptance_of` the
            records is used first.
    """
    good = [record for record in records if record.outcome is RequestOutcome.OK]
    rates = _known(output_rate(record) for record in good)
    firsts = _known(time_to_first_token(record) for record in good)
    gaps = [gap / 1e6 for record in good for gap in record.chunk_gaps_us]
    tokens = sum(record.output_tokens or 0 for record in good)
    wall = max((r.end for r in records), default=0.0) - min((r.sent for r in records), default=0.0)
    chunks = sum(record.chunks for record in good)
    busy = sum(record.end - record.sent for record in records)
    return Summary(
        requests=len(records),
        succeeded=len(good),
        failed=sum(1 for r in records if r.outcome in (RequestOutcome.FAILED, RequestOutcome.SHORT)),
        output_tokens=tokens,
        wall=wall,
        output_rate=statistics.median(rates) if rates else None,
        output_rate_spread=(percentile(rates, 0.975) - percentile(rates, 0.025)) / 2 if len(rates) > 1 else None,
        server_rate=tokens / wall if wall > 0 and good else None,
        ttft=statistics.median(firsts) if firsts else None,
        tpot=statistics.median([1.0 / rate for rate in rates]) if rates else None,
        chunk_gap=statistics.median(gaps) if gaps else None,
        tokens_per_chunk=tokens / chunks if chunks else None,
        acceptance=acceptance_of(good) or acceptance,
        cached_tokens=sum(record.cached_tokens or 0 for record in good),
        estimated_tokens=any(record.token_source is TokenSource.ESTIMATED for record in good),
        achieved_concurrency=busy / wall if wall > 0 else None,
    )


def acceptance_of(records: Sequence[RequestRecord]) -> Acceptance | None:
    """Acceptance over requests that each told their own; None where any of them did not tell its verify steps."""
    told = [record.acceptance for record in records]
    if not told or any(one is None or one.steps is None for one in told):
        return None
    known = [one for one in told if one is not None]
    return Acceptance(
        tokens=sum(one.tokens for one in known),
        steps=sum(one.steps or 0 for one in known),
        drafted=_sum_or_none([one.drafted for one in known]),
        accepted=_sum_or_none([one.accepted for one in known]),
        source="request",
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum_or_none(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
