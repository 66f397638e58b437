import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddconsole.core.figures import output_rate, time_to_first_token
from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.load.chat_stream import ChatStream, RequestIdentity

if TYPE_CHECKING:
    from tests.load.conftest import Recording

FIXTURES = Path(__file__).parent.parent / "fixtures" / "load"
IDENTITY = RequestIdentity(index=3, repetition=1, prompt="coding", turn=0, stream=2)


def read(reads: list[tuple[float, bytes]], max_tokens: int = 4, *, fixed: bool = True, **end: Any) -> RequestRecord:
    stream = ChatStream(IDENTITY, 0.0, max_tokens, fixed_length=fixed)
    for at, received in reads:
        stream.feed(at, received)
    return stream.record(reads[-1][0] if reads else 0.0, **end)


def event(**data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(reason: Any = None, **fields: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": reason}])


def usage(tokens: int, **more: Any) -> bytes:
    return event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": tokens, **more})


ROLE = delta(role="assistant", content="")
DONE = b"data: [DONE]\n\n"


# --- recorded streams ------------------------------------------------------------------------------------------

# name: (asked, fixed length, counts); the chunks with text were counted with a regular expression over the recording
RECORDED: dict[str, tuple[int, bool, dict[str, Any]]] = {
    "sglang-0.5.16-reasoning": (
        64,
        True,
        {"chunks": 17, "prompt_tokens": 109, "output_tokens": 64, "cached_tokens": None, "reasoning_tokens": 64},
    ),
    "sglang-0.5.16-spec-ngram": (192, True, {"chunks": 28, "prompt_tokens": 109, "output_tokens": 192}),
    "sglang-0.5.16-spec-standalone": (192, True, {"chunks": 49, "prompt_tokens": 109, "output_tokens": 192}),
    "sglang-0.5.16-spec-eagle": (192, True, {"chunks": 2, "prompt_tokens": 109, "output_tokens": 192}),
    "sglang-0.5.23-continuous": (
        24,
        True,
        {"chunks": 24, "prompt_tokens": 19, "output_tokens": 24, "cached_tokens": 18, "reasoning_tokens": 0},
    ),
    "sglang-0.5.23-chat": (24, False, {"chunks": 20, "prompt_tokens": 19, "output_tokens": 24, "cached_tokens": 0}),
    "vllm-0.32-continuous": (
        24,
        True,
        {"chunks": 24, "prompt_tokens": 19, "output_tokens": 24, "cached_tokens": None, "reasoning_tokens": None},
    ),
    "vllm-0.32-spec-draft": (200, True, {"chunks": 92, "prompt_tokens": 17, "output_tokens": 200}),
    "llama-plain": (100, True, {"chunks": 100, "prompt_tokens": 17, "output_tokens": 100, "cached_tokens": 0}),
    "llama-spec-draft": (100, True, {"chunks": 100, "prompt_tokens": 17, "output_tokens": 100, "cached_tokens": 0}),
    "llama-timings": (64, True, {"chunks": 64, "prompt_tokens": 41, "output_tokens": 64, "cached_tokens": 24}),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_streams_give_the_counts_that_the_engine_told(
    recording: Callable[[str], "Recording"], name: str
) -> None:
    asked, fixed, counts = RECORDED[name]
    record = read(recording(name).reads, asked, fixed=fixed)
    assert {field: getattr(record, field) for field in counts} == counts
    assert (record.finish_reason, record.outcome, record.error) == ("length", RequestOutcome.OK, None)
    assert record.token_source is TokenSource.USAGE
    assert len(record.chunk_gaps_us) == record.chunks - 1
    assert (record.index, record.repetition, record.prompt, record.stream) == (3, 1, "coding", 2)


def test_a_server_that_was_told_to_end_aborts_and_that_is_a_failure(recording: Callable[[str], "Recording"]) -> None:
    record = read(recording("vllm-0.32-sigterm").reads, 2000)
    assert (record.chunks, record.output_tokens, record.finish_reason) == (50, 209, "abort")
    assert (record.outcome, record.error) == (RequestOutcome.FAILED, "the server ended it: finish_reason abort")


def test_acceptance_of_recorded_llama_cpp_has_no_steps(recording: Callable[[str], "Recording"]) -> None:
    told = read(recording("llama-spec-draft").reads, 100).acceptance
    assert told == Acceptance(tokens=100, steps=None, drafted=162, accepted=57, source="request")
    assert told.length is None
    assert read(recording("llama-plain").reads, 100).acceptance is None


def test_acceptance_that_no_engine_told_is_unknown(recording: Callable[[str], "Recording"]) -> None:
    for name in ("sglang-0.5.16-spec-ngram", "vllm-0.32-spec-draft", "sglang-0.5.23-continuous"):
        assert read(recording(name).reads, 24).acceptance is None


@pytest.mark.parametrize(
    ("run", "steps", "drafted", "accepted", "length", "accepted_at"),
    [
        ("spec-eagle", 57, 399, 134, 192 / 57, (57, 57, 20)),
        ("spec-dflash", 191, 1337, 0, 192 / 191, ()),
        ("spec-ngram", 28, 196, 166, 192 / 28, (26, 25, 24, 23, 23, 23, 22)),
        ("spec-standalone", 48, 144, 144, 4.0, (48, 48, 48)),
    ],
)
def test_recorded_meta_info_of_sglang_gives_the_verify_steps(
    run: str, steps: int, drafted: int, accepted: int, length: float, accepted_at: tuple[int, ...]
) -> None:
    meta_info = json.loads((FIXTURES / "sglang-0.5.16-meta-info.json").read_text())[run]
    chunk = event(choices=[{"index": 0, "delta": {"content": "x"}, "finish_reason": "length", "meta_info": meta_info}])
    record = read([(1.0, chunk + DONE)], 192)
    assert record.acceptance == Acceptance(192, steps, drafted, accepted, "request", accepted_at=accepted_at)
    assert sum(accepted_at) == accepted, "the positions add up to all that was accepted"
    assert record.acceptance.histogram == tuple(meta_info["spec_correct_drafts_histogram"])
    assert record.acceptance.length == pytest.approx(length)
    assert (record.output_tokens, record.token_source, record.prompt_tokens) == (192, TokenSource.META_INFO, 99)


def test_a_stream_that_the_client_cut_is_not_complete(recording: Callable[[str], "Recording"]) -> None:
    record = read(recording("sglang-0.5.16-cut").reads, 2000)
    assert record.outcome is RequestOutcome.FAILED
    assert record.error == "the stream ended without [DONE] and without a finish_reason"
    assert record.token_source is TokenSource.ESTIMATED


def test_a_recorded_error_inside_a_200_stream_is_a_failure(recording: Callable[[str], "Recording"]) -> None:
    record = read(recording("vllm-0.32-engine-killed").reads, 2000)
    assert record.outcome is RequestOutcome.FAILED
    assert record.error is not None
    assert record.error.startswith("EngineCore encountered an issue.")
    assert record.error.endswith("(code 500)")


@settings(max_examples=60, deadline=None)
@given(data=st.data(), name=st.sampled_from([*RECORDED, "vllm-0.32-sigterm", "vllm-0.32-engine-killed"]))
def test_where_a_recorded_stream_is_cut_changes_nothing_of_the_record(data: st.DataObject, name: str) -> None:
    lines = (FIXTURES / f"{name}.jsonl").read_text().splitlines()[1:]
    whole = "".join(json.loads(line)[1] for line in lines).encode()
    cuts = data.draw(st.lists(st.integers(0, len(whole)), max_size=50))
    places = [0, *sorted(cuts), len(whole)]
    pieces = [(1.0, whole[begin:end]) for begin, end in itertools.pairwise(places)]
    assert read(pieces, 64) == read([(1.0, whole)], 64)


# --- times -----------------------------------------------------------------------------------------------------


def test_the_first_token_is_the_first_text_and_not_the_role() -> None:
    reads = [
        (0.005, ROLE),
        (0.8, delta(content="a")),
        (0.9, delta(content="b")),
        (1.0, delta("length") + usage(2) + DONE),
    ]
    record = read(reads, 2)
    assert time_to_first_token(record) == 0.8
    assert (record.last_text, record.end, record.chunk_gaps_us) == (0.9, 1.0, (100_000,))


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_text_but_not_content(name: str) -> None:
    stream = ChatStream(IDENTITY, 0.0, 2, fixed_length=True)
    stream.feed(0.3, delta(**{name: "hm", "content": None}))
    stream.feed(
        0.4, delta("length", content="yes") + usage(2, completion_tokens_details={"reasoning_tokens": 1}) + DONE
    )
    record = stream.record(0.4)
    assert (record.first_text, record.chunks, record.text, stream.content) == (0.3, 2, "hmyes", "yes")
    assert record.reasoning_tokens == 1


def test_several_tokens_in_a_chunk_count_as_the_engine_counted_them() -> None:
    reads = [(1.0 + step * 0.1, delta(content="four of them")) for step in range(5)]
    record = read([*reads, (1.4, delta("length") + usage(20) + DONE)], 20)
    assert (record.output_tokens, record.chunks) == (20, 5)
    assert output_rate(record) == pytest.approx(19 / 0.4)


# --- counts ----------------------------------------------------------------------------------------------------


def test_of_continuous_usage_the_last_one_holds() -> None:
    reads = [(step / 10, delta(content="ab") + usage(step * 2)) for step in range(1, 5)]
    assert read([*reads, (0.5, delta("length") + DONE)], 8).output_tokens == 8


def test_timings_count_where_usage_is_missing() -> None:
    timings = {"prompt_n": 17, "cache_n": 24, "predicted_n": 4, "draft_n": 6, "draft_n_accepted": 2}
    record = read([(1.0, delta(content="abcd")), (2.0, event(choices=[], timings=timings) + DONE)])
    assert (record.output_tokens, record.token_source) == (4, TokenSource.TIMINGS)
    assert (record.prompt_tokens, record.cached_tokens) == (41, 24)
    assert record.acceptance == Acceptance(4, None, 6, 2, "request")


def test_without_any_count_the_chunks_are_an_estimate_and_never_the_length_asked_for() -> None:
    record = read(
        [(step / 10, delta(content="x")) for step in range(50)] + [(6.0, delta("stop") + DONE)], 1024, fixed=False
    )
    assert (record.output_tokens, record.token_source, record.outcome) == (50, TokenSource.ESTIMATED, RequestOutcome.OK)


def test_a_usage_of_zero_beside_text_is_no_count() -> None:
    record = read([(0.1, delta(content="x")), (0.2, delta("length", content="y") + usage(0) + DONE)])
    assert (record.output_tokens, record.token_source) == (2, TokenSource.ESTIMATED)


def test_an_estimate_below_the_length_is_short_only_if_the_engine_says_it_stopped() -> None:
    two = [(0.1, delta(content="several tokens")), (0.2, delta(content="more"))]
    assert read([*two, (0.3, delta("length") + DONE)], 9).outcome is RequestOutcome.OK
    assert read([*two, (0.3, delta("stop") + DONE)], 9).outcome is RequestOutcome.SHORT


@pytest.mark.parametrize(
    ("accepted", "drafted"),
    [
        ("spec_num_correct_drafts", "spec_num_proposed_drafts"),
        ("spec_accepted_drafts", "spec_proposed_drafts"),
        ("spec_accept_token_num", "spec_draft_token_num"),
    ],
)
def test_sglext_under_the_names_of_each_build(accepted: str, drafted: str) -> None:
    details = {"spec_verify_ct": 5, "spec_accept_length": 4.0, accepted: 15, drafted: 75}
    record = read(
        [
            (1.0, delta("length", content="x")),
            (1.0, event(choices=[], sglext={"spec_tokens_details": details}) + usage(20)),
        ],
        20,
    )
    assert record.acceptance == Acceptance(20, 5, 75, 15, "request")
    assert record.acceptance.length == 4.0


def test_a_length_that_the_engine_defines_otherwise_stands_beside_ours() -> None:
    details = {"spec_verify_ct": 5, "spec_accept_length": 3.0}
    record = read(
        [(1.0, delta("length", content="x") + event(sglext={"spec_tokens_details": details}) + usage(20))], 20
    )
    assert record.acceptance is not None
    assert (record.acceptance.length, record.acceptance.engine_length) == (4.0, 3.0)


# --- outcomes --------------------------------------------------------------------------------------------------


def test_a_full_queue_is_a_failure_although_usage_and_done_follow() -> None:
    error = event(error={"message": "The request queue is full.", "type": "ServiceUnavailable", "code": 503})
    record = read([(0.05, error), (0.05, usage(0) + DONE)])
    assert (record.outcome, record.error) == (RequestOutcome.FAILED, "The request queue is full. (code 503)")
    assert (record.output_tokens, record.chunks) == (0, 0)


@pytest.mark.parametrize(
    "error", [{"error": "boom"}, {"object": "error", "message": "boom"}, {"error": {"message": "boom"}}]
)
def test_every_shape_of_error_after_text_is_a_failure(error: dict[str, Any]) -> None:
    record = read([(0.1, delta(content="x")), (0.2, event(**error) + usage(4) + DONE)])
    assert (record.outcome, record.error) == (RequestOutcome.FAILED, "boom")


def test_an_aborted_request_is_a_failure_with_its_message() -> None:
    record = read([(0.1, delta(content="x") + delta("abort") + usage(209) + DONE)], 100)
    assert (record.outcome, record.finish_reason) == (RequestOutcome.FAILED, "abort")
    reason = {"type": "abort", "message": "out of memory", "status_code": 503}
    assert "out of memory" in str(read([(0.1, delta(content="x") + delta(reason) + usage(209) + DONE)]).error)


def test_no_tokens_is_a_failure() -> None:
    record = read([(0.1, ROLE + delta("stop") + usage(0) + DONE)])
    assert (record.outcome, record.error) == (RequestOutcome.FAILED, "the server was done without a token")


def test_fewer_tokens_than_the_fixed_length_is_short() -> None:
    reads = [(0.1, delta(content="x") + delta("stop") + usage(50) + DONE)]
    assert read(reads, 1024).outcome is RequestOutcome.SHORT
    assert read(reads, 1024).error == "ended after 50 of 1024 tokens (finish_reason stop)"
    assert read(reads, 1024, fixed=False).outcome is RequestOutcome.OK


def test_a_finish_reason_without_done_is_complete() -> None:
    assert read([(0.1, delta(content="x") + delta("length") + usage(4))]).outcome is RequestOutcome.OK


def test_a_broken_connection_is_a_failure_even_after_the_finish_reason() -> None:
    record = read([(0.1, delta(content="x") + delta("length"))], broken="reset")
    assert (record.outcome, record.error) == (RequestOutcome.FAILED, "reset")


def test_what_was_cancelled_is_no_failure() -> None:
    record = read([(0.1, delta(content="x"))], broken="stopped", cancelled=True)
    assert (record.outcome, record.error, record.output_tokens) == (RequestOutcome.CANCELLED, None, 1)


@pytest.mark.parametrize("data", [b"data: {oops\n\n", b"data: [1, 2]\n\n", b"data: 7\n\n"])
def test_an_event_that_is_no_json_object_is_a_failure(data: bytes) -> None:
    record = read([(0.1, delta(content="x") + data + usage(4) + DONE)])
    assert record.outcome is RequestOutcome.FAILED
    assert "event is not" in str(record.error)


def test_an_answer_that_is_no_stream_is_a_failure() -> None:
    record = read([(0.1, b'{"choices": [{"message": {"content": "not a stream"}}]}')])
    assert (record.outcome, record.error) == (RequestOutcome.FAILED, "the answer held no event of a stream")


def test_control_characters_of_an_error_are_made_visible() -> None:
    record = read([(0.1, event(error={"message": "\x1b[31mred\x07"}) + DONE)])
    assert record.error == "^[[31mred^G"


def test_a_character_that_two_chunks_share_is_put_together() -> None:
    halves = [(0.1, b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n')]
    halves += [(0.2, b'data: {"choices":[{"delta":{"content":"\\ude00\\ud800"}}]}\n\n' + usage(4) + DONE)]
    assert read(halves).text == "\U0001f600\ufffd"


def test_strange_values_do_no_harm() -> None:
    odd = event(choices=None, usage=[], timings="x", sglext=5, meta_info=None) + event(choices=["x", {"delta": None}])
    odd += event(choices=[{"delta": {"content": 5}}], usage={"completion_tokens": "many", "prompt_tokens": True})
    record = read([(0.1, odd + delta(content="x") + DONE)], fixed=False)
    assert (record.output_tokens, record.token_source, record.prompt_tokens) == (1, TokenSource.ESTIMATED, None)
