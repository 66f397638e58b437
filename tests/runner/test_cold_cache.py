"""A cold cell: the cache is emptied between its repetitions, and what came from it all the same is told."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest
from answers import answer

from ddconsole.core.records import CellProgress, RequestOutcome, RequestRecord
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.engines.engine import Flush
from ddconsole.load.task import LoadReport, LoadTask, Prompt
from ddconsole.runner.cold_cache import cache_flags, measure_repetitions, repeats_cold
from ddconsole.runner.load_process import LoadResult

POINT = WorkloadPoint("generate", "single", "two", 1, 32, 3, 2, Sampling())
TASK = LoadTask("c001", 1, "http://x", "m", POINT, (Prompt("a", "A"), Prompt("b", "B")), None)
REPORT = LoadReport(0.5, 10.0, 0.02, False, 0, 0, mean_loop_lag=0.001)


class Generator:
    """Answers as a load process does, and notes what was asked of it."""

    def __init__(self, flushes: list[bool] | None = None, cancelled_in: int | None = None) -> None:
        self.said: list[str] = []
        self.progress: list[tuple[int, int]] = []
        self._flushes = flushes or []
        self._cancelled_in = cancelled_in

    async def run_load(self, task: LoadTask, tell: Callable[[CellProgress], None]) -> LoadResult:
        self.said.append(f"load {task.point.repetitions}")
        tell(CellProgress("c001", 1, 1, 2, 0, 1, None, 0.0))
        records = tuple(
            replace(answer(50.0), index=number, repetition=number // 2, prompt="ab"[number % 2])
            for number in range(2 * task.point.repetitions)
        )
        number = sum(one.startswith("load") for one in self.said)
        return LoadResult(
            records, replace(REPORT, cancelled=number == self._cancelled_in, worst_loop_lag=0.01 * number)
        )

    async def flush(self) -> Flush:
        self.said.append("flush")
        done = self._flushes.pop(0) if self._flushes else True
        return Flush(done, "" if done else "/flush_cache answers 400")

    def measure(self) -> tuple[LoadResult, Flush]:
        def tell(progress: CellProgress) -> None:
            self.progress.append((progress.requests_done, progress.requests_planned))

        return asyncio.run(measure_repetitions(TASK, self.run_load, self.flush, tell))


def test_the_cache_is_emptied_before_each_repetition_and_the_records_count_on() -> None:
    """[2.9.7, 5.16: the second repetition of the same prompts read TTFT 49 times better]"""
    generator = Generator()
    result, emptied = generator.measure()
    assert generator.said == ["load 1", "flush", "load 1", "flush", "load 1"]
    assert emptied.done
    assert [(one.index, one.repetition, one.prompt) for one in result.records] == [
        (0, 0, "a"), (1, 0, "b"), (2, 1, "a"), (3, 1, "b"), (4, 2, "a"), (5, 2, "b"),
    ]  # fmt: skip
    assert generator.progress == [(1, 6), (3, 6), (5, 6)]
    report = result.report
    assert report is not None
    assert (report.cpu_seconds, report.wall_seconds, report.worst_loop_lag) == (1.5, 30.0, 0.03)
    assert report.mean_loop_lag == pytest.approx(0.001)


def test_a_flush_that_fails_is_told_and_the_rest_is_measured_without() -> None:
    """[2.9.8: sglang#33663: a flush refused with HTTP 400 went unseen]"""
    generator = Generator([False])
    result, emptied = generator.measure()
    assert generator.said == ["load 1", "flush", "load 2"]
    assert emptied == Flush(False, "/flush_cache answers 400")
    assert [(one.index, one.repetition) for one in result.records][-1] == (5, 2)


def test_a_stopped_cell_measures_no_further_repetition() -> None:
    generator = Generator(cancelled_in=2)
    result, _ = generator.measure()
    assert generator.said == ["load 1", "flush", "load 1"]
    assert result.report is not None
    assert result.report.cancelled


def test_only_single_requests_with_prompts_that_come_again_are_measured_one_by_one() -> None:
    assert repeats_cold(POINT)
    assert not repeats_cold(replace(POINT, repetitions=1))
    assert not repeats_cold(replace(POINT, kind="closed-loop", concurrency=4))
    assert not repeats_cold(replace(POINT, prompts="random:64"))


def request(prompt: str, cached: int | None, sent: float, tokens: int = 100) -> RequestRecord:
    return replace(answer(50.0), prompt=prompt, cached_tokens=cached, sent=sent, prompt_tokens=tokens)


def test_a_cold_cell_that_hit_the_cache_is_flagged_with_how_much() -> None:
    """Of four requests two found 90 and 94 of 100 tokens: 92 %, and `a` had been sent by nobody before."""
    (flag,) = cache_flags([request("a", 90, 1.0), request("b", 94, 2.0), request("c", 0, 3.0), request("d", None, 4.0)])
    text = "2 of 4 requests found 92% of their prompt in the prefix cache, of a cold cell: it was not empty"
    assert flag == f"{text}; their TTFT is that of a warm cache"


def test_prompts_that_had_been_sent_before_are_told_from_a_cache_that_was_not_empty() -> None:
    (flag,) = cache_flags([request("a", 3, 1.0), request("b", 3, 2.0), request("a", 99, 3.0), request("b", 99, 4.0)])
    assert flag.startswith("2 of 4 requests found 99% of their prompt")
    assert "their prompts had been sent before in this cell" in flag


def test_the_beginning_that_a_chat_template_shares_and_failed_requests_are_no_hits() -> None:
    failed = replace(request("a", 100, 1.0), outcome=RequestOutcome.FAILED)
    assert cache_flags([request("a", 12, 1.0), request("b", 49, 2.0), failed]) == ()
