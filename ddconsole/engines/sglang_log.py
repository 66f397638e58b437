"""SGLang's log: how far the start is, decode lines for watching, and the facts that readiness compares.

Written against what releases 0.5.9 to 0.5.23 print. In steady state nearly all lines are decode, prefill and access
lines; they are told by a substring before any pattern is tried.
"""

import re
from collections.abc import Callable
from typing import Any

from ddconsole.engines.catalogue import LONGEST_MATCHED
from ddconsole.engines.engine import DecodeLine, LogItem, Step
from ddconsole.engines.failures import noise_notice
from ddconsole.engines.log_records import PREFIX, records
from ddconsole.engines.sglang_effective import arguments_in_log

_DECODE = re.compile(
    r"Decode batch(?: \[\d+\])?[,.] #running-req: (?P<running>\d+), .{0,400}?"
    r"(?:accept len: (?P<length>[\d.]+), .{0,200}?)?(?:c[up][a-z]* graph: (?P<graph>\w+), )?"
    r"gen throughput \(token/s\): (?P<rate>[\d.]+), #queue-req: (?P<queued>\d+)"
)
_SHARDS = re.compile(
    r"(?:Loading \w+ checkpoint|Multi-thread loading) shards:\s+(?P<percent>\d+)% Completed \| (?P<i>\d+)/(?P<n>\d+)"
)
_LOADED = re.compile(r"Load weight end\..{0,80}?type=(?P<type>\w+)")
_MAMBA = re.compile(
    r"Mamba Cache is allocated\. max_mamba_cache_size: (?P<n>\d+), conv_state size: (?P<conv>[\d.]+)\s?GB, "
    r"ssm_state size: (?P<ssm>[\d.]+)\s?GB(?:,?\s+intermediate_ssm_state_cache size: (?P<issm>[\d.]+)\s?GB,?\s+"
    r"intermediate_conv_window_cache size: (?P<iconv>[\d.]+)\s?GB)?"
)
_KV = re.compile(r"KV [Cc]ache (?:is )?allocated\.(?: dtype: (?P<dtype>[\w.]+),)? #tokens: (?P<tokens>\d+)")
_CAPTURE = re.compile(
    r"Capture (?P<what>(?:target |draft )?(?:verify |decode |prefill |extend |piecewise )*)(?:cuda|CUDA) graph begin"
)
_CAPTURING = re.compile(r"Capturing (?:batches|num tokens) \([^)]{0,80}\):?\s*(?P<percent>\d+)%")
_LIMITS = re.compile(
    r"max_total_num_tokens=(?P<max_total_num_tokens>\d+), chunked_prefill_size=(?P<chunked_prefill_size>-?\w+), "
    r"max_prefill_tokens=(?P<max_prefill_tokens>\d+), max_running_requests=(?P<max_running_requests>\d+), "
    r"context_len=(?P<context_len>\d+)"
)
_DFLASH = re.compile(
    r"Initialized DFLASH draft runner\. attention_backend=(?P<backend>[^,]+), model=(?P<model>[^,]+), "
    r"block_size=(?P<block>\d+)"
)
_DDTREE = re.compile(
    r"Initialized (?P<worker>DDTree|DDTREE v2) worker\. block_size=(?P<block>\d+), tree_budget=(?P<budget>\d+), "
    r"max_tree_nodes=(?P<nodes>\d+)"
)
_DSPARK = re.compile(r"Initialized DSpark draft runner\. attention_backend=(?P<backend>[^,]+), model=(?P<model>[^,]+)")

_STEPS = (
    ("Init torch distributed begin", Step("init distributed")),
    ("Init parallel begin", Step("init distributed")),
    ("Application startup complete", Step("warm up")),
    ("The server is fired up and ready to roll!", Step("ready", 1.0)),
)


