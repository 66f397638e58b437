"""Chunks of a stream that differ in their text alone: the text is read without parsing the rest of the JSON again."""

import json
import re
from collections.abc import Mapping
from typing import Any

_STRING = re.compile(rb'(?:[^"\\]|\\.)*', re.DOTALL)
_FIELDS = ("reasoning_content", "reasoning", "content")
_PLACES = {name: re.compile(rb'"%b"\s*:\s*"' % name.encode()) for name in _FIELDS}
_PLAIN_CHOICE = frozenset({"index", "delta", "logprobs", "finish_reason", "matched_stop", "stop_reason", "token_ids"})
_PLAIN_CHUNK = frozenset({"id", "object", "created", "model", "choices", "usage", "system_fingerprint", "service_tier"})
_LONGEST = 16 * 1024
_TRIES = 4
"""Shapes in a row that no chunk had again, after which a stream counts as one of chunks that differ in more."""
_PROBE = "~"


class ChunkShape:
    """What stands before and after the text of one stream's chunks.

    A shape is learned from a chunk that says nothing but its text, and only after another text in the same place gave
    the same JSON but for that text. So a chunk with the same bytes before and after, and a JSON string between, means
    the same but for its text. Everything else is left to the parser.
    """

    def __init__(self) -> None:
        self.is_reasoning = False
        """Whether the text is reasoning."""
        self._before = b""
        self._after = b""
        self._fewest = 0
        self._used = False
        self._tries_left = _TRIES

    def text_of(self, payload: bytes) -> str | None:
        """The chunk's text, None when it must be parsed."""
        before, after = self._before, self._after
        if not before or not payload.startswith(before) or not payload.endswith(after) or len(payload) < self._fewest:
            return None
        self._used = True
        text = payload[len(before) : len(payload) - len(after)].decode("utf-8", "replace")
        if text.isprintable() and '"' not in text and "\\" not in text:
            return text
        try:
            value = json.loads(f'"{text}"')
        except ValueError:
            return None
        return value if isinstance(value, str) else None

    def learn(self, payload: bytes, chunk: Mapping[str, Any]) -> None:
        """Take the shape of a chunk that was parsed, if it is such a one."""
        if self._used:
            self._used, self._tries_left = False, _TRIES
        if not self._tries_left or len(payload) > _LONGEST:
            return
        name = _only_text(chunk)
        if name is None:
            return
        self._tries_left -= 1
        self._before = b""
        for place in _PLACES[name].finditer(payload):
            string = _STRING.match(payload, place.end())
            if string is not None and self._proven(payload[: place.end()], payload[string.end() :], chunk, name):
                self._before, self._after = payload[: place.end()], payload[string.end() :]
                self._fewest = len(self._before) + len(self._after)
                self.is_reasoning = name != "content"
                return

    def _proven(self, before: bytes, after: bytes, chunk: Mapping[str, Any], name: str) -> bool:
        try:
            other = json.loads((before + _PROBE.encode() + after).decode("utf-8", "replace"))
        except ValueError:
            return False
        try:
            delta = other["choices"][0]["delta"]
            found, delta[name] = delta[name], chunk["choices"][0]["delta"][name]
        except (KeyError, IndexError, TypeError):
            return False
        return bool(found == _PROBE and other == chunk)


def _only_text(chunk: Mapping[str, Any]) -> str | None:
    """The field of the text of a chunk that says nothing else; None for any other chunk."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        return None
    choice = choices[0]
    delta = choice.get("delta")
    if not isinstance(delta, dict) or not (chunk.keys() <= _PLAIN_CHUNK and choice.keys() <= _PLAIN_CHOICE):
        return None
    if chunk.get("usage") is not None or choice.get("finish_reason") is not None or delta.get("tool_calls"):
        return None
    told = [name for name in _FIELDS if delta.get(name)]
    return told[0] if len(told) == 1 and isinstance(delta[told[0]], str) else None
