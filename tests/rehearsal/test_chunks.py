import json
from pathlib import Path
from typing import Any

import pytest

from ddconsole.rehearsal.chunks import ChatChunks, GenerateChunks, Telling, TextChunks, speculation
from ddconsole.rehearsal.output import Output, Wish, make_output
from ddconsole.rehearsal.rates import Method, Speed

RECORDED = Path(__file__).parents[1] / "fixtures" / "rehearsal"
METHOD = Method("dflash", 8)
OUTPUT = make_output(Wish("p", 40, ignore_eos=True), Speed(METHOD, 1, crosses_numa=False), 0)


def events(data: bytes | str) -> list[Any]:
    text = data if isinstance(data, str) else data.decode()
    parts = [part.removeprefix("data: ") for part in text.split("\n\n") if part]
    return [part if part == "[DONE]" else json.loads(part) for part in parts]


def shape(value: Any) -> Any:
    """Keys in their order, and the kind of each value."""
    if isinstance(value, dict):
        return [(key, shape(one)) for key, one in value.items()]
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_a_chat_stream_has_the_recorded_shapes() -> None:
    recorded = events((RECORDED / "chat-stream.sse").read_text(encoding="utf-8"))
    chunks = ChatChunks("a" * 32, 1796009733, "default", Telling(usage=True))
    made = events(chunks.first() + chunks.text(OUTPUT, 0, 1, 9, 0) + chunks.end("length", 9, 1, 0, None))
    assert [shape(one) for one in made[:2]] == [shape(one) for one in recorded[:2]]
    assert [shape(one) for one in made[-3:]] == [shape(one) for one in recorded[-3:]]
    assert made[0]["choices"][0]["delta"] == recorded[0]["choices"][0]["delta"]
    assert made[-1] == recorded[-1] == "[DONE]"


def test_what_is_not_asked_for_is_not_told() -> None:
    chunks = ChatChunks("a", 1, "m", Telling())
    made = events(chunks.end("length", 9, 40, 0, speculation(OUTPUT, len(OUTPUT.accepted), 40, METHOD)))
    assert len(made) == 2
    assert "usage" not in made[0]


def test_speculation_is_told_in_a_chunk_of_its_own_and_adds_up() -> None:
    chunks = ChatChunks("a", 1, "m", Telling(usage=True, speculation=True))
    steps = len(OUTPUT.accepted)
    made = events(chunks.end("length", 9, 40, 0, speculation(OUTPUT, steps, 40, METHOD)))
    details = made[1]["sglext"]["spec_tokens_details"]
    assert made[1]["choices"] == []
    assert details["spec_verify_ct"] == steps
    assert details["spec_accept_length"] == pytest.approx(40 / steps)
    assert details["spec_num_correct_drafts"] + steps + 1 == 40
    assert details["spec_num_proposed_drafts"] == steps * 7
    assert sum(details["spec_correct_drafts_histogram"]) == steps


def test_generate_ends_with_the_recorded_names_and_repeats_the_whole_text() -> None:
    recorded = json.loads((RECORDED / "generate-last.json").read_text(encoding="utf-8"))
    chunks = GenerateChunks("a", incremental=False)
    made = events(chunks.text(OUTPUT, 0, 1, 9, 0) + chunks.text(OUTPUT, 1, 40, 9, 0))
    last = events(chunks.end("length", 9, 40, 0, speculation(OUTPUT, len(OUTPUT.accepted), 40, METHOD)))[0]
    assert made[1]["text"] == last["text"] == "".join(OUTPUT.tokens)
    assert list(last) == list(recorded)
    assert set(last["meta_info"]) <= set(recorded["meta_info"])
    assert set(last["meta_info"]["finish_reason"]) == set(recorded["meta_info"]["finish_reason"])
    parts = GenerateChunks("a", incremental=True)
    told = events(
        parts.text(OUTPUT, 0, 1, 9, 0) + parts.text(OUTPUT, 1, 40, 9, 0) + parts.end("length", 9, 40, 0, None)
    )
    assert "".join(one["text"] for one in told[:-1]) == "".join(OUTPUT.tokens)


def test_reasoning_stands_apart_even_when_it_ends_within_a_step() -> None:
    output = Output((" a", " b", " c"), (2,), (1.0,), ended_by_itself=False)
    made = events(ChatChunks("a", 1, "m", Telling(reasoning_tokens=2)).text(output, 0, 3, 9, 0))
    deltas = [one["choices"][0]["delta"] for one in made]
    assert deltas == [{"reasoning_content": " a b"}, {"reasoning_content": None, "content": " c"}]


def test_continuous_usage_stands_in_each_chunk() -> None:
    telling = Telling(continuous_usage=True)
    for chunks in (ChatChunks("a", 1, "m", telling), TextChunks("a", 1, "m", telling)):
        made = events(chunks.text(OUTPUT, 0, 7, 9, 0))[0]
        assert made["usage"]["completion_tokens"] == 7
        assert made["choices"][0]["finish_reason"] is None
