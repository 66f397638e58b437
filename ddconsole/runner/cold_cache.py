"""A cell that is to be measured with an empty prefix cache: what of its prompts came from the cache all the same.

The same prompts come again in each repetition. Where one request runs at a time the cache is emptied between them;
where several run, it cannot be, and the cell is flagged.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ddconsole.core.plan_values import random_length
from ddconsole.core.records import CellProgress, RequestOutcome, RequestRecord
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines.engine import Flush
from ddconsole.load.task import LoadReport, LoadTask
from ddconsole.runner.load_process import LoadResult

HIT_SHARE = 0.5
"""Of a prompt's tokens: from here on a request found its prompt in the cache. Chat templates share their beginning."""

OnProgress = Callable[[CellProgress], None]
RunLoad = Callable[[LoadTask, OnProgress], Awaitable[LoadResult]]


def repeats_cold(point: WorkloadPoint) -> bool:
    """Whether its repetitions are to be measured one by one, with a flush before each."""
    return point.kind == "single" and point.repetitions > 1 and random_length(point.prompts) is None


async def measure_repetitions(
    task: LoadTask, run_load: RunLoad, flush: Callable[[], Awaitable[Flush]], on_progress: OnProgress
) -> tuple[LoadResult, Flush]:
    """Measure each repetition by itself, the cache emptied in between; all together, and the last flush.

    It ends early where the load process died or was told to stop, or where a flush did not succeed: then the rest is
    measured without.
    """
    results: list[LoadResult] = []
    emptied = Flush(True, "")
    left = task.point.repetitions
    while left:
        number = 1 if emptied.done else left
        begun = task.point.repetitions - left
        part = replace(task, point=replace(task.point, repetitions=number))
        result = await run_load(part, _whole_progress(task.point, begun, on_progress))
        results.append(_placed(result, begun, sum(len(one.records) for one in results)))
        left -= number
        if result.report is None or result.report.cancelled:
            break
        if left:
            emptied = await flush()
    return _joined(results), emptied


def _whole_progress(point: WorkloadPoint, begun: int, on_progress: OnProgress) -> OnProgress:
    def tell(progress: CellProgress) -> None:
        done = begun * point.requests + progress.requests_done
        on_progress(replace(progress, requests_done=done, requests_planned=point.requests * point.repetitions))

    return tell


def _placed(result: LoadResult, repetition: int, index: int) -> LoadResult:
    """The result with its records counted on from those before."""
    records = (replace(one, index=one.index + index, repetition=one.repetition + repetition) for one in result.records)
    return replace(result, records=tuple(records))


def _joined(results: Sequence[LoadResult]) -> LoadResult:
    records = tuple(record for result in results for record in result.records)
    reports = [result.report for result in results if result.report is not None]
    if len(reports) < len(results):
        return LoadResult(records, None, results[-1].died)
    return LoadResult(records, _joined_report(reports))


def _joined_report(reports: Sequence[LoadReport]) -> LoadReport:
    wall = sum(one.wall_seconds for one in reports)
    lags = [(one.mean_loop_lag, one.wall_seconds) for one in reports if one.mean_loop_lag is not None]
    weight = sum(seconds for _, seconds in lags)
    return replace(
        reports[-1],
        cpu_seconds=sum(one.cpu_seconds for one in reports),
        wall_seconds=wall,
        worst_loop_lag=max(one.worst_loop_lag for one in reports),
        notes=tuple(dict.fromkeys(note for one in reports for note in one.notes)),
        achieved_concurrency=None,
        mean_loop_lag=sum(lag * seconds for lag, seconds in lags) / weight if weight else None,
        achieved_rate=None,
    )


def cache_flags(records: Sequence[RequestRecord]) -> tuple[str, ...]:
    """What of a cold cell's prompts came from the cache. A request counts as a hit from `HIT_SHARE` on."""
    good = [one for one in records if one.outcome is RequestOutcome.OK and one.prompt_tokens]
    hits = [one for one in good if (one.cached_tokens or 0) >= HIT_SHARE * (one.prompt_tokens or 0)]
    if not hits:
        return ()
    cached = sum(one.cached_tokens or 0 for one in hits)
    share = cached / sum(one.prompt_tokens or 0 for one in hits)
    seen: set[str] = set()
    again = 0
    for one in sorted(good, key=lambda one: one.sent):
        again += one.prompt in seen and one in hits
        seen.add(one.prompt)
    why = "their prompts had been sent before in this cell" if again == len(hits) else "it was not empty"
    text = f"{len(hits)} of {len(good)} requests found {share:.0%} of their prompt in the prefix cache, of a cold cell"
    return (f"{text}: {why}; their TTFT is that of a warm cache",)
