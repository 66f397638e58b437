"""vLLM's log: how far the start is, its figures every ten seconds, and what readiness compares.

Written against what 0.20 to 0.33 print. A line begins with the process that wrote it, `(EngineCore pid=12095)`; of
several workers the first rank tells how far the start is.
"""

import re
from typing import Any

from ddconsole.engines.catalogue import LONGEST_MATCHED
from ddconsole.engines.engine import DecodeLine, LogItem, Step
from ddconsole.engines.failures import noise_notice
from ddconsole.engines.log_records import records

_LONGEST_CONFIG = 16 * 1024
"""Characters of the line that tells the engine's configuration."""
_VERSION = re.compile(r"LLM engine \((?P<version>v\S+)\) with config")
_SPECULATION = re.compile(
    r"speculative_config=(?:None|SpeculativeConfig\(method='(?P<method>[^']*)', model=(?:None|'(?P<model>[^']*)'), "
    r"num_spec_tokens=(?P<tokens>\d+))"
)
_VALUE = r"(?<![\w.]){name}=(?P<value>'[^']*'|[^,()\s]+)"
KEYS = (
    "dtype",
    "max_seq_len",
    "load_format",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "disable_custom_all_reduce",
    "quantization",
    "enforce_eager",
    "kv_cache_dtype",
    "seed",
    "enable_prefix_caching",
    "enable_chunked_prefill",
)
"""Of the configuration: what a fair comparison looks at."""
_CONFIG_VALUES = {key: re.compile(_VALUE.format(name=key)) for key in KEYS}
_GRAPHS = re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(?P<mode>\w+)")
_SHARDS = re.compile(r"checkpoint shards:\s+\d+% Completed \| (?P<i>\d+)/(?P<n>\d+)")
_KV = re.compile(r"KV cache size: (?P<tokens>[\d,]+) tokens")
_CAPTURING = re.compile(r"Capturing CUDA graphs[^:]{0,80}:\s*(?P<percent>\d+)%")
_BACKEND = re.compile(r"Using (?P<backend>[\w ]{2,40}?) (?:attention )?backend")
_STATS = re.compile(
    r"Avg generation throughput: (?P<rate>[\d.]+) tokens/s, Running: (?P<running>\d+) reqs, Waiting: (?P<queued>\d+)"
)
_DRAFTS = re.compile(r"SpecDecoding metrics: .{0,400}?[Mm]ean acceptance length: (?P<length>[\d.]+)")
_OTHER_RANK = re.compile(r"^\((?:Vllm)?Worker\w*_TP[1-9]")
_STEPS = (
    ("Starting to load model", Step("load weights", 0.0)),
    ("Loading drafter model", Step("load draft weights", 0.0)),
    ("for the compilation", Step("compile")),
    ("Graph capturing finished", Step("capture graphs", 1.0)),
    ("init engine (profile", Step("start HTTP")),
    ("Application startup complete", Step("ready", 1.0)),
)


class VllmLog:
    """Reads one server's log."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self._started = False
        self._loading = "load weights"

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
        if "Avg generation throughput" in record or "SpecDecoding metrics" in record:
            return self._figures(record[:LONGEST_MATCHED])
        if 'HTTP/1.1"' in record or _OTHER_RANK.match(record) is not None:
            return []
        if "LLM engine (v" in record:
            self._config(record[:_LONGEST_CONFIG])
            return [Step("init engine")]
        text = record[:LONGEST_MATCHED]
        step = self._step(text)
        notice = noise_notice(text, "vllm")
        if "Address already in use" in text:
            self.facts["bind_failed"] = text
        return [item for item in (step, notice) if item is not None]

    def _config(self, text: str) -> None:
        """The first engine's word counts: of several data-parallel ones all say the same."""
        version = _VERSION.search(text)
        if version is not None:
            self.facts.setdefault("version", version["version"].removeprefix("v"))
        values = {key: match["value"].strip("'") for key, one in _CONFIG_VALUES.items() if (match := one.search(text))}
        graphs = _GRAPHS.search(text)
        if graphs is not None:
            values["cudagraph_mode"] = graphs["mode"]
        told = _SPECULATION.search(text)
        if told is not None:
            tokens = told["tokens"]
            speculation = {"method": told["method"], "model": told["model"], "num_speculative_tokens": tokens}
            kept = {name: value for name, value in speculation.items() if value is not None}
            self.facts.setdefault("speculation", {**kept, "num_speculative_tokens": int(tokens)} if tokens else None)
        self.facts.setdefault("effective", values)

    def _figures(self, text: str) -> list[LogItem]:
        stats = _STATS.search(text)
        if stats is not None:
            return [DecodeLine(float(stats["rate"]), int(stats["running"]), int(stats["queued"]), None)]
        drafts = _DRAFTS.search(text)
        return [] if drafts is None else [DecodeLine(None, None, None, float(drafts["length"]))]

    def _step(self, text: str) -> Step | None:
        for words, step in _STEPS:
            if words in text:
                self._loading = step.name if step.name.startswith("load") else self._loading
                self.facts["ready"] = self.facts.get("ready", False) or step.name == "ready"
                return step
        if "checkpoint shards:" in text:
            match = _SHARDS.search(text)
            return None if match is None else Step(self._loading, int(match["i"]) / max(1, int(match["n"])))
        if "KV cache size:" in text:
            match = _KV.search(text)
            if match is not None:
                self.facts.setdefault("kv_tokens", int(match["tokens"].replace(",", "")))
            return Step("allocate KV cache")
        if "Capturing CUDA graphs" in text:
            percents = _CAPTURING.findall(text)
            return Step("capture graphs", int(percents[-1]) / 100) if percents else Step("capture graphs", 0.0)
        if "backend" in text and "Using" in text:
            match = _BACKEND.search(text)
            if match is not None and "attn" in match["backend"].lower().replace("attention", "attn"):
                self.facts.setdefault("attention_backend", match["backend"])
        return None
