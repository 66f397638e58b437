"""The figures of one cell over its counted attempts."""

import statistics
from collections.abc import Callable, Sequence
from operator import attrgetter

from ddconsole.core.figures import Summary, sum_by_position
from ddconsole.core.records import Acceptance, RequestOutcome
from ddconsole.report.read_attempt import ReadAttempt, RequestFigures
from ddconsole.report.result_set import PERCENTILES, CellFigures, Distribution, TurnFigures
from ddconsole.report.statistics import Estimate, Observations, certified_percentile, median_estimate, observe

Figure = Callable[[RequestFigures], float | None]

_RATE: Figure = attrgetter("output_rate")
_TTFT: Figure = attrgetter("ttft")


def rates_of(attempts: Sequence[ReadAttempt]) -> Observations | None:
    """The output rate of every request that succeeded, by launch, repetition and prompt."""
    return _observed(attempts, _RATE)


def figures_of(attempts: Sequence[ReadAttempt], *, is_plain_baseline: bool) -> CellFigures:
    """The figures of a cell.

    Args:
        attempts: its counted ones, at least one.
        is_plain_baseline: it decodes without speculation, so its acceptance length is 1.00 by definition.
    """
    counted = [one.counted for one in attempts]
    summaries = [one.summary for one in counted]
    rates = rates_of(attempts)
    tokens = sum(one.output_tokens for one in summaries)
    wall = sum(one.wall for one in summaries)
    acceptance = merged_acceptance([one.acceptance for one in summaries])
    if acceptance is None and is_plain_baseline and tokens:
        acceptance = Acceptance(tokens, tokens, None, None, "baseline")
    return CellFigures(
        attempts=tuple(counted),
        launches=len({one.launch for one in attempts}),
        repetitions=int(rates.repetitions.sum()) if rates else 0,
        requests=sum(one.requests for one in summaries),
        succeeded=sum(one.succeeded for one in summaries),
        output_tokens=tokens,
        output_rate=median_estimate(rates),
        server_rate=tokens / wall if wall > 0 else None,
        acceptance=acceptance,
        ttft=_distribution(_observed(attempts, _TTFT)),
        tpot=_distribution(_observed(attempts, attrgetter("tpot"))),
        chunk_gap=_median([one.chunk_gap for one in summaries]),
        cached_tokens=sum(one.cached_tokens for one in summaries),
        achieved_concurrency=_mean_over_time(summaries),
        branches=_branches(attempts),
        end_to_end=_distribution(_observed(attempts, attrgetter("end_to_end"))),
        tokens_per_chunk=_median([one.tokens_per_chunk for one in summaries]),
        goodput=_median([one.goodput for one in summaries]),
        steady_rate=_median([one.steady_rate for one in summaries]),
        steady_seconds=_median([one.steady_seconds for one in summaries]),
        rate_bias=_median([one.rate_bias for one in summaries]),
        turns=_turns(attempts, is_plain_baseline=is_plain_baseline),
        request_acceptance=tuple(
            one.acceptance.length
            for one in _succeeded(attempts)
            if one.acceptance is not None and one.acceptance.length is not None
        ),
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
        accepted_at=sum_by_position([one.accepted_at for one in known]),
    )


def _turns(attempts: Sequence[ReadAttempt], *, is_plain_baseline: bool) -> tuple[TurnFigures, ...]:
    """Each turn of a conversation; none of another load."""
    by_turn: dict[int, list[RequestFigures]] = {}
    for one in _succeeded(attempts):
        if one.turn:
            by_turn.setdefault(one.turn, []).append(one)
    return tuple(_turn(turn, by_turn[turn], attempts, is_plain_baseline) for turn in sorted(by_turn))


def _turn(
    turn: int, requests: Sequence[RequestFigures], attempts: Sequence[ReadAttempt], is_plain_baseline: bool
) -> TurnFigures:
    def of_turn(figure: Figure) -> Figure:
        return lambda one: figure(one) if one.turn == turn else None

    tokens = sum(one.output_tokens or 0 for one in requests)
    acceptance = merged_acceptance([one.acceptance for one in requests])
    if acceptance is None and is_plain_baseline and tokens:
        acceptance = Acceptance(tokens, tokens, None, None, "baseline")
    return TurnFigures(
        turn=turn,
        requests=len(requests),
        context=_median([one.prompt_tokens for one in requests]),
        output_rate=median_estimate(_observed(attempts, of_turn(_RATE))),
        ttft=_certified(_observed(attempts, of_turn(_TTFT))),
        acceptance=acceptance,
    )


def _succeeded(attempts: Sequence[ReadAttempt]) -> list[RequestFigures]:
    return [one for attempt in attempts for one in attempt.requests if one.outcome is RequestOutcome.OK]


def _observed(attempts: Sequence[ReadAttempt], figure: Figure) -> Observations | None:
    by_launch: dict[int, list[tuple[RequestFigures, ...]]] = {}
    for one in attempts:
        by_launch.setdefault(one.launch, []).append(one.requests)
    return observe(by_launch, figure)


def _certified(observations: Observations | None) -> Estimate | None:
    """The median of a time, by the floor that the percentiles of a cell's times have."""
    if observations is None or certified_percentile(observations.known(), 0.50) is None:
        return None
    return median_estimate(observations)


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


def _branches(attempts: Sequence[ReadAttempt]) -> bool | None:
    """What the build's log says of its tree, as the engine passed it on in `effective`; None where it says nothing."""
    told = [one.effective.get("branches") for one in attempts]
    return next((one for one in told if isinstance(one, bool)), None)
