"""The figures of one cell over its counted attempts."""

import statistics
from collections.abc import Callable, Mapping, Sequence

from ddconsole.core.attempt_file import AttemptFile, acceptance_from_json
from ddconsole.core.figures import (
    Slo,
    Summary,
    end_to_end,
    output_rate,
    summarise,
    time_per_output_token,
    time_to_first_token,
)
from ddconsole.core.records import Acceptance, RequestRecord
from ddconsole.report.result_set import PERCENTILES, CellFigures, CountedAttempt, Distribution
from ddconsole.report.statistics import Observations, certified_percentile, median_estimate, observe


def counted_attempt(file: AttemptFile) -> CountedAttempt:
    """An attempt with the figures of its records; acceptance from the engine's counters where no record tells it."""
    told = file.figures.get("acceptance")
    acceptance = acceptance_from_json(told) if isinstance(told, Mapping) else None
    summary = summarise(file.requests, acceptance, Slo.from_json(file.slo))
    return CountedAttempt(
        number=file.attempt,
        launch=file.launch,
        round=file.round,
        started_at=file.started_at,
        ended_at=file.ended_at,
        summary=summary,
        flags=file.flags,
    )


def rates_of(files: Sequence[AttemptFile]) -> Observations | None:
    """The output rate of every request that succeeded, by launch, repetition and prompt."""
    return _observed(files, output_rate)


def figures_of(
    files: Sequence[AttemptFile], attempts: Sequence[CountedAttempt], *, is_plain_baseline: bool
) -> CellFigures:
    """The figures of a cell.

    Args:
        files: its counted attempts, at least one.
        attempts: the same with their summaries.
        is_plain_baseline: it decodes without speculation, so its acceptance length is 1.00 by definition.
    """
    summaries = [attempt.summary for attempt in attempts]
    rates = rates_of(files)
    tokens = sum(one.output_tokens for one in summaries)
    wall = sum(one.wall for one in summaries)
    acceptance = merged_acceptance([one.acceptance for one in summaries])
    if acceptance is None and is_plain_baseline and tokens:
        acceptance = Acceptance(tokens, tokens, None, None, "baseline")
    return CellFigures(
        attempts=tuple(attempts),
        launches=len({file.launch for file in files}),
        repetitions=int(rates.repetitions.sum()) if rates else 0,
        requests=sum(one.requests for one in summaries),
        succeeded=sum(one.succeeded for one in summaries),
        output_tokens=tokens,
        output_rate=median_estimate(rates),
        server_rate=tokens / wall if wall > 0 else None,
        acceptance=acceptance,
        ttft=_distribution(_observed(files, time_to_first_token)),
        tpot=_distribution(_observed(files, time_per_output_token)),
        chunk_gap=_median([one.chunk_gap for one in summaries]),
        cached_tokens=sum(one.cached_tokens for one in summaries),
        achieved_concurrency=_mean_over_time(summaries),
        branches=_branches(files),
        end_to_end=_distribution(_observed(files, end_to_end)),
        tokens_per_chunk=_median([one.tokens_per_chunk for one in summaries]),
        goodput=_median([one.goodput for one in summaries]),
        steady_rate=_median([one.steady_rate for one in summaries]),
        steady_seconds=_median([one.steady_seconds for one in summaries]),
        rate_bias=_median([one.rate_bias for one in summaries]),
    )


def merged_acceptance(parts: Sequence[Acceptance | None]) -> Acceptance | None:
    """Acceptance over several attempts; None where any of them is unknown."""
    known = [one for one in parts if one is not None and one.steps is not None]
    if not known or len(known) < len(parts):
        return None
    sources = {one.source for one in known}
    return Acceptance(
        tokens=sum(one.tokens for one in known),
        steps=sum(one.steps or 0 for one in known),
        drafted=None,
        accepted=None,
        source=known[0].source if len(sources) == 1 else "counters",
    )


def _observed(files: Sequence[AttemptFile], figure: Callable[[RequestRecord], float | None]) -> Observations | None:
    by_launch: dict[int, list[tuple[RequestRecord, ...]]] = {}
    for file in files:
        by_launch.setdefault(file.launch, []).append(file.requests)
    return observe(by_launch, figure)


def _distribution(observations: Observations | None) -> Distribution:
    values = observations.known() if observations else []
    return Distribution(len(values), tuple(certified_percentile(values, one) for one in PERCENTILES))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _mean_over_time(summaries: Sequence[Summary]) -> float | None:
    known = [(one.achieved_concurrency, one.wall) for one in summaries if one.achieved_concurrency is not None]
    wall = sum(seconds for _, seconds in known)
    return sum(number * seconds for number, seconds in known) / wall if wall > 0 else None


def _branches(files: Sequence[AttemptFile]) -> bool | None:
    """What the build's log says of its tree, as the engine passed it on in `effective`; None where it says nothing."""
    told = [file.effective.get("branches") for file in files]
    return next((one for one in told if isinstance(one, bool)), None)
