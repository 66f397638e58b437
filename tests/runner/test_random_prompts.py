"""Prompts of a given number of tokens, counted by the engine."""

from collections.abc import Mapping
from typing import Any

from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.engines.engine import Answer
from ddconsole.runner.random_prompts import random_prompts

POINT = WorkloadPoint("w", "closed-loop", "random:100", 4, 8, 2, 6, Sampling())


class Tokenizer:
    """A server on which every word longer than five letters is two tokens. `shape` is how it answers."""

    def __init__(self, shape: str) -> None:
        self.shape = shape

    async def get(self, path: str, timeout: float = 5.0) -> Answer:  # noqa: ARG002  # the protocol's
        raise AssertionError(path)

    async def post(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        timeout: float = 30.0,  # noqa: ARG002  # the protocol's
    ) -> Answer:
        assert path == "/tokenize"
        assert body is not None
        assert body["add_special_tokens"] is False
        count = tokens(body["prompt"])
        match self.shape:
            case "count":  # vLLM, SGLang
                return Answer(200, {"count": count, "tokens": [1] * count, "max_model_len": 4096}, "")
            case "tokens":  # llama.cpp
                return Answer(200, {"tokens": [1] * tokens(body["content"])}, "")
            case _:
                return Answer(404, {"detail": "Not Found"}, "")


def tokens(text: str) -> int:
    return sum(2 if len(word) > 5 else 1 for word in text.split())


async def test_every_prompt_has_the_length_by_the_engines_tokenizer() -> None:
    for shape in ("count", "tokens"):
        made = await random_prompts(Tokenizer(shape), "m", POINT, 100, "measured")
        assert made.counted
        assert len(made.prompts) == 12, "one for each request: nothing is asked twice"
        # a word of two tokens may stand at the end where one is asked for
        assert all(abs(tokens(prompt.text) - 100) <= 1 for prompt in made.prompts)
        assert len({prompt.text for prompt in made.prompts}) == 12


async def test_without_a_tokenizer_a_word_is_taken_for_a_token_and_that_is_said() -> None:
    made = await random_prompts(Tokenizer("none"), "m", POINT, 100, "measured")
    assert not made.counted
    assert {len(prompt.text.split()) for prompt in made.prompts} == {100}


async def test_methods_meet_the_same_texts_and_other_points_and_uses_others() -> None:
    async def texts(point: WorkloadPoint, use: str) -> set[str]:
        return {prompt.text for prompt in (await random_prompts(Tokenizer("count"), "m", point, 100, use)).prompts}

    same = await texts(POINT, "measured")
    assert await texts(POINT, "measured") == same
    assert not await texts(POINT, "warm-up") & same
    other = WorkloadPoint("w", "closed-loop", "random:100", 8, 8, 2, 6, Sampling())
    assert not await texts(other, "measured") & same
