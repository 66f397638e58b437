"""Chunks that are not parsed mean what they mean when they are."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ddconsole.core.records import RequestRecord
from ddconsole.load.chat_stream import ChatStream, RequestIdentity
from ddconsole.load.chunk_shape import ChunkShape


def chunk(text: str | None = "a", reason: Any = None, delta: dict[str, Any] | None = None, **more: Any) -> bytes:
    said = {"role": None, "content": text, "reasoning_content": None} if delta is None else delta
    choice = {"index": 0, "delta": said, "logprobs": None, "finish_reason": reason}
    return json.dumps({"id": "x", "created": 7, "choices": [choice], "usage": None} | more).encode()


def learned(payload: bytes) -> ChunkShape:
    shape = ChunkShape()
    shape.learn(payload, json.loads(payload))
    return shape


@pytest.mark.parametrize(
    "text", ["b", " two words", "é", "日本", "a\nb", 'quo"te', "back\\slash", "\\", '"', "\U0001f600", "\xa0"]
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_the_next_text_is_read_without_parsing(text: str, *, ascii_only: bool) -> None:
    said = json.loads(chunk(text))
    assert learned(chunk("first")).text_of(json.dumps(said, ensure_ascii=ascii_only).encode()) == text


@pytest.mark.parametrize(
    "payload",
    [
        chunk("b", created=8),
        chunk("b", "stop"),
        chunk("b", usage={"completion_tokens": 2}),
        chunk("b", error="broken"),
        chunk(None),
        chunk("b")[:-1],
        chunk("b").replace(b'"b"', b'"b\x07"'),
        chunk("b").replace(b'"b"', b'"b", "role": "x"'),
        chunk("b").replace(b'"b"', b'"b\\"'),
        chunk("b").replace(b'"b"', b'["b"]'),
        b"[DONE]",
        b"",
    ],
)
def test_what_differs_in_more_is_left_to_the_parser(payload: bytes) -> None:
    assert learned(chunk("first")).text_of(payload) is None


@pytest.mark.parametrize(
    "payload",
    [
        chunk("a", "stop"),
        chunk(""),
        chunk("a", usage={"completion_tokens": 2}),
        chunk("a", error="broken"),
        chunk("a", timings={"predicted_n": 3}),
        chunk(delta={"content": "a", "reasoning": "b"}),
        chunk(delta={"content": "a", "tool_calls": [{"function": {"name": "f"}}]}),
        b'{"choices": [{"text": "a"}]}',
        b'{"choices": []}',
    ],
)
def test_a_chunk_that_says_more_than_its_text_is_no_example(payload: bytes) -> None:
    shape = learned(payload)
    assert shape.text_of(payload) is None
    assert shape.text_of(payload.replace(b'"a"', b'"b"')) is None


def test_reasoning_is_told_apart() -> None:
    shape = learned(chunk(delta={"reasoning_content": "hm", "content": None}))
    assert shape.text_of(chunk(delta={"reasoning_content": "well", "content": None})) == "well"
    assert shape.is_reasoning


def test_a_text_that_looks_like_the_rest_of_the_chunk_deceives_nobody() -> None:
    deceiving = json.loads(chunk())["choices"][0]["delta"] | {"content": '"content": "'}
    assert learned(chunk(delta=deceiving)).text_of(chunk("plain")) == "plain"
    twice = chunk(id='"content": "a"')
    assert learned(twice).text_of(chunk("b", id='"content": "a"')) == "b"


def test_of_a_field_that_is_there_twice_the_one_that_counts_is_the_text() -> None:
    twice = b'"content": "z", "content": "a"'
    shape = learned(chunk("a").replace(b'"content": "a"', twice))
    assert shape.text_of(chunk("a").replace(b'"content": "a"', twice.replace(b'"a"', b'"b"'))) == "b"
    assert shape.text_of(chunk("a").replace(b'"content": "a"', twice.replace(b'"z"', b'"y"'))) is None


def test_a_stream_whose_chunks_always_differ_is_not_learned_for_ever() -> None:
    shape = ChunkShape()
    for number in range(10):
        payload = chunk("a", created=number)
        assert shape.text_of(payload) is None
        shape.learn(payload, json.loads(payload))
    assert shape.text_of(chunk("b", created=9)) is None
    assert learned(chunk("a", created=9)).text_of(chunk("b", created=9)) == "b"


class Parsing(ChunkShape):
    """Knows no shape."""

    def text_of(self, payload: bytes) -> str | None:  # noqa: ARG002
        return None


_TEXT = st.one_of(
    st.text(max_size=6), st.sampled_from(["", "a", " b", '"', "\\", "\n", '","content":"', "\ud83d", "\ude00"])
)
_DELTAS = st.one_of(
    st.builds(lambda text: {"content": text}, _TEXT),
    st.builds(lambda text: {"role": "assistant", "content": text, "reasoning_content": None}, _TEXT),
    st.builds(lambda text: {"reasoning_content": text}, _TEXT),
    st.builds(lambda text, other: {"reasoning": text, "content": other}, _TEXT, _TEXT),
    st.builds(lambda text: {"tool_calls": [{"function": {"arguments": text}}], "content": "x"}, _TEXT),
)
_CHUNKS = st.builds(
    lambda delta, reason, more, ascii_only: json.dumps(
        {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]} | more, ensure_ascii=ascii_only
    ).encode("utf-8", "surrogatepass"),
    _DELTAS,
    st.sampled_from([None] * 12 + ["stop"]),
    st.sampled_from([{}] * 12 + [{"usage": {"completion_tokens": 3}}, {"error": "e"}, {"created": 1}, {"created": 2}]),
    st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(_CHUNKS, max_size=12),
    st.lists(st.tuples(st.integers(0, 400), st.binary(min_size=1, max_size=2)), max_size=2),
)
def test_a_stream_gives_the_same_record_as_with_every_chunk_parsed(
    chunks: list[bytes], damage: list[tuple[int, bytes]]
) -> None:
    stream = b"".join(b"data: " + one + b"\n\n" for one in chunks)
    for place, wrong in damage:  # bytes of no JSON, and of no UTF-8
        if place < len(stream):
            stream = stream[:place] + wrong + stream[place + len(wrong) :]
    events = stream.split(b"\n\n")

    def read(shape: ChunkShape) -> RequestRecord:
        told = ChatStream(RequestIdentity(0, 0, "x", 0, 0), 0.0, 4, fixed_length=False)
        told._shape = shape
        for number, event in enumerate(events, start=1):
            told.feed(float(number), event + b"\n\n")
        return told.record(99.0)

    assert read(ChunkShape()) == read(Parsing())
