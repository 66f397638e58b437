"""SGLang's answers, byte for byte in shape: chat and text completions, `/generate`, streamed and whole."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.rehearsal.output import Output, token_ids
from ddconsole.rehearsal.rates import Method

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Telling:
    """What the client asked to be told."""

    usage: bool = False
    continuous_usage: bool = False
    speculation: bool = False
    cached: bool = False
    """The server reports cached tokens (`--enable-cache-report`)."""
    reasoning_tokens: int = 0
    """Output tokens that stand in `reasoning_content`, from the first on."""


def event(value: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def usage(prompt: int, output: int, cached: int, telling: Telling) -> dict[str, Any]:
    """The `usage` object; cached tokens only where reported and not zero, as seen."""
    return {
        "prompt_tokens": prompt,
        "total_tokens": prompt + output,
        "completion_tokens": output,
        "prompt_tokens_details": {"cached_tokens": cached} if telling.cached and cached else None,
        "reasoning_tokens": min(telling.reasoning_tokens, output),
    }


def speculation(output: Output, steps: int, tokens: int, method: Method) -> dict[str, Any]:
    """SGLang's figures on speculation for one request, under the names of 0.5.16."""
    accepted = output.accepted[:steps]
    correct = sum(accepted) - steps
    proposed = steps * (method.positions - 1)
    histogram = [0] * (max(accepted, default=1))
    for one in accepted:
        histogram[one - 1] += 1
    return {
        "spec_accept_rate": correct / proposed if proposed else 0.0,
        "spec_accept_length": tokens / steps if steps else 0.0,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": histogram,
    }


