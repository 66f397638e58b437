"""One streamed chat completion, read into the record of its request."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.core.visible_text import visible
from ddconsole.load.chunk_shape import ChunkShape
from ddconsole.load.engine_counts import EngineCounts, tokens_told_in
from ddconsole.load.first_read import FirstRead
from ddconsole.load.server_error import LONGEST_ERROR, error_of
from ddconsole.load.sse import EventSplitter


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """Which request of the attempt it is: the fields that `RequestRecord` has of the same names."""

    index: int
    repetition: int
    prompt: str
    turn: int
    stream: int
    intended: float | None = None


class ChatStream:
    """Reads the bytes of one answer as they come.

    A chunk counts as text when its content, its reasoning, or both are not empty; the role chunk is not text. Tokens
    are never counted from chunks unless the engine told no count at all.

    Args:
        identity: which request it is.
        sent: when it was handed over for sending, seconds of the monotonic clock; `sent` tells it more exactly.
        max_tokens: the length that was asked for.
        fixed_length: whether fewer tokens are a failure (`ignore_eos`).
    """

    def __init__(self, identity: RequestIdentity, sent: float, max_tokens: int, *, fixed_length: bool) -> None:
        self._identity = identity
        self._sent = sent
        self._went_out = False
        self._max_tokens = max_tokens
        self._fixed_length = fixed_length
        self._events = EventSplitter()
        self._shape = ChunkShape()
        self._counts = EngineCounts()
        self._first_text: float | None = None
        self._last_text: float | None = None
        self._finished: float | None = None
        self._first_read = FirstRead()
        self._gaps_us: list[int] = []
        self._text: list[str] = []
        self._content: list[str] = []
        self._finish_reason: str | None = None
        self._problem: str | None = None
        self._events_seen = 0
        self.chunks = 0
        """Chunks with text so far."""
        self.finished = False
        """`[DONE]` was read: nothing that matters follows."""

    @property
    def content(self) -> str:
        """The answer without its reasoning: what stands in the context of a live conversation's next turn."""
        return _whole_characters("".join(self._content))

    def sent(self, at: float) -> None:
        """It goes out at the monotonic time `at`. What is sent once more counts from the first time."""
        if not self._went_out:
            self._sent, self._went_out = at, True

    def feed(self, at: float, received: bytes) -> bool:
        """Take bytes that were read at the monotonic time `at`.

        Returns:
            Whether the server told anything: comments that keep a connection alive do not count.
        """
        payloads = self._events.feed(received)
        for payload in payloads:
            self._take_event(at, payload)
        return bool(payloads)

    def record(self, end: float, broken: str | None = None, *, cancelled: bool = False) -> RequestRecord:
        """What is kept of the request.

        Args:
            end: when it ended, seconds of the monotonic clock.
            broken: why the stream ended before the server was done, where it did.
            cancelled: the operator stopped it.
        """
        for payload in self._events.close():
            self._take_event(end, payload)
        tokens, source = self._counts.output_tokens(self.chunks)
        outcome, error = self._judge(tokens, source, broken)
        if cancelled:
            outcome, error = RequestOutcome.CANCELLED, None
        text = _whole_characters("".join(self._text))
        first_tokens, first_source = self._first_read.tokens(tokens, source, self.chunks, len(text))
        return RequestRecord(
            index=self._identity.index,
            repetition=self._identity.repetition,
            prompt=self._identity.prompt,
            turn=self._identity.turn,
            stream=self._identity.stream,
            sent=self._sent,
            first_text=self._first_text,
            last_text=self._last_text,
            end=end,
            chunks=self.chunks,
            chunk_gaps_us=tuple(self._gaps_us),
            prompt_tokens=self._counts.prompt_tokens,
            output_tokens=tokens,
            token_source=source,
            cached_tokens=self._counts.cached_tokens,
            reasoning_tokens=self._counts.reasoning_tokens,
            finish_reason=self._finish_reason,
            outcome=outcome,
            error=None if error is None else visible(error, LONGEST_ERROR),
            text_sha256=hashlib.sha256(text.encode()).hexdigest(),
            acceptance=self._acceptance(tokens),
            text=text,
            finished=self._finished,
            first_chunk_tokens=first_tokens,
            first_chunk_source=first_source,
            intended=self._identity.intended,
        )

    def _acceptance(self, tokens: int | None) -> Acceptance | None:
        return None if tokens is None else self._counts.acceptance(tokens)

    def _take_event(self, at: float, payload: bytes) -> None:
        text = None if self.finished else self._shape.text_of(payload)
        if text:
            self._take_alike(at, text)
        else:
            self._take_parsed(at, payload.strip())

    def _take_alike(self, at: float, text: str) -> None:
        """A chunk that differs from one that was parsed by its text alone."""
        self._events_seen += 1
        if self._shape.is_reasoning:
            self._take_text(at, text, "")
        else:
            self._take_text(at, "", text)
        if at == self._first_text:
            self._first_read.take(len(text), None)

    def _take_parsed(self, at: float, payload: bytes) -> None:
        if self.finished or not payload:
            return
        if payload == b"[DONE]":
            self.finished = True
            return
        self._events_seen += 1
        try:
            chunk = json.loads(payload.decode("utf-8", "replace"))
        except ValueError:
            self._fail(f"an event is not JSON: {payload[:80].decode('utf-8', 'replace')}")
            return
        if not isinstance(chunk, dict):
            self._fail(f"an event is not a JSON object: {payload[:80].decode('utf-8', 'replace')}")
            return
        self._fail(error_of(chunk))
        self._counts.take(chunk)
        choices = chunk.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self._take_choice(at, chunk, choice)
        self._shape.learn(payload, chunk)

    def _take_choice(self, at: float, chunk: Mapping[str, Any], choice: Mapping[str, Any]) -> None:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}  # the older completions protocol
        reasoning = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        content = _text(delta.get("content")) or _tool_call(delta)
        if reasoning or content:
            self._take_text(at, reasoning, content)
            if at == self._first_text:
                self._first_read.take(len(reasoning) + len(content), tokens_told_in(chunk, choice))
        self._counts.take(choice)
        self._take_finish(at, choice.get("finish_reason"))

    def _take_text(self, at: float, reasoning: str, content: str) -> None:
        if self._last_text is None:
            self._first_text = at
        else:
            self._gaps_us.append(round((at - self._last_text) * 1e6))
        self._last_text = at
        self.chunks += 1
        self._text += (reasoning, content)
        self._content.append(content)

    def _take_finish(self, at: float, reason: Any) -> None:
        if reason is None:
            return
        if self._finished is None:
            self._finished = at
        detail = None
        if isinstance(reason, dict):
            detail = reason.get("message")
            reason = reason.get("type")
        self._finish_reason = str(reason)
        if reason in ("abort", "error"):
            self._fail(f"the server ended it: finish_reason {reason}" + (f", {detail}" if detail else ""))

    def _fail(self, problem: str | None) -> None:
        self._problem = self._problem or problem

    def _judge(
        self, tokens: int | None, source: TokenSource | None, broken: str | None
    ) -> tuple[RequestOutcome, str | None]:
        failed = self._problem or broken
        if failed is None and not self.finished and self._finish_reason is None:
            failed = "the stream ended without [DONE] and without a finish_reason"
            if not self._events_seen:
                failed = "the answer held no event of a stream"
        if failed is None and not tokens:
            failed = "the server was done without a token"
        if failed is not None:
            return RequestOutcome.FAILED, failed
        if self._ended_short(tokens or 0, source):
            why = f"finish_reason {self._finish_reason}"
            return RequestOutcome.SHORT, f"ended after {tokens} of {self._max_tokens} tokens ({why})"
        return RequestOutcome.OK, None

    def _ended_short(self, tokens: int, source: TokenSource | None) -> bool:
        if not self._fixed_length or tokens >= self._max_tokens:
            return False
        # A chunk may hold several tokens: an estimate below the length is no proof where the engine says it reached it.
        return source is not TokenSource.ESTIMATED or self._finish_reason != "length"


def _tool_call(delta: Mapping[str, Any]) -> str:
    """What a chunk says of tool calls: output like any other, where a server's parser took it out of the content."""
    calls = delta.get("tool_calls")
    functions = [one.get("function") for one in calls if isinstance(one, dict)] if isinstance(calls, list) else []
    told = [one for one in functions if isinstance(one, dict)]
    return "".join(_text(one.get("name")) + _text(one.get("arguments")) for one in told)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole_characters(text: str) -> str:
    """`text` with surrogate pairs that two chunks shared put together, and single ones replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
