"""Streams of bytes with times, as a server sends them, and the records that are made of them."""

import json
from typing import Any

from ddconsole.core.records import RequestRecord
from ddconsole.load.chat_stream import ChatStream, RequestIdentity

Reads = list[tuple[float, bytes]]


def event(**data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(reason: Any = None, tokens: int | None = None, **fields: Any) -> bytes:
    """One chunk; with `tokens`, its usage as of then."""
    usage = {} if tokens is None else {"usage": {"completion_tokens": tokens, "prompt_tokens": 9}}
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": reason}], **usage)


def text(content: str = "x", tokens: int | None = None) -> bytes:
    return delta(content=content, tokens=tokens)


def ending(tokens: int | None, reason: str = "length") -> bytes:
    usage = b"" if tokens is None else event(choices=[], usage={"prompt_tokens": 9, "completion_tokens": tokens})
    return delta(reason) + usage + b"data: [DONE]\n\n"


ROLE = delta(role="assistant", content="")


def measured(reads: Reads, asked: int, *, fixed: bool = True, stream: int = 0, sent: float = 0.0) -> RequestRecord:
    identity = RequestIdentity(index=0, repetition=0, prompt="p", turn=0, stream=stream)
    one = ChatStream(identity, sent, asked, fixed_length=fixed)
    for at, received in reads:
        one.feed(at, received)
    return one.record(reads[-1][0])


def request(sent: float, first: float, gap: float, tokens: int, stream: int = 0) -> RequestRecord:
    reads = [(first + gap * number, text()) for number in range(tokens)]
    return measured([*reads, (reads[-1][0], ending(tokens))], tokens, stream=stream, sent=sent)
