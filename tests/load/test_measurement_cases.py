"""Cases in which load generators measured wrongly, as streams of bytes with times, and the figures worked out by hand.

Numbers in brackets name the section of the survey of load generators and the threads that reported the fault.
"""

import itertools
import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ddconsole.core.attempt_file import record_from_json
from ddconsole.core.figures import (
    Slo,
    Summary,
    end_to_end,
    output_rate,
    rate_bias,
    steady_window,
    summarise,
    time_per_output_token,
    time_to_first_token,
    tokens_at_first,
    tokens_within,
)
from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.engines.engine import Counters
from ddconsole.load.chat_stream import ChatStream, RequestIdentity
from ddconsole.load.codec import message_line, message_of_line, record_to_json
from ddconsole.runner.acceptance import acceptance_from_counters

Reads = list[tuple[float, bytes]]


def event(**data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(reason: Any = None, tokens: int | None = None, **fields: Any) -> bytes:
    """One chunk; with `tokens`, its usage as of then."""
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens, "prompt_tokens": 9}}
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": reason}], **usage)


def text(content: str = "x", tokens: int | None = None) -> bytes:
    return delta(content=content, tokens=tokens)


def ending(tokens: int | None, reason: str = "length") -> bytes:
    usage = b"" if tokens is None else event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": tokens})
    return delta(reason) + usage + b"data: [DONE]\n\n"


ROLE = delta(role="assistant", content="")


def measured(reads: Reads, asked: int, *, fixed: bool = True, stream: int = 0, sent: float = 0.0) -> RequestRecord:
    identity = RequestIdentity(index=0, repetition=0, prompt="p", turn=0, stream=stream)
    one = ChatStream(identity, sent, asked, fixed_length=fixed)
    for at, received in reads:
        one.feed(at, received)
    return one.record(reads[-1][0])


@dataclass(frozen=True)
class Case:
    name: str
    reads: Reads
    asked: int
    fixed: bool = True
    outcome: RequestOutcome = RequestOutcome.OK
    tokens: int | None = None
    source: TokenSource | None = TokenSource.USAGE
    ttft: float | None = None
    rate: float | None = None
    e2e: float | None = None
    chunks: int = 0
    gaps_ms: tuple[float, ...] | None = None
    first: tuple[int | None, TokenSource | None] | None = None
    notes: str = field(default="", compare=False)


