"""llama-server's log: load steps, timings of finished requests, and whether its speculation was refused."""

import re
from typing import Any

from ddconsole.engines.catalogue import LONGEST_MATCHED
from ddconsole.engines.engine import DecodeLine, LogItem, Step
from ddconsole.engines.failures import noise_notice
from ddconsole.engines.log_records import records

_EVAL = re.compile(
    r"(?<!prompt )eval time =\s*(?P<ms>[\d.]+) ms /\s*(?P<n>\d+) (?:tokens|runs)\s*\(\s*[\d.]+ ms per token,\s*"
    r"(?P<rate>[\d.]+) tokens per second\)"
)
_LIVE = re.compile(r"n_gen =\s*(?P<n>\d+), tg =\s*(?P<rate>[\d.]+) t/s(?:, tg_3s =\s*(?P<recent>[\d.]+) t/s)?")
_DRAFT = re.compile(
    r"draft acceptance(?: rate)? =\s*(?P<share>[\d.]+) \(\s*(?P<accepted>\d+) accepted /\s*(?P<drafted>\d+) generated\)"
    r"(?:, mean (?:acceptance length|len) =\s*(?P<length>[\d.]+))?"
)
_SLOTS = re.compile(r"initializing, n_slots = (?P<slots>\d+), n_ctx_slot = (?P<context>\d+)")
_SLOT = re.compile(r"slot\s+\S+ id\s+(?P<id>\d+) \|")
_LISTENING = re.compile(r"(?:server is )?listening on (?P<url>http\S+)")
_REFUSED = (
    "target and draft vocabs are not compatible",
    "failed to initialize speculative decoding context",
    "draft model vocab must match",
    "draft model vocab type must match",
)


class LlamaLog:
    """Reads one server's log."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self._busy: set[str] = set()

    def feed(self, line: str) -> list[LogItem]:
        """One line without its newline; carriage returns are still in it."""
        return [item for record in records(line) for item in self._record(record[:LONGEST_MATCHED])]

    def _record(self, text: str) -> list[LogItem]:
        if "print_timing" in text or "eval time" in text or "draft acceptance" in text:
            return self._timing(text)
        if "launch_slot_" in text or "release:" in text:
            return self._slot(text)
        step = self._step(text)
        if any(words in text for words in _REFUSED):
            self.facts.setdefault("speculation_refused", text)
        notice = noise_notice(text, "llamacpp")
        if notice is not None and notice.cause.id in {"LC-BIND", "PORT-HTTP"}:
            self.facts["bind_failed"] = text
        return [item for item in (step, notice) if item is not None]

    def _step(self, text: str) -> Step | None:
        if "initializing" in text:
            slots = _SLOTS.search(text)
            if slots is None:
                return Step("init server") if text.endswith("initializing ...") else None
            self.facts["limits"] = {"slots": int(slots["slots"]), "context_per_slot": int(slots["context"])}
            return Step("allocate KV cache")
        if "loading draft model" in text:
            self.facts["draft_loaded"] = True
            return Step("load draft weights")
        if "loading model '" in text:
            return Step("load weights")
        if text.endswith("model loaded"):
            return Step("warm up")
        match = _LISTENING.search(text) if "listening on" in text else None
        if match is not None:
            self.facts["ready"] = True
            return Step("ready", 1.0)
        return None

    def _slot(self, text: str) -> list[LogItem]:
        match = _SLOT.search(text)
        if match is not None:
            if "release:" in text:
                self._busy.discard(match["id"])
            else:
                self._busy.add(match["id"])
        return []

    def _timing(self, text: str) -> list[LogItem]:
        """The rate is one request's, not the server's; the length is llama.cpp's own: of steps that drafted only."""
        running = len(self._busy) or None
        done = _EVAL.search(text)
        if done is not None:
            return [DecodeLine(float(done["rate"]), running, None, None)]
        live = _LIVE.search(text)
        if live is not None:
            return [DecodeLine(float(live["recent"] or live["rate"]), running, None, None)]
        draft = _DRAFT.search(text)
        if draft is not None and draft["length"] is not None:
            return [DecodeLine(None, running, None, float(draft["length"]))]
        return []
