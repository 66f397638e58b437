"""Figures of a cell out of its requests' records, worked out by hand.

Numbers in brackets name the section of the survey of load generators and the threads that reported the fault.
"""

import itertools
from dataclasses import replace

import pytest
from timed_streams import ending, event, measured, request, text

from ddconsole.core.figures import Slo, Summary, steady_window, summarise, tokens_within
from ddconsole.core.records import Acceptance
from ddconsole.engines.engine import Counters
from ddconsole.runner.acceptance import acceptance_from_counters


def test_a_request_without_text_enters_no_median_as_zero() -> None:
    """[2.2: sglang#36047, #12389: a sentinel of 0.0 made the median TTFT 0.00]"""
    failed = measured([(0.01, event(error={"message": "full"}) + b"data: [DONE]\n\n")], 4)
    figures = summarise([failed, failed, request(0.0, 0.4, 0.1, 4)])
    assert figures.ttft == pytest.approx(0.4)
    assert (figures.succeeded, figures.failed) == (1, 2)


def test_no_success_gives_no_figure() -> None:
    """[5.7]"""
    failed = measured([(0.01, event(error={"message": "full"}) + b"data: [DONE]\n\n")], 4)
    figures = summarise([failed])
    assert (figures.succeeded, figures.output_rate, figures.server_rate, figures.ttft) == (0, None, None, None)


def test_rates_of_the_cell_and_the_time_in_which_every_stream_ran() -> None:
    """Two streams: 0.0 to 1.0 and 0.55 to 2.55. Both run from 0.55 to 1.0.

    Stream 0: texts at 0.1, 0.2 .. 1.0 (10 tokens). Stream 1: at 0.65, 0.75 .. 2.55 (20 tokens). Whole: 30 tokens in
    2.55 s. From 0.55 to 1.0: 5 and 4 tokens in 0.45 s, 20 tok/s.
    """
    records = [request(0.0, 0.1, 0.1, 10, stream=0), request(0.55, 0.65, 0.1, 20, stream=1)]
    figures = summarise(records)
    assert figures.server_rate == pytest.approx(30 / 2.55)
    assert steady_window(records) == pytest.approx((0.55, 1.0))
    assert figures.steady_seconds == pytest.approx(0.45)
    assert figures.steady_rate == pytest.approx(20)


def test_one_stream_has_no_steady_window_and_nor_have_streams_that_never_overlap() -> None:
    assert summarise([request(0.0, 0.1, 0.1, 4)]).steady_rate is None
    assert summarise([request(0.0, 0.1, 0.1, 4), request(5.0, 5.1, 0.1, 4, stream=1)]).steady_rate is None


def test_tokens_of_a_window_add_up_to_the_answers() -> None:
    records = [request(0.0, 0.1, 0.013, 37), request(0.0, 0.3, 0.007, 91, stream=1)]
    edges = [-1.0, 0.1, 0.25, 0.4, 2.0]
    parts = [tokens_within(records, low, high) for low, high in itertools.pairwise(edges)]
    assert sum(parts) == pytest.approx(128)
    assert parts[0] == 1, "the end of a window belongs to it, its begin to the one before"


def test_goodput_counts_requests_that_keep_every_limit() -> None:
    """Four requests in 2 s. TTFT 0.1, 0.1, 0.6 and a failure; TPOT 10 ms, 80 ms, 10 ms: only the first keeps both."""
    records = [
        request(0.0, 0.1, 0.01, 11),
        request(0.0, 0.1, 0.08, 11),
        request(0.0, 0.6, 0.01, 11),
        measured([(2.0, event(error="boom"))], 11),
    ]
    figures = summarise(records, slo=Slo(ttft=0.5, tpot=0.05))
    assert figures.wall == pytest.approx(2.0)
    assert figures.goodput == pytest.approx(1 / 2.0)
    assert figures.good_share == pytest.approx(1 / 4)
    assert summarise(records, slo=Slo(e2e=0.75)).good_share == pytest.approx(2 / 4), "0.2 s, 0.9 s, 0.7 s"
    assert summarise(records).goodput is None
    assert Slo.from_json({"ttft": None, "tpot": None, "e2e": None}) is None
    assert Slo.from_json({"ttft": 0.5}) == Slo(ttft=0.5)


def test_an_open_loop_counts_from_when_a_request_was_meant_to_be_sent() -> None:
    """[2.1: vllm#54101: 506 ms read where the user waited 1932 ms]"""
    late = replace(request(1.9, 2.0, 0.01, 11), intended=0.5)
    figures = summarise([late])
    assert figures.ttft == pytest.approx(1.5)
    assert figures.end_to_end == pytest.approx(1.6)
    assert figures.send_delay == pytest.approx(1.4)
    assert figures.wall == pytest.approx(1.6)
    assert figures.output_rate == pytest.approx(100)
    assert steady_window([late, replace(late, stream=1)]) is None


def test_concurrency_and_tokens_a_chunk() -> None:
    """Two requests of 1 s each within 1.5 s: 4/3 in flight. 2 + 2 chunks with text hold 12 tokens: 3 a chunk."""
    one = measured([(0.5, text("aaa")), (1.0, text("aaa")), (1.0, ending(6))], 6)
    other = measured([(1.0, text("aaa")), (1.5, text("aaa")), (1.5, ending(6))], 6, sent=0.5, stream=1)
    figures: Summary = summarise([one, other])
    assert figures.achieved_concurrency == pytest.approx(4 / 3)
    assert figures.tokens_per_chunk == 3
    assert figures.chunk_gap == pytest.approx(0.5)


def test_a_time_between_chunks_that_were_read_together_is_not_zero_but_unknown() -> None:
    """Three of four gaps are of chunks of one read; of two of four the median lies between, and is known."""
    record = request(0.0, 0.4, 0.1, 5)
    assert summarise([replace(record, chunk_gaps_us=(0, 0, 400_000, 0))]).chunk_gap is None
    assert summarise([replace(record, chunk_gaps_us=(0, 0, 400_000, 400_000))]).chunk_gap == pytest.approx(0.2)


# --- acceptance


def test_acceptance_of_several_requests_is_weighted_by_their_steps() -> None:
    """[2.2: sglang#34743] 100 tokens in 20 steps and 30 in 30: 130 / 50."""
    one = replace(request(0, 0.1, 0.1, 4), acceptance=Acceptance(100, 20, None, None, "request"))
    other = replace(one, acceptance=Acceptance(30, 30, None, None, "request"))
    told = summarise([one, other]).acceptance
    assert told is not None
    assert told.length == pytest.approx(130 / 50), "2.6, and not (5 + 1) / 2"


def test_acceptance_is_of_this_cell_and_not_of_the_servers_life() -> None:
    """[2.2, 5.18: sglang#29329] 1000 tokens in 1000 steps before; 300 in 100 during: 3.00, where life says 1.18."""
    before = Counters(output_tokens=1000, verify_steps=1000)
    after = Counters(output_tokens=1300, verify_steps=1100)
    told = acceptance_from_counters(before, after, requests=4)
    assert told is not None
    assert told.length == pytest.approx(3.0)
    assert pytest.approx(1.18, abs=0.01) == 1300 / 1100
    assert acceptance_from_counters(after, before, requests=4) is None, "a counter that fell was set back: unknown"