U, E = TokenSource.USAGE, TokenSource.ESTIMATED
CASES = [
    Case(
        # 5 chunks of 4 tokens, 8.72 ms apart: a token takes 2.18 ms, and the first 4 tokens took none of the 34.88 ms.
        "four tokens a chunk, told with each chunk [2.2, 5.1: sglang#12064, #33193, vllm#50600]",
        [(0.1 + 0.00872 * n, text("four", tokens=4 * (n + 1))) for n in range(5)] + [(0.1 + 0.00872 * 4, ending(20))],
        asked=20,
        tokens=20,
        ttft=0.1,
        rate=16 / (4 * 0.00872),
        e2e=0.13488,
        chunks=5,
        gaps_ms=(8.72, 8.72, 8.72, 8.72),
        first=(4, U),
    ),
    Case(
        # The same, not told: k is 1, so 19 tokens over the time of 16. The text's share says 4, which is the bias.
        "four tokens a chunk, only the sum told [2.1: vllm#7242]",
        [(0.1 + 0.01 * n, text("four")) for n in range(5)] + [(0.14, ending(20))],
        asked=20,
        tokens=20,
        ttft=0.1,
        rate=19 / 0.04,
        e2e=0.14,
        chunks=5,
        first=(4, E),
    ),
    Case(
        # The prefill's token alone, then verify steps of 4: 12 tokens in 3 steps of 10 ms.
        "speculation: one token, then four a step",
        [
            (0.2, ROLE + text("a", 1)),
            (0.21, text("bcde", 5)),
            (0.22, text("fghi", 9)),
            (0.23, text("jklm", 13) + ending(13)),
        ],
        asked=13,
        tokens=13,
        ttft=0.2,
        rate=12 / 0.03,
        e2e=0.23,
        chunks=4,
        first=(1, U),
    ),
    Case(
        "role chunk at 5 ms, first text at 800 ms [2.1, 5.2: vllm#3759, #5895]",
        [(0.005, ROLE), (0.8, text()), (0.9, text()), (1.0, text()), (1.0, ending(3))],
        asked=3,
        tokens=3,
        ttft=0.8,
        rate=2 / 0.2,
        e2e=1.0,
        chunks=3,
        gaps_ms=(100, 100),
        first=(1, U),
    ),
    Case(
        "empty first chunks and reasoning before content [5.2: vllm#15106, guidellm#737, inference-perf#559]",
        [
            (0.005, ROLE),
            (0.1, text("")),
            (0.3, delta(reasoning_content="hm", content=None)),
            (0.5, text("yes") + ending(2)),
        ],
        asked=2,
        tokens=2,
        ttft=0.3,
        rate=1 / 0.2,
        e2e=0.5,
        chunks=2,
        first=(1, U),
    ),
    Case(
        # 50 tokens of 1024 asked for, 10 ms apart: 49 gaps. By the length asked for, TPOT would read 0.48 ms.
        "end of text after 50 of 1024, no usage [2.2, 5.3: sglang#24254]",
        [(0.2 + 0.01 * n, text()) for n in range(50)] + [(0.69, ending(None, "stop"))],
        asked=1024,
        fixed=False,
        tokens=50,
        source=E,
        ttft=0.2,
        rate=49 / 0.49,
        e2e=0.69,
        chunks=50,
        first=(1, E),
    ),
    Case(
        # 4 texts and the end-of-text token, a step of 0.1 s each: 4 tokens after the first, in 0.4 s, not in 0.3 s.
        "the end-of-text token has no text but took a step, and usage counts it",
        [(1.0 + 0.1 * n, text()) for n in range(4)] + [(1.4, ending(5, "stop"))],
        asked=100,
        fixed=False,
        tokens=5,
        ttft=1.0,
        rate=4 / 0.4,
        e2e=1.4,
        chunks=4,
        first=(1, E),
    ),
    Case(
        # ignore_eos: 3 texts, then 7 end-of-text tokens whose chunks are empty. 9 tokens in 0.9 s, not in 0.2 s.
        "end-of-text tokens over and over under ignore_eos",
        [(0.1 * (n + 1), text("x" if n < 3 else "")) for n in range(10)] + [(1.0, ending(10))],
        asked=10,
        tokens=10,
        ttft=0.1,
        rate=9 / 0.9,
        e2e=1.0,
        chunks=3,
        first=(3, E),
    ),
    Case(
        # A client that was late finds three chunks in one read: they took none of the time after it.
        "three chunks glued into the first read",
        [(0.3, text() + text() + text()), (0.4, text()), (0.5, text()), (0.5, ending(5))],
        asked=5,
        tokens=5,
        ttft=0.3,
        rate=2 / 0.2,
        e2e=0.5,
        chunks=5,
        gaps_ms=(0, 0, 100, 100),
        first=(3, U),
    ),
    Case(
        "everything in one read: no pace, not an infinite one [2.6: genai-bench#100]",
        [(0.5, ROLE + text() * 8 + ending(8))],
        asked=8,
        tokens=8,
        ttft=0.5,
        rate=None,
        e2e=0.5,
        chunks=8,
        first=(8, U),
    ),
    Case(
        "one text that holds the whole answer, and an end that comes later: no pace",
        [(0.5, text("all of it")), (0.6, ending(8))],
        asked=8,
        tokens=8,
        ttft=0.5,
        rate=None,
        e2e=0.6,
        chunks=1,
    ),
    Case(
        "one token: TPOT is not defined, and not 0 [2.1]",
        [(0.5, text()), (0.5, ending(1))],
        asked=1,
        tokens=1,
        ttft=0.5,
        rate=None,
        e2e=0.5,
        chunks=1,
    ),
    Case(
        "an error after ten tokens of a 200 stream, then [DONE] [2.1, 5.4: sglang#38868, vllm#57519, guidellm#743]",
        [(0.1 * (n + 1), text()) for n in range(10)] + [(1.1, event(error={"message": "boom"}) + b"data: [DONE]\n\n")],
        asked=20,
        outcome=RequestOutcome.FAILED,
        tokens=10,
        source=E,
        ttft=0.1,
        rate=9 / 0.9,
        e2e=1.0,
        chunks=10,
    ),
    Case(
        "CRLF, comments, empty data and an event cut in the middle of its bytes",
        [
            (0.1, b": ping\r\n\r\ndata:\r\n\r\n" + text("a").replace(b"\n", b"\r\n")[:30]),
            (0.2, text("a").replace(b"\n", b"\r\n")[30:]),
            (0.3, b": ping\r\n\r\n"),
            (0.4, text("b").replace(b"\n", b"\r\n")),
            (0.4, ending(2).replace(b"\n", b"\r\n")),
        ],
        asked=2,
        tokens=2,
        ttft=0.2,
        rate=1 / 0.2,
        e2e=0.4,
        chunks=2,
        first=(1, U),
    ),
    Case(
        "a chunk of 64 KiB is text at the time of its last byte [2.1: vllm#39963]",
        [(0.1, text("a"))]
        + [
            (0.2 + n / 100, part)
            for n, part in enumerate([text("b" * 65536)[begin : begin + 16384] for begin in range(0, 65600, 16384)])
        ]
        + [(0.3, ending(2))],
        asked=2,
        tokens=2,
        ttft=0.1,
        rate=1 / 0.2,
        e2e=0.3,
        chunks=2,
        gaps_ms=(140,),
    ),
    Case(
        "a usage of zero beside text is no count",
        [(0.1, text()), (0.2, text()), (0.2, ending(0))],
        asked=2,
        tokens=2,
        source=E,
        ttft=0.1,
        rate=1 / 0.1,
        e2e=0.2,
        chunks=2,
    ),
    Case(
        "a tool call is output although it is no content [2.2: sglang#36272]",
        [
            (0.1, delta(tool_calls=[{"function": {"name": "f", "arguments": ""}}])),
            (0.2, delta(tool_calls=[{"function": {"arguments": "{}"}}]) + ending(2, "tool_calls")),
        ],
        asked=2,
        tokens=2,
        ttft=0.1,
        rate=1 / 0.1,
        e2e=0.2,
        chunks=2,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_stream_gives_the_figures_worked_out_by_hand(case: Case) -> None:
    record = measured(case.reads, case.asked, fixed=case.fixed)
    assert (record.outcome, record.output_tokens, record.token_source) == (case.outcome, case.tokens, case.source)
    assert time_to_first_token(record) == pytest.approx(case.ttft)
    assert output_rate(record) == (None if case.rate is None else pytest.approx(case.rate))
    assert time_per_output_token(record) == (None if case.rate is None else pytest.approx(1 / case.rate))
    assert end_to_end(record) == pytest.approx(case.e2e)
    assert record.chunks == case.chunks
    if case.gaps_ms is not None:
        assert record.chunk_gaps_us == tuple(pytest.approx(gap * 1000, abs=1) for gap in case.gaps_ms)
    if case.first is not None:
        assert (record.first_chunk_tokens, record.first_chunk_source) == case.first
    assert message_of_line(message_line(record)) == record


# --- the first chunk -------------------------------------------------------------------------------------------


def test_a_first_chunk_of_several_tokens_gives_the_same_rate_however_short_the_answer() -> None:
    """A step of 10 ms yields 4 tokens: 400 tok/s, for 8 tokens as for 400."""
    for tokens in (8, 40, 400):
        steps = range(4, tokens + 1, 4)
        reads = [(0.01 * number, text("four", told)) for number, told in enumerate(steps, start=1)]
        record = measured([*reads, (0.01 * len(steps), ending(tokens))], tokens)
        assert output_rate(record) == pytest.approx(400)
        assert rate_bias(record) == 0


def test_where_the_engine_does_not_tell_the_bias_is_said() -> None:
    """8 tokens in 2 chunks, 10 ms apart: told 7 / 10 ms, true 4 / 10 ms, which is 75 % too high."""
    record = measured([(0.01, text("four")), (0.02, text("four")), (0.02, ending(8))], 8)
    assert output_rate(record) == pytest.approx(700)
    assert rate_bias(record) == pytest.approx(0.75)
    assert summarise([record]).rate_bias == pytest.approx(0.75)


def test_an_older_record_is_read_and_has_the_figures_that_it_had() -> None:
    record = measured([(0.1, text()), (0.2, text()), (0.25, ending(2))], 2)
    data = record_to_json(record)
    for name in ("finished", "first_chunk_tokens", "first_chunk_source", "intended"):
        del data[name]
    old = record_from_json(data)
    assert (old.finished, old.first_chunk_tokens, old.intended, tokens_at_first(old)) == (None, None, None, 1)
    assert output_rate(old) == pytest.approx(1 / 0.1)
    assert rate_bias(old) is None


# --- figures of a cell -----------------------------------------------------------------------------------------


def request(sent: float, first: float, gap: float, tokens: int, stream: int = 0) -> RequestRecord:
    reads = [(first + gap * number, text()) for number in range(tokens)]
    return measured([*reads, (reads[-1][0], ending(tokens))], tokens, stream=stream, sent=sent)


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


# --- acceptance ------------------------------------------------------------------------------------------------


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
