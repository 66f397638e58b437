"""Cases in which load generators measured wrongly, as streams of bytes with times, and the figures worked out by hand.

Numbers in brackets name the section of the survey of load generators and the threads that reported the fault.
"""

from dataclasses import dataclass, field

import pytest
from timed_streams import ROLE, Reads, delta, ending, event, measured, text

from ddconsole.core.figures import end_to_end, output_rate, time_per_output_token, time_to_first_token
from ddconsole.core.records import RequestOutcome, TokenSource
from ddconsole.load.codec import message_line, message_of_line


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
