"""The load generators that are compared: how each is started on a load, and what it says came of it."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".peers"
_WORDS = 2000


@dataclass(frozen=True)
class Load:
    """What every tool is asked for, and how the server paces its answers. Times in seconds."""

    name: str
    streams: int
    requests: int
    tokens: int
    """Output tokens of a request."""
    gap: float
    random_gaps: bool = False
    most_tokens: int = 1
    first: float = 0.05
    close_after: float | None = None

    @property
    def pace(self) -> dict[str, Any]:
        """As the server takes it."""
        names = ("first", "gap", "random_gaps", "most_tokens", "close_after")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Told:
    """What a tool says. Times in seconds, means over its requests; None where it says nothing."""

    succeeded: int
    ttft: float | None
    tpot: float | None
    rate: float | None
    """Output tokens a second, of all requests together."""


@dataclass(frozen=True)
class Tool:
    """One load generator."""

    name: str
    command: Callable[[str, Load, Path], list[str]]
    """Argument list, for a URL, a load, and a folder for its results."""
    told: Callable[[Path, Load], Told]
    counts_first_chunk: bool = False
    """Whether its TPOT leaves out all tokens of the first chunk, and not just one."""
    offline: bool = True
    """Whether it takes a tokenizer from a folder when it is told to ask no hub."""
    home: str = ""
    """Its folder below `.peers`; empty for our own."""

    @property
    def python(self) -> Path:
        """The interpreter that has it."""
        return PEERS / self.home / "bin" / "python" if self.home else Path(sys.executable)

    @property
    def installed(self) -> bool:
        """Whether it can be started."""
        return self.python.exists()


def tokenizer_folder() -> Path:
    """A tokenizer of whole words, for the tools that make their prompts themselves: nothing is downloaded."""
    folder = PEERS / "tokenizer"
    folder.mkdir(parents=True, exist_ok=True)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2, "x": 3} | {f"w{number}": 4 + number for number in range(_WORDS)}
    special = [
        {"id": words[name], "content": name, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for name in ("<unk>", "<s>", "</s>")
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": 65536,
        "unk_token": "<unk>",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": "{% for m in messages %}{{ m['content'] }}{% endfor %}",
    }
    config = {"model_type": "llama", "vocab_size": len(words), "max_position_embeddings": 65536}
    for name, data in (("tokenizer", tokenizer), ("tokenizer_config", settings), ("config", config)):
        (folder / f"{name}.json").write_text(json.dumps(data))
    return folder


# --- ours ------------------------------------------------------------------------------------------------------


def _ours(url: str, load: Load, folder: Path, *options: str) -> list[str]:
    (folder / "load.json").write_text(json.dumps(vars(load)))
    return [sys.executable, "-m", "tests.benchmarks.own_load", url, str(folder), *options]


def _ours_told(folder: Path, _: Load) -> Told:
    return Told(**json.loads((folder / "told.json").read_text()))


# --- vllm bench serve ------------------------------------------------------------------------------------------


def _vllm(url: str, load: Load, folder: Path) -> list[str]:
    return [
        str(PEERS / "vllm/bin/vllm"), "bench", "serve", "--backend", "openai-chat", "--base-url", url,
        "--endpoint", "/v1/chat/completions", "--model", "paced", "--tokenizer", str(tokenizer_folder()),
        "--dataset-name", "random", "--random-input-len", "32", "--random-output-len", str(load.tokens),
        "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams), "--ignore-eos",
        "--save-result", "--result-dir", str(folder), "--result-filename", "result.json", "--disable-tqdm",
    ]  # fmt: skip


def _vllm_told(folder: Path, _: Load) -> Told:
    return _milliseconds(json.loads((folder / "result.json").read_text()))


def _milliseconds(data: Mapping[str, Any]) -> Told:
    return Told(
        int(data["completed"]), data["mean_ttft_ms"] / 1e3, data["mean_tpot_ms"] / 1e3, data["output_throughput"]
    )


# --- sglang.bench_serving --------------------------------------------------------------------------------------


def _sglang(url: str, load: Load, folder: Path) -> list[str]:
    return [
        str(PEERS / "sglang/bin/python"), "-m", "sglang.bench_serving", "--backend", "sglang-oai-chat",
        "--base-url", url, "--model", "paced", "--tokenizer", str(tokenizer_folder()),
        "--dataset-name", "random-ids", "--random-input-len", "32", "--random-output-len", str(load.tokens),
        "--random-range-ratio", "1.0", "--num-prompts", str(load.requests), "--max-concurrency", str(load.streams),
        "--output-file", str(folder / "result.jsonl"), "--disable-tqdm",
    ]  # fmt: skip


def _sglang_told(folder: Path, _: Load) -> Told:
    return _milliseconds(json.loads((folder / "result.jsonl").read_text().splitlines()[-1]))


# --- guidellm --------------------------------------------------------------------------------------------------


def _guidellm(url: str, load: Load, folder: Path) -> list[str]:
    return [
        str(PEERS / "guidellm/bin/guidellm"), "run", "--backend", f"kind=openai_http,target={url},model=paced",
        "--profile", f"kind=concurrent,streams={load.streams}",
        "--constraint", f"kind=max_requests,count={load.requests}",
        "--data", f"kind=synthetic_text,prompt_tokens=32,output_tokens={load.tokens}",
        "--tokenizer", f"kind=hf_auto,model={tokenizer_folder()}",
        "--output", f"kind=json,path={folder / 'result.json'}", "--disable-console-interactive",
    ]  # fmt: skip


def _guidellm_told(folder: Path, _: Load) -> Told:
    (benchmark,) = json.loads((folder / "result.json").read_text())["benchmarks"]
    metrics = benchmark["metrics"]

    def mean(name: str) -> float:
        return float(metrics[name]["successful"]["mean"])

    return Told(
        int(metrics["request_totals"]["successful"]),
        mean("time_to_first_token_ms") / 1e3,
        mean("inter_token_latency_ms") / 1e3,
        mean("output_tokens_per_second"),
    )


# --- aiperf ----------------------------------------------------------------------------------------------------


def _aiperf(url: str, load: Load, folder: Path) -> list[str]:
    return [
        str(PEERS / "aiperf/bin/aiperf"), "profile", "--model", "paced", "--url", url, "--endpoint-type", "chat",
        "--streaming", "--concurrency", str(load.streams), "--request-count", str(load.requests),
        "--synthetic-input-tokens-mean", "32", "--synthetic-input-tokens-stddev", "0",
        "--output-tokens-mean", str(load.tokens), "--output-tokens-stddev", "0", "--tokenizer", str(tokenizer_folder()),
        "--use-server-token-count", "--artifact-dir", str(folder), "--ui", "none",
    ]  # fmt: skip


def _aiperf_told(folder: Path, _: Load) -> Told:
    data = json.loads(next(folder.rglob("profile_export_aiperf.json")).read_text())

    def mean(name: str) -> float | None:
        metric = data.get(name)
        return None if metric is None else float(metric["avg"])

    ttft, pace = mean("time_to_first_token"), mean("inter_token_latency")
    return Told(
        int(mean("request_count") or 0),
        None if ttft is None else ttft / 1e3,
        None if pace is None else pace / 1e3,
        mean("output_token_throughput"),
    )


TOOLS = (
    Tool("ddconsole", _ours, _ours_told),
    Tool(
        "ddconsole, counting each chunk",
        lambda url, load, folder: _ours(url, load, folder, "count"),
        _ours_told,
        counts_first_chunk=True,
    ),
    Tool("vllm bench serve", _vllm, _vllm_told, home="vllm"),
    Tool("sglang.bench_serving", _sglang, _sglang_told, home="sglang"),
    Tool("guidellm", _guidellm, _guidellm_told, home="guidellm"),
    Tool("aiperf", _aiperf, _aiperf_told, offline=False, home="aiperf"),
)
