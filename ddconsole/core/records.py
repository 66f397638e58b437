"""What is kept of every request, and of every attempt: enough to make each figure again."""

from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class TokenSource(StrEnum):
    """Who counted a request's output tokens."""

    USAGE = "usage"
    """The `usage` object of the OpenAI protocol."""
    META_INFO = "meta_info"
    """SGLang's own `/generate`."""
    TIMINGS = "timings"
    """llama.cpp's `timings` object."""
    ESTIMATED = "estimated"
    """Counted from chunks because the engine told nothing: every figure made from it says so."""


class RequestOutcome(StrEnum):
    """How a request ended. Only `ok` enters a mean."""

    OK = "ok"
    FAILED = "failed"
    """Refused, broken, an error inside a 200 stream, or no tokens at all."""
    SHORT = "short"
    """It ended before the fixed length that was asked for."""
    CANCELLED = "cancelled"
    """The operator stopped the cell."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Speculation of one request or of one cell.

    `steps` counts verify steps, bonus token included in `tokens`; `drafted` and `accepted` count draft tokens.
    """

    tokens: int
    steps: int | None
    drafted: int | None
    accepted: int | None
    source: str
    """`request` (the engine told per request) or `counters` (difference of the engine's counters)."""
    engine_length: float | None = None
    """What the engine itself prints under that name, where its definition is another one than ours."""
    accepted_at: tuple[int, ...] | None = None
    """Steps that accepted the draft at each position, from the first on; None where the engine did not tell."""

    @property
    def histogram(self) -> tuple[int, ...] | None:
        """Verify steps by how many drafts they accepted, from none on; None where the engine did not tell."""
        if self.accepted_at is None or not self.steps:
            return None
        reached = (self.steps, *self.accepted_at, 0)
        return tuple(one - more for one, more in pairwise(reached))

    @property
    def length(self) -> float | None:
        """Mean tokens per verify step, bonus token included; None where the engine did not tell."""
        return self.tokens / self.steps if self.steps else None


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request as the client saw it. Times are seconds of the monotonic clock of the load process."""

    index: int
    """Order of sending within the attempt, from 0."""
    repetition: int
    prompt: str
    """Name of the prompt, or `script/turn` of a conversation."""
    turn: int
    """0 for single generations, 1.. within a conversation."""
    stream: int
    """Which of the concurrent clients sent it, from 0."""
    sent: float
    first_text: float | None
    """Time of the first chunk with text, content or reasoning."""
    last_text: float | None
    end: float
    chunks: int
    """Chunks that carried text."""
    chunk_gaps_us: tuple[int, ...]
    """Microseconds between successive chunks with text."""
    prompt_tokens: int | None
    output_tokens: int | None
    token_source: TokenSource | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    finish_reason: str | None
    outcome: RequestOutcome
    error: str | None
    """What went wrong, in the server's or the library's words, control characters made visible."""
    text_sha256: str
    acceptance: Acceptance | None = None
    text: str = ""
    """The output itself, for comparing methods and for replaying turns."""
    finished: float | None = None
    """Time of the `finish_reason`: the last token was there, also one that has no text, such as the end-of-text token.
    None where the server sent none, and in older records."""
    first_chunk_tokens: int | None = None
    """Tokens that had come with the read that held the first text: what of the output cost no time after it."""
    first_chunk_source: TokenSource | None = None
    """Who counted them. `estimated` is by the first text's share of the whole, and enters no figure but the bias."""
    intended: float | None = None
    """When an open loop meant to send it; its latencies count from here. None in the other modes."""


@dataclass(frozen=True, slots=True)
class CellProgress:
    """What the load process says while a cell is measured. May be dropped on the way."""

    cell: str
    attempt: int
    requests_done: int
    requests_planned: int
    requests_failed: int
    running: int
    """Requests in flight."""
    output_rate: float | None
    """Output tokens a second over the last second or so, by chunks: for watching only, never a result."""
    at: float
