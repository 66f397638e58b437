"""The figures, each with its definition. The same text stands on screen and in the report."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource

DEFINITIONS: dict[str, str] = {
    "output_rate": (
        "tok/s: output tokens of a request over the time from its first to its last token, (n - k) / (last - first); "
        "k: the tokens that had come with the first text, by the engine where it tells them with each chunk, else one; "
        "last: the finish_reason; median over the requests that succeeded"
    ),
    "server_rate": "server tok/s: all output tokens of the cell over its wall time, first send to last end",
    "steady_rate": (
        "steady tok/s: output tokens over the time in which every stream ran, from the last stream's first send until "
        "the first stream had nothing left to send; a chunk's tokens count at its time"
    ),
    "ttft": (
        "TTFT: request sent to first chunk with text (content or reasoning); median; in an open loop from the time at "
        "which it was meant to be sent"
    ),
    "tpot": "TPOT: (last - first) / (n - k) per request, the inverse of tok/s; median",
    "end_to_end": "end to end: request sent (open loop: meant to be sent) to its last token; median",
    "chunk_gap": "chunk gap: time between successive chunks with text; under speculation a chunk holds several tokens; "
    "blank where most chunks were read together, so that their own times are not known",
    "tokens_per_chunk": "tokens a chunk: output tokens over chunks with text",
    "goodput": "goodput: requests a second, over the wall time, that succeeded and kept every limit of protocol.slo",
    "acceptance": (
        "acceptance length: completion tokens / verify steps of this cell's requests, bonus token included; "
        "1.00 for the baseline"
    ),
    "speed_up": "speed-up: median tok/s over the baseline's median tok/s at the same tensor-parallel size and workload",
    "spread": "spread within one launch: half the distance between the 2.5th and 97.5th percentile of the requests",
}


WORTH_TELLING = 0.01
"""A `rate_bias` from which on people are told."""


def output_rate(record: RequestRecord) -> float | None:
    """Output tokens a second of one request, (n - k) / (last - first); None where it is not defined."""
    last = last_token(record)
    if record.output_tokens is None or record.first_text is None or last is None:
        return None
    seconds = last - record.first_text
    tokens = record.output_tokens - tokens_at_first(record)
    # Without a second text there is no pace: what lies between the first one and the end may be a server's manners.
    if tokens < 1 or seconds <= 0 or record.last_text == record.first_text:
        return None
    return tokens / seconds


def last_token(record: RequestRecord) -> float | None:
    """When the last token was there: the `finish_reason`, else the last text. Tokens without text come after it."""
    if record.last_text is None or record.finished is None:
        return record.last_text
    return max(record.last_text, record.finished)


def tokens_at_first(record: RequestRecord) -> int:
    """k: the tokens that had come with the first text; one for each chunk of that read where no engine tells."""
    told = record.first_chunk_tokens
    if told is not None and record.first_chunk_source not in (None, TokenSource.ESTIMATED):
        return max(told, 1)
    chunks = 1  # each chunk of the same read holds a token at least
    for gap in record.chunk_gaps_us:
        if gap:
            break
        chunks += 1
    return chunks


def chunk_gap(records: Iterable[RequestRecord]) -> float | None:
    """The median time between chunks with text, in seconds; None where most were read with the one before.

    Chunks of one read share its time, so that the gap between them says when they were read, not when they came.
    """
    gaps = [gap for record in records for gap in record.chunk_gaps_us]
    middle = statistics.median(gaps) if gaps else 0.0
    return middle / 1e6 if middle > 0 else None


def rate_bias(record: RequestRecord) -> float | None:
    """The share by which `output_rate` is too high if the first text held as many tokens as its length suggests.

    0 where the engine tells the tokens of each chunk; None where there is no rate, or the record is an old one.
    """
    if output_rate(record) is None or record.first_chunk_tokens is None or record.output_tokens is None:
        return None
    rest = record.output_tokens - record.first_chunk_tokens
    return (record.output_tokens - tokens_at_first(record)) / rest - 1 if rest > 0 else None


def begin(record: RequestRecord) -> float:
    """From when its latencies count: when it was meant to be sent in an open loop, else when it was sent."""
    return record.sent if record.intended is None else record.intended


def time_to_first_token(record: RequestRecord) -> float | None:
    """Seconds from `begin` to the first chunk with text."""
    return None if record.first_text is None else record.first_text - begin(record)


def time_per_output_token(record: RequestRecord) -> float | None:
    """Seconds per output token after the first text, (last - first) / (n - k)."""
    rate = output_rate(record)
    return None if rate is None else 1.0 / rate


def end_to_end(record: RequestRecord) -> float | None:
    """Seconds from `begin` to the last token."""
    last = last_token(record)
    return None if last is None else last - begin(record)


@dataclass(frozen=True, slots=True)
class Slo:
    """What a request must keep to be a good one, in seconds; None is no limit."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None

    @staticmethod
    def from_json(data: Mapping[str, float | None] | None) -> "Slo | None":
        """As a plan's protocol has it; None without any limit."""
        limits = {name: (data or {}).get(name) for name in ("ttft", "tpot", "e2e")}
        return Slo(**limits) if any(limit is not None for limit in limits.values()) else None

    def kept_by(self, record: RequestRecord) -> bool:
        """Whether the request succeeded within every limit. An answer of one token keeps every `tpot`."""
        if record.outcome is not RequestOutcome.OK:
            return False
        told = (
            (self.ttft, time_to_first_token(record)),
            (self.tpot, time_per_output_token(record)),
            (self.e2e, end_to_end(record)),
        )
        return all(limit is None or value is None or value <= limit for limit, value in told)


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
    end_to_end: float | None = None
    goodput: float | None = None
    """Requests a second within the plan's limits; None without limits."""
    good_share: float | None = None
    """Of all requests, those within the limits."""
    steady_rate: float | None = None
    """Tokens a second while all streams ran; None for one stream, an open loop, or streams that never overlapped."""
    steady_seconds: float | None = None
    rate_bias: float | None = None
    """The share by which `output_rate` may be too high because no engine told the tokens of the first chunk; median."""
    send_delay: float | None = None
    """Open loop: seconds by which requests were sent later than meant, the worst."""