class SglangLog:
    """Reads one server's log. Of several ranks the first one tells how far the start is."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"models": []}
        self._after_idle = False
        self._started = False
        self._capturing = "capture graphs"
        self._readers: tuple[tuple[str, Callable[[str], Step | None]], ...] = (
            ("checkpoint shards:", self._shards),
            ("loading shards:", self._shards),
            ("Load weight", self._load_weight),
            ("Captur", self._capture),
            ("ache is allocated", self._caches),
            ("ache allocated", self._caches),
            ("Initialized D", self._worker),
            ("max_total_num_tokens=", self._limits),
        )

    def feed(self, line: str) -> list[LogItem]:
        """One line without its newline; carriage returns are still in it."""
        items: list[LogItem] = []
        if not self._started:
            self._started = True
            items.append(Step("import"))
        for record in records(line):
            items += self._record(record)
        return items

    def _record(self, record: str) -> list[LogItem]:
        if "Decode batch" in record:
            return self._decode(record)
        if "Prefill batch" in record:
            self._after_idle = self._after_idle or "#running-req: 0," in record
            return []
        if 'HTTP/1.1"' in record:
            return []
        if "server_args=" in record:
            self.facts["effective"] = arguments_in_log(record)
            return [Step("resolve arguments")]
        text = record[:LONGEST_MATCHED]
        step = self._step(text)
        notice = noise_notice(text, "sglang")
        if notice is not None and notice.cause.id == "PORT-HTTP":
            self.facts["bind_failed"] = text
        return [item for item in (step, notice) if item is not None]

    def _decode(self, record: str) -> list[LogItem]:
        match = _DECODE.search(record[:LONGEST_MATCHED])
        if match is None:
            return []
        graph = None if match["graph"] is None else match["graph"] == "True"
        if graph is not None:
            self.facts["cuda_graph"] = graph
        # The first figure after idling is averaged over the idle time.
        rate = None if self._after_idle else float(match["rate"])
        self._after_idle = False
        length = None if match["length"] is None else float(match["length"])
        return [DecodeLine(rate, int(match["running"]), int(match["queued"]), length, graph)]

    def _step(self, text: str) -> Step | None:
        prefix = PREFIX.match(text)
        if prefix is not None and not _first_rank(prefix["tags"]):
            return None
        for words, read in self._readers:
            if words in text:
                return read(text)
        for words, step in _STEPS:
            if words in text:
                self.facts["ready"] = self.facts.get("ready", False) or step.name == "ready"
                return step
        return None

    def _shards(self, text: str) -> Step | None:
        match = _SHARDS.search(text)
        return None if match is None else Step(self._loading(), int(match["i"]) / max(1, int(match["n"])))

    def _limits(self, text: str) -> Step | None:
        match = _LIMITS.search(text)
        if match is not None:
            self.facts["limits"] = {name: _number(value) for name, value in match.groupdict().items()}
        return None

    def _loading(self) -> str:
        return "load draft weights" if self.facts["models"] else "load weights"

    def _load_weight(self, text: str) -> Step | None:
        if "Load weight begin" in text:
            return Step(self._loading(), 0.0)
        match = _LOADED.search(text)
        if match is None:
            return None
        step = Step(self._loading(), 1.0)
        self.facts["models"].append(match["type"])
        return step

    def _capture(self, text: str) -> Step | None:
        begin = _CAPTURE.search(text)
        if begin is not None:
            self._capturing = f"capture {begin['what']}graphs"
            return Step(self._capturing, 0.0)
        percents = _CAPTURING.findall(text)
        return Step(self._capturing, int(percents[-1]) / 100) if percents else None

    def _caches(self, text: str) -> Step | None:
        match = _KV.search(text)
        if match is not None:
            self.facts.setdefault("kv_tokens", int(match["tokens"]))
            return Step("allocate KV cache")
        match = _MAMBA.search(text)
        if match is None:
            return None
        self.facts.setdefault(
            "recurrent_state",
            {name: float(value) for name, value in match.groupdict().items() if value is not None},
        )
        return Step("allocate recurrent states")

    def _worker(self, text: str) -> Step | None:
        tree = _DDTREE.search(text)
        if tree is not None:
            block, budget = int(tree["block"]), int(tree["budget"])
            self.facts["speculation"] = {
                "worker": "DDTREE",
                "block_size": block,
                "budget": budget,
                "nodes": int(tree["nodes"]),
                "line": text,
            }
            # The first dialect's "spine mode": up to this budget it only truncates DFlash's chain.
            if tree["worker"] == "DDTree" and budget <= block - 1:
                self.facts["branches"] = False
            return None
        chain = _DFLASH.search(text) or _DSPARK.search(text)
        if chain is not None and (self.facts.get("speculation") or {}).get("worker") != "DDTREE":
            groups = chain.groupdict()
            self.facts["speculation"] = {
                "worker": "DFLASH" if "block" in groups else "DSPARK",
                "draft_backend": groups["backend"],
                **({"block_size": int(groups["block"])} if "block" in groups else {}),
                "line": text,
            }
        return None


def _first_rank(tags: str) -> bool:
    return all(tag[2:] == "0" for tag in tags.split())


def _number(text: str) -> int | str:
    return int(text) if text.lstrip("-").isdigit() else text
