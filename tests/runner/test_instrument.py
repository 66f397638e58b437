"""Results that the instrument spoiled are flagged, and those that it did not are not."""

from dataclasses import replace

import pytest

from ddconsole.core.figures import summarise
from ddconsole.core.records import RequestOutcome, RequestRecord, TokenSource
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.engines.engine import Counters
from ddconsole.load.in_flight import InFlight
from ddconsole.load.task import LoadReport
from ddconsole.runner.instrument import engine_ttft, generator_flags, instrument_flags, ttft_flags

POINT = WorkloadPoint("w", "closed-loop", "p", 8, 10, 1, 4, Sampling())
QUIET = LoadReport(0.5, 10.0, 0.02, False, 0, 0, achieved_concurrency=7.9, mean_loop_lag=0.0004)


def record(ttft: float, *, intended: float | None = None) -> RequestRecord:
    return RequestRecord(
        index=0, repetition=0, prompt="p", turn=0, stream=0, sent=1.0, first_text=1.0 + ttft, last_text=2.0 + ttft,
        end=2.0 + ttft, chunks=10, chunk_gaps_us=(111_111,) * 9, prompt_tokens=9, output_tokens=10,
        token_source=TokenSource.USAGE, cached_tokens=0, reasoning_tokens=None, finish_reason="length",
        outcome=RequestOutcome.OK, error=None, text_sha256="", finished=2.0 + ttft, first_chunk_tokens=1,
        first_chunk_source=TokenSource.USAGE, intended=intended,
    )  # fmt: skip


RECORDS = [record(0.1), record(0.1), record(0.3), record(0.3)]


def engine(count: int, seconds: float) -> Counters:
    return Counters(ttft_count=count, ttft_seconds=seconds)


def test_a_quiet_generator_and_an_engine_that_agrees_say_nothing() -> None:
    """Our mean is 0.2 s; the engine counted 4 requests of 0.19 s each after 10 others."""
    counters = (engine(10, 5.0), engine(14, 5.76))
    assert engine_ttft(*counters, 4) == pytest.approx(0.19)
    assert instrument_flags(POINT, summarise(RECORDS), QUIET, RECORDS, counters) == ()


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (replace(QUIET, cpu_seconds=9.1), "used 91% of a core"),
        (replace(QUIET, mean_loop_lag=0.04), "40 ms late on the mean"),
        (replace(QUIET, achieved_concurrency=6.1), "only 6.1 of 8 requests"),
    ],
)
def test_a_generator_at_its_limit_is_told(report: LoadReport, said: str) -> None:
    (flag,) = generator_flags(POINT, summarise(RECORDS), report)
    assert said in flag


def test_a_lag_that_is_small_beside_the_ttft_is_not_told() -> None:
    """Median TTFT 0.2 s: a tenth of it is 20 ms."""
    assert generator_flags(POINT, summarise(RECORDS), replace(QUIET, mean_loop_lag=0.019)) == []
    assert generator_flags(POINT, summarise(RECORDS), replace(QUIET, mean_loop_lag=0.021)) != []


def test_an_open_loop_that_sent_late_is_told_and_its_concurrency_is_no_target() -> None:
    point = replace(POINT, kind="open-loop", rate=4.0, arrivals="constant")
    late = [record(0.1, intended=0.88), record(0.1, intended=1.0)]
    (flag,) = generator_flags(point, summarise(late), replace(QUIET, achieved_concurrency=0.5))
    assert "120 ms after its time" in flag


def test_a_ttft_that_the_engines_histogram_contradicts_is_told() -> None:
    (flag,) = ttft_flags(RECORDS, engine(10, 5.0), engine(14, 5.04))
    assert "200 ms here and 10 ms in the engine's histogram" in flag
    (flag,) = ttft_flags(RECORDS, engine(10, 5.0), engine(14, 7.0))
    assert "200 ms here and 500 ms" in flag


def test_a_histogram_of_other_requests_says_nothing() -> None:
    assert ttft_flags(RECORDS, engine(10, 5.0), engine(15, 5.04)) == []
    assert ttft_flags(RECORDS, engine(10, 5.0), engine(4, 0.04)) == []
    assert ttft_flags(RECORDS, None, engine(4, 0.04)) == []
    assert ttft_flags(RECORDS, Counters(), Counters()) == []
    assert ttft_flags(RECORDS, Counters(), engine(4, 0.04)) != [], "its first request made the histogram"


def test_an_open_loop_is_compared_by_when_it_was_sent() -> None:
    """The engine cannot know that the client was late."""
    late = [replace(one, intended=0.0) for one in RECORDS]
    assert ttft_flags(late, engine(10, 5.0), engine(14, 5.76)) == []


def test_the_rate_of_sending() -> None:
    """Four requests at 0, 1, 2 and 3 s: three gaps of one second."""
    flights = InFlight()
    assert flights.sending_rate is None
    for at in range(4):
        flights.sent(float(at))
    assert flights.sending_rate == pytest.approx(1.0)
