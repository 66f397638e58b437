"""What a simulated request puts out: its tokens, how many each step yields, and how long each step takes.

All of it follows from hashes, so that the same rehearsal gives the same figures, and greedy output is the same for all
methods (but those that leak recurrent state).
"""

import hashlib
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ddconsole.rehearsal.rates import Speed

REQUEST_JITTER = 0.006
"""Standard deviation of a request's rate around the table, cut at two of them."""
STEP_JITTER = 0.04
"""Standard deviation of one step's duration, cut at three of them; a request's steps still add up to its rate."""
LEAK_SHARE = 0.1
"""Part of the output after which a leaking method differs."""

_WORDS = (
    " the", " a", " of", " to", " and", " is", " in", " that", " it", " we", " for", " with", " parser", " value",
    " token", " stack", " list", " error", " function", " returns", " number", " check", " input", " line", " file",
    " case", " test", " if", " not", " then", " each", " first", " last", " result", " add", " step", ",", ".", ":",
    "\n", "\n    ", "(", ")", " =", " ==", " return", " def", " self", " None", " x", " y", " i", "[", "]", "_name",
    "ing", "ed", "s", " data", " row", " key", " dict", " loop", "\n\n",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Wish:
    """What a request asks for, as far as it decides the output."""

    prompt: str
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """All of a request's output, fixed before its first step.

    The first token comes from the prefill; step `i` then yields `accepted[i]` tokens and takes `pace[i]` of the
    table's step time.
    """

    tokens: tuple[str, ...]
    accepted: tuple[int, ...]
    pace: tuple[float, ...]
    ended_by_itself: bool
    """The model stopped before `max_tokens`."""

    def text(self, start: int, end: int) -> str:
        """The text of some tokens."""
        return "".join(self.tokens[start:end])


def count_tokens(text: str) -> int:
    """How many tokens the simulated tokenizer makes of a text: about four characters each."""
    return max(1, math.ceil(len(text) / 4)) if text else 0


def token_ids(tokens: Sequence[str]) -> list[int]:
    """Ids of the simulated vocabulary."""
    return [1000 + _WORDS.index(token) for token in tokens]


def make_output(wish: Wish, speed: Speed, occurrence: int) -> Output:
    """Decide a request's output.

    Args:
        wish: what is asked.
        speed: the server's row of the table.
        occurrence: how often this server was asked the same before: repetitions differ in time, not in text.
    """
    length, ended = _length(wish)
    tokens = _tokens(wish, length, speed, occurrence)
    chance = random.Random(_seed("accept", speed.method.label, wish.prompt, length))
    accepted = _accepted(length - 1, speed, chance)
    chance = random.Random(_seed("pace", speed.method.label, speed.tensor_parallel, wish.prompt, length, occurrence))
    return Output(tuple(tokens), accepted, _pace(accepted, speed, chance), ended)


def _seed(*parts: object) -> int:
    text = "\x00".join(str(part) for part in parts)
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


def _length(wish: Wish) -> tuple[int, bool]:
    """Tokens of the output, and whether the model ends by itself."""
    if wish.ignore_eos:
        return max(wish.max_tokens, 1), False
    natural = 160 + _seed("length", wish.prompt) % 1200
    length = max(natural, wish.min_tokens)
    return (length, True) if length < wish.max_tokens else (max(wish.max_tokens, 1), False)


def _tokens(wish: Wish, length: int, speed: Speed, occurrence: int) -> list[str]:
    drawn = (wish.seed if wish.seed is not None else occurrence) if wish.temperature > 0 else "greedy"
    tokens = random.Random(_seed("text", wish.prompt, drawn)).choices(_WORDS, k=length)
    if speed.method.leaks(speed.tensor_parallel):
        kept = math.ceil(length * LEAK_SHARE)
        leaked = random.Random(_seed("leak", speed.method.label, wish.prompt, drawn))
        tokens[kept:] = leaked.choices(_WORDS, k=length - kept)
    return tokens


def _accepted(tokens: int, speed: Speed, chance: random.Random) -> tuple[int, ...]:
    """Tokens of each step: geometric, cut at what one step can verify, adding up to `tokens`."""
    mean, most = speed.acceptance_length, speed.method.positions
    if most == 1 or tokens <= 0:
        return (1,) * max(tokens, 0)
    exact = tokens / mean
    steps = max(math.ceil(tokens / most), int(exact) + (chance.random() < exact % 1), 1)
    steps = min(steps, tokens)
    log_miss = math.log(1 - 1 / mean)
    drawn = [min(1 + int(math.log(1 - chance.random()) / log_miss), most) for _ in range(steps)]
    missing = tokens - sum(drawn)
    while missing:
        place = chance.randrange(steps)
        change = 1 if missing > 0 else -1
        if 1 <= drawn[place] + change <= most:
            drawn[place] += change
            missing -= change
    return tuple(drawn)


def _pace(accepted: Sequence[int], speed: Speed, chance: random.Random) -> tuple[float, ...]:
    """Duration of each step in units of the table's, so that the whole request keeps the table's rate but for a jitter.

    The number of steps is whole and short requests would else be off by half a step.
    """
    if not accepted:
        return ()
    drawn = [1 + STEP_JITTER * max(-3.0, min(3.0, chance.gauss(0, 1))) for _ in accepted]
    whole = sum(accepted) / speed.acceptance_length
    slower = 1 + REQUEST_JITTER * max(-2.0, min(2.0, chance.gauss(0, 1)))
    scale = whole * slower / sum(drawn)
    return tuple(one * scale for one in drawn)
