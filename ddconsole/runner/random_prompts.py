"""Prompts of a given number of tokens, made of common words in random order, counted by the engine's own tokenizer.

Random words understate how much a draft model guesses right: such a set is for prefill and capacity, not for comparing
methods of speculation.
"""

import asyncio
import random
from dataclasses import dataclass

from ddconsole.core.plan_values import RANDOM
from ddconsole.core.plan_workloads import RANDOM_PROMPTS
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.engines.engine import ServerApi
from ddconsole.engines.openai_api import count_tokens
from ddconsole.load.task import Prompt

_ROUNDS = 8
"""Times that a text is counted and its words corrected, at most: few words are not one token."""
_AT_ONCE = 8
_COMMON = """
time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work government number night point home water room mother
area money story fact month lot right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city community name president team minute idea body information
back parent face others level office door health person art war history party result change morning reason
research girl guy moment air teacher force education foot boy age policy music market sense nation plan college
interest death experience effect use class control care field development role effort rate heart drug show
leader light voice wife police mind price report decision son view relationship town road arm difference value
building action season society tax director position player record paper space ground form event official matter
center couple site project activity star table need court oil situation cost industry figure street image phone
data
"""
_WORDS = tuple(_COMMON.split())


@dataclass(frozen=True, slots=True)
class RandomPrompts:
    """What was made."""

    prompts: tuple[Prompt, ...]
    counted: bool
    """Whether the engine's tokenizer was there to count; without it a word is taken for a token."""


async def random_prompts(api: ServerApi, model: str, point: WorkloadPoint, length: int, use: str) -> RandomPrompts:
    """One prompt for each request of `point`, the same for every method that is measured there.

    Args:
        api: of the server, whose tokenizer counts.
        model: the served name.
        point: what is measured; another point gets other texts, so that no prefix cache knows them.
        length: tokens of each.
        use: what for; another use gets other texts.
    """
    wanted = RANDOM_PROMPTS if point.kind == "single" else point.requests * point.repetitions
    place = f"{use} {point.label} {point.prompts} {point.kind}"
    counting = await _count(api, model, "time year people")
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> Prompt:
        words = random.Random(f"{place} {number}")  # texts of a load, not a secret
        chosen = words.choices(_WORDS, k=length)
        if counting is not None:
            async with gate:
                chosen = await _corrected(api, model, chosen, length, words)
        return Prompt(f"{RANDOM}{length}/{number + 1}", " ".join(chosen))

    prompts = await asyncio.gather(*(one(number) for number in range(wanted)))
    return RandomPrompts(tuple(prompts), counting is not None)


async def _corrected(api: ServerApi, model: str, chosen: list[str], length: int, words: random.Random) -> list[str]:
    for _ in range(_ROUNDS):
        counted = await _count(api, model, " ".join(chosen))
        if counted is None or counted == length:
            return chosen
        change = max(1, round(abs(counted - length) * len(chosen) / counted))
        chosen = chosen[:-change] if counted > length else chosen + words.choices(_WORDS, k=change)
    return chosen


async def _count(api: ServerApi, model: str, text: str) -> int | None:
    try:
        return await count_tokens(api, model, text)
    except (OSError, TimeoutError):
        return None
