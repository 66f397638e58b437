"""Whether an attempt counts, by what became of its requests."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from answers import answer

from ddconsole.core.figures import summarise
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.states import Cause, Retry
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.load.task import LoadReport
from ddconsole.runner.attempt_failure import failure_of
from ddconsole.runner.load_process import LoadResult

REPORT = LoadReport(0.1, 1.0, 0.0, False, 0, 0)


def answers(good: int, failed: int, error: str = "HTTP 500") -> list[RequestRecord]:
    broken = replace(answer(50.0), outcome=RequestOutcome.FAILED, error=error)
    return [answer(50.0)] * good + [broken] * failed


def judged(records: Sequence[RequestRecord], limit: float = 0.01, kind: str = "single") -> Cause | None:
    point = WorkloadPoint("w", kind, "p", 1, 32, 1, len(records), Sampling())
    return failure_of(point, summarise(records), records, LoadResult(tuple(records), REPORT), {"failure_limit": limit})


def test_no_success_is_never_done() -> None:
    """[5.7: vllm#11167: a run in which every request failed was recorded as done]"""
    cause = judged(answers(0, 3), limit=1.0)
    assert cause is not None
    assert (cause.id, cause.text, cause.retry) == ("REQUEST", "3 of 3 requests failed: HTTP 500", Retry.CHANGE)
    assert cause.evidence == ("p: HTTP 500",)


def test_one_request_in_a_hundred_may_fail_and_no_more() -> None:
    """[5.5] 1 % of 100 requests is one."""
    assert judged(answers(99, 1)) is None
    cause = judged(answers(98, 2))
    assert cause is not None
    assert cause.text == "2 of 100 requests failed: HTTP 500"
    assert judged(answers(98, 2), limit=0.02) is None


def test_a_server_that_was_killed_half_way_gives_exact_counts() -> None:
    """[2.5: 25 successes and 25 failures in one summary]"""
    records = answers(25, 25, "Server disconnected")
    figures = summarise(records)
    assert (figures.requests, figures.succeeded, figures.failed) == (50, 25, 25)
    assert figures.output_tokens == 25 * 32
    cause = judged(records)
    assert cause is not None
    assert (cause.id, cause.retry) == ("CONNECTION", Retry.AS_IS)


@pytest.mark.parametrize(
    ("error", "said"), [("no token for 180 s", "STALL"), ("connection reset", "CONNECTION"), ("queue full", "REQUEST")]
)
def test_what_ended_the_requests_has_a_name(error: str, said: str) -> None:
    cause = judged(answers(0, 1, error))
    assert cause is not None
    assert cause.id == said


def test_a_load_process_that_died_and_a_conversation_that_ended_early() -> None:
    point = WorkloadPoint("w", "conversation", "p", 1, 32, 1, 5, Sampling())
    records = answers(4, 0)
    died = failure_of(point, summarise(records), records, LoadResult((), None, "killed by signal 9"), {})
    assert died is not None
    assert died.text == "the load process died: killed by signal 9"
    short = failure_of(point, summarise(records), records, LoadResult(tuple(records), REPORT), {})
    assert short is not None
    assert short.text == "only 4 of 5 turns were sent"