class ChatChunks:
    """The events of one streamed `/v1/chat/completions`."""

    def __init__(self, rid: str, created: int, model: str, telling: Telling) -> None:
        head = {"id": rid, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = head
        self._telling = telling
        # Everything around the text is the same in all chunks: encoding only the text keeps a chunk at a microsecond.
        self._before = b"data: " + json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"choices":[{"index":0,'
        self._after = b'},"logprobs":null,"finish_reason":null,"matched_stop":null}]}\n\n'

    def first(self) -> bytes:
        """The role chunk, which comes with the first token."""
        return self._before + b'"delta":{"reasoning_content":null,"role":"assistant","content":""' + self._after

    def text(self, output: Output, start: int, end: int, prompt: int, cached: int) -> bytes:
        """Tokens `start` to `end`; two events where reasoning ends among them."""
        border = self._telling.reasoning_tokens
        if start < border < end:
            return self.text(output, start, border, prompt, cached) + self.text(output, border, end, prompt, cached)
        text = json.dumps(output.text(start, end)).encode()
        if start < border:
            chunk = self._before + b'"delta":{"reasoning_content":' + text + self._after
        else:
            chunk = self._before + b'"delta":{"reasoning_content":null,"content":' + text + self._after
        if not self._telling.continuous_usage:
            return chunk
        told = json.dumps(usage(prompt, end, cached, self._telling), separators=(",", ":")).encode()
        return chunk[:-3] + b',"usage":' + told + b"}\n\n"

    def end(self, reason: str, prompt: int, tokens: int, cached: int, details: Mapping[str, Any] | None) -> bytes:
        """Finish reason, then what was asked to be told, then `[DONE]`."""
        choice = {
            "index": 0,
            "delta": {"reasoning_content": None},
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": None,
        }
        parts = [event({**self._head, "choices": [choice]})]
        if details is not None and self._telling.speculation:
            parts.append(event({**self._head, "choices": [], "sglext": {"spec_tokens_details": details}}))
        if self._telling.usage:
            parts.append(event({**self._head, "choices": [], "usage": usage(prompt, tokens, cached, self._telling)}))
        return b"".join([*parts, DONE])


class TextChunks:
    """The events of one streamed `/v1/completions`; the last text carries the finish reason."""

    def __init__(self, rid: str, created: int, model: str, telling: Telling) -> None:
        self._head = {"id": rid, "object": "text_completion", "created": created, "model": model}
        self._telling = telling

    def first(self) -> bytes:
        """Nothing comes before the text."""
        return b""

    def text(self, output: Output, start: int, end: int, prompt: int, cached: int) -> bytes:
        """Tokens `start` to `end`."""
        told = usage(prompt, end, cached, self._telling) if self._telling.continuous_usage else None
        return self._event(output.text(start, end), None, told)

    def end(self, reason: str, prompt: int, tokens: int, cached: int, details: Mapping[str, Any] | None) -> bytes:
        """Finish reason, then what was asked to be told, then `[DONE]`."""
        parts = [self._event("", reason, None)]
        if details is not None and self._telling.speculation:
            parts.append(event({**self._head, "choices": [], "sglext": {"spec_tokens_details": details}}))
        if self._telling.usage:
            parts.append(event({**self._head, "choices": [], "usage": usage(prompt, tokens, cached, self._telling)}))
        return b"".join([*parts, DONE])

    def _event(self, text: str, reason: str | None, told: Mapping[str, Any] | None) -> bytes:
        choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason, "matched_stop": None}
        return event({**self._head, "choices": [choice], "usage": told})


class GenerateChunks:
    """The events of one streamed `/generate`: text and ids are repeated whole unless they are asked for in parts."""

    def __init__(self, rid: str, incremental: bool) -> None:
        self._rid = rid
        self._incremental = incremental
        self._last: tuple[Output, int, int] | None = None

    def first(self) -> bytes:
        """Nothing comes before the text."""
        return b""

    def text(self, output: Output, start: int, end: int, prompt: int, cached: int) -> bytes:
        """Tokens up to `end`."""
        self._last = (output, start, end)
        return event(self._value(meta_info(self._rid, None, prompt, end, cached)))

    def end(self, reason: str, prompt: int, tokens: int, cached: int, details: Mapping[str, Any] | None) -> bytes:
        """The whole once more (nothing, where it went in parts) with the request's figures, then `[DONE]`."""
        if self._incremental and self._last is not None:
            self._last = (self._last[0], self._last[2], self._last[2])
        last = meta_info(self._rid, finish_reason(reason, tokens), prompt, tokens, cached)
        return event(self._value({**last, **(details or {})})) + DONE

    def _value(self, meta: Mapping[str, Any]) -> dict[str, Any]:
        output, start, end = self._last or (Output((), (), (), False), 0, 0)
        start = start if self._incremental else 0
        tokens = output.tokens[start:end]
        return {"text": "".join(tokens), "output_ids": token_ids(tokens), "meta_info": meta}


def finish_reason(reason: str, tokens: int) -> dict[str, Any]:
    """`/generate`'s form of it."""
    if reason == "length":
        return {"type": "length", "length": tokens}
    if reason == "stop":
        return {"type": "stop", "matched": 248046}
    return {"type": "abort", "message": "Abort in running batch", "status_code": None, "err_type": None}


def meta_info(rid: str, reason: Mapping[str, Any] | None, prompt: int, tokens: int, cached: int) -> dict[str, Any]:
    """`/generate`'s account of a request so far."""
    return {
        "id": rid,
        "finish_reason": reason,
        "prompt_tokens": prompt,
        "weight_version": "default",
        "num_retractions": 0,
        "queue_time": 0.0,
        "reasoning_tokens": 0,
        "completion_tokens": tokens,
        "cached_tokens": cached,
        "cached_tokens_details": {"device": cached, "host": 0} if cached else None,
        "dp_rank": None,
    }


def whole_chat(head: Mapping[str, Any], output: Output, reason: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """A chat completion that is not streamed."""
    reasoning = int(told["reasoning_tokens"])
    message = {
        "role": "assistant",
        "content": "".join(output.tokens[reasoning:]),
        "reasoning_content": "".join(output.tokens[:reasoning]) or None,
        "tool_calls": None,
    }
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason, "matched_stop": None}
    rest = {"choices": [choice], "usage": told, "metadata": {"weight_version": "default"}}
    return {**head, "object": "chat.completion", **rest}


def whole_text(head: Mapping[str, Any], output: Output, reason: str, told: Mapping[str, Any]) -> dict[str, Any]:
    """A text completion that is not streamed."""
    choice = {
        "index": 0,
        "text": "".join(output.tokens),
        "logprobs": None,
        "finish_reason": reason,
        "matched_stop": None,
    }
    rest = {"choices": [choice], "usage": told, "metadata": {"weight_version": "default"}}
    return {**head, "object": "text_completion", **rest}


def error_in_stream(message: str, kind: str, code: int) -> bytes:
    """An error inside a stream whose status was 200."""
    return event({"error": {"object": "error", "message": message, "type": kind, "param": None, "code": code}})


def bad_request(message: str, kind: str = "BadRequestError", code: int = 400) -> dict[str, Any]:
    """The body of a refused request."""
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def message_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """The prompt that the chat template makes of messages."""
    parts = []
    for message in messages:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        parts.append(f"<|im_start|>{message.get('role', 'user')}\n{content}<|im_end|>\n")
    return "".join([*parts, "<|im_start|>assistant\n"])