def summarise(
    records: Sequence[RequestRecord], acceptance: Acceptance | None = None, slo: Slo | None = None
) -> Summary:
    """Make the figures of one attempt from its request records.

    Args:
        records: all requests of the attempt, in any order.
        acceptance: from the engine's counters over this cell, where requests do not tell; `acceptance_of` the
            records is used first.
        slo: limits for the goodput.
    """
    good = [record for record in records if record.outcome is RequestOutcome.OK]
    rates = _known(output_rate(record) for record in good)
    firsts = _known(time_to_first_token(record) for record in good)
    tokens = sum(record.output_tokens or 0 for record in good)
    wall = max((r.end for r in records), default=0.0) - min((begin(r) for r in records), default=0.0)
    biases = _known(rate_bias(record) for record in good)
    ends = _known(end_to_end(record) for record in good)
    kept = sum(1 for record in records if slo.kept_by(record)) if slo else 0
    steady = steady_window(records)
    delays = [record.sent - record.intended for record in records if record.intended is not None]
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
        chunk_gap=chunk_gap(good),
        tokens_per_chunk=tokens / chunks if chunks else None,
        acceptance=acceptance_of(good) or acceptance,
        cached_tokens=sum(record.cached_tokens or 0 for record in good),
        estimated_tokens=any(record.token_source is TokenSource.ESTIMATED for record in good),
        achieved_concurrency=busy / wall if wall > 0 else None,
        end_to_end=statistics.median(ends) if ends else None,
        goodput=kept / wall if slo and wall > 0 else None,
        good_share=kept / len(records) if slo and records else None,
        steady_rate=tokens_within(good, *steady) / (steady[1] - steady[0]) if steady else None,
        steady_seconds=steady[1] - steady[0] if steady else None,
        rate_bias=statistics.median(biases) if biases else None,
        send_delay=max(delays) if delays else None,
    )


def steady_window(records: Sequence[RequestRecord]) -> tuple[float, float] | None:
    """From when every stream ran until the first one had nothing left to send; None where there is no such time."""
    if any(record.intended is not None for record in records):
        return None
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for record in records:
        first[record.stream] = min(record.sent, first.get(record.stream, math.inf))
        last[record.stream] = max(record.end, last.get(record.stream, -math.inf))
    if len(first) < 2:
        return None
    began, ended = max(first.values()), min(last.values())
    return (began, ended) if ended > began else None


def tokens_within(records: Iterable[RequestRecord], began: float, ended: float) -> float:
    """Output tokens that came after `began` and not after `ended`.

    Chunks after the first read share what it left evenly: engines seldom tell the tokens of each.
    """
    tokens = 0.0
    for record in records:
        if record.first_text is None or not record.output_tokens:
            continue
        at = record.first_text
        alone = len(record.chunk_gaps_us) == 0
        first = record.output_tokens if alone else min(tokens_at_first(record), record.output_tokens)
        share = 0.0 if alone else (record.output_tokens - first) / len(record.chunk_gaps_us)
        tokens += first if began < at <= ended else 0
        for gap in record.chunk_gaps_us:
            at = min(at + gap / 1e6, record.last_text or at)  # the gaps are whole microseconds
            tokens += share if began < at <= ended else 0.0
    return tokens


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
        accepted_at=sum_by_position([one.accepted_at for one in known]),
    )


def sum_by_position(counts: Sequence[Sequence[int] | None]) -> tuple[int, ...] | None:
    """Counts by position added up, shorter ones as if zeros followed; None where any of them was not told."""
    if not counts or any(one is None for one in counts):
        return None
    known = [one for one in counts if one is not None]
    return tuple(sum(column) for column in zip_longest(*known, fillvalue=0))


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _sum_or_none(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
