"""What an engine tells in its chunks about tokens, cache and speculation, under the names that each engine uses."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ddconsole.core.records import Acceptance, TokenSource

STEP_NAMES = ("spec_verify_ct",)
ACCEPTED_NAMES = ("spec_num_correct_drafts", "spec_accepted_drafts", "spec_accept_token_num")
DRAFTED_NAMES = ("spec_num_proposed_drafts", "spec_proposed_drafts", "spec_draft_token_num")
HISTOGRAM_NAMES = ("spec_correct_drafts_histogram", "spec_accept_histogram")
LENGTH_NAMES = ("spec_accept_length",)
"""SGLang 0.5.23, 0.5.11 and 0.5.6 in this order; several builds send two of the families."""

_TELLING = frozenset({"usage", "timings", "meta_info", "sglext"})


class EngineCounts:
    """The last word of the engine on each count: continuous usage and timings tell again with every chunk."""

    def __init__(self) -> None:
        self._usage: Mapping[str, Any] = {}
        self._timings: Mapping[str, Any] = {}
        self._meta_info: dict[str, Any] = {}
        self._speculation: dict[str, Any] = {}

    def take(self, part: Mapping[str, Any]) -> None:
        """Look at a chunk, or at one of its choices."""
        if _TELLING.isdisjoint(part):
            return
        self._usage = _object(part, "usage") or self._usage
        self._timings = _object(part, "timings") or self._timings
        meta_info = _object(part, "meta_info")
        details = _object(_object(part, "sglext"), "spec_tokens_details")
        if meta_info:
            self._meta_info.update(meta_info)
            self._speculation.update(meta_info)
        if details:
            self._speculation.update(details)

    def output_tokens(self, chunks: int) -> tuple[int | None, TokenSource | None]:
        """The number of output tokens and who counted: `usage`, then `meta_info`, then `timings`, then the chunks.

        A count of zero beside chunks with text is no count.
        """
        for count, source in _output_counts(self._usage, self._meta_info, self._timings):
            if count is not None and (count > 0 or not chunks):
                return count, source
        return (chunks, TokenSource.ESTIMATED) if chunks else (None, None)

    @property
    def prompt_tokens(self) -> int | None:
        """Tokens of the prompt, those from the cache included."""
        told = _first(_whole(self._usage, "prompt_tokens"), _whole(self._meta_info, "prompt_tokens"))
        computed = _whole(self._timings, "prompt_n")
        if told is None and computed is not None:  # llama.cpp's prompt_n leaves out what came from the cache
            return computed + (_whole(self._timings, "cache_n") or 0)
        return told

    @property
    def cached_tokens(self) -> int | None:
        """Prompt tokens from the prefix cache; None where the engine does not tell, which SGLang also does for zero."""
        details = _object(self._usage, "prompt_tokens_details")
        return _first(
            _whole(details, "cached_tokens"),
            _whole(self._meta_info, "cached_tokens"),
            _whole(self._timings, "cache_n"),
        )

    @property
    def reasoning_tokens(self) -> int | None:
        """Output tokens that were reasoning."""
        details = _object(self._usage, "completion_tokens_details")
        return _first(
            _whole(self._usage, "reasoning_tokens"),
            _whole(details, "reasoning_tokens"),
            _whole(self._meta_info, "reasoning_tokens"),
        )

    def acceptance(self, tokens: int) -> Acceptance | None:
        """Speculation of this request, None where the engine told nothing: unknown is not 1.00.

        llama.cpp tells drafted and accepted tokens but no verify steps. SGLang tells the steps; its own acceptance
        length is kept only where it is not `tokens / steps`.
        """
        steps = _named(self._speculation, STEP_NAMES)
        length = self._engine_length()
        drafted = _first(_named(self._speculation, DRAFTED_NAMES), _whole(self._timings, "draft_n"))
        accepted = _first(_named(self._speculation, ACCEPTED_NAMES), _whole(self._timings, "draft_n_accepted"))
        if steps is None and length is None and drafted is None and accepted is None:
            return None
        if steps and length is not None and math.isclose(length, tokens / steps, rel_tol=1e-3):
            length = None
        return Acceptance(
            tokens=tokens,
            steps=steps,
            drafted=drafted,
            accepted=accepted,
            source="request",
            engine_length=length,
            accepted_at=self._accepted_at(),
        )

    def _accepted_at(self) -> tuple[int, ...] | None:
        """Steps that accepted the draft at each position: those that accepted so many or more."""
        told = next((self._speculation[name] for name in HISTOGRAM_NAMES if name in self._speculation), None)
        if not isinstance(told, list) or not all(isinstance(one, int) and one >= 0 for one in told):
            return None
        return tuple(sum(told[place:]) for place in range(1, len(told)))

    def _engine_length(self) -> float | None:
        for name in LENGTH_NAMES:
            value = self._speculation.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        return None


def tokens_told_in(*parts: Mapping[str, Any]) -> tuple[int, TokenSource] | None:
    """The output tokens so far, as one chunk and its choice tell them; None where they do not."""
    for part in parts:
        if not _TELLING.isdisjoint(part):
            told = (_object(part, name) for name in ("usage", "meta_info", "timings"))
            for count, source in _output_counts(*told):
                if count:
                    return count, source
    return None


def _output_counts(
    usage: Mapping[str, Any], meta_info: Mapping[str, Any], timings: Mapping[str, Any]
) -> tuple[tuple[int | None, TokenSource], ...]:
    return (
        (_whole(usage, "completion_tokens"), TokenSource.USAGE),
        (_whole(meta_info, "completion_tokens"), TokenSource.META_INFO),
        (_whole(timings, "predicted_n"), TokenSource.TIMINGS),
    )


def _object(part: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = part.get(name)
    return value if isinstance(value, dict) else {}


def _whole(part: Mapping[str, Any], name: str) -> int | None:
    value = part.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return int(value)


def _named(part: Mapping[str, Any], names: Iterable[str]) -> int | None:
    return _first(*(_whole(part, name) for name in names))


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
