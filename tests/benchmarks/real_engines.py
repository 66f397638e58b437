"""Our figures beside a real engine's own counters and beside a peer, on the same requests.

`python -m tests.benchmarks.real_engines [llamacpp] [sglang] [vllm-draft] ...`; llama.cpp's server comes with the demo.
SGLang wants DDCONSOLE_SGLANG_PYTHON, vLLM `make bench-peers`, both DDCONSOLE_SGLANG_MODELS: the folder of `tinypy-hf`
and `tinypy-draft-hf`. Each engine is measured plain and with a draft model, or as named, in turns by us and by
`vllm bench serve` (where it is installed): the same prompts, greedy, the same lengths, the same concurrency.

Prints one row a server: output tokens told by us, counted by the engine, told by the peer; output rates with the 95 %
interval of our passes, and the peer's mean; acceptance by us, and from the engine's own words.
"""

import asyncio
import json
import math
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddconsole.core.clock import SystemClock
from ddconsole.core.figures import summarise
from ddconsole.core.records import RequestRecord
from ddconsole.core.sweep import Deployment, Placement, Sampling, Speculative, WorkloadPoint
from ddconsole.engines.engine import Counters, Engine, ServerStart
from ddconsole.engines.register import engine
from ddconsole.load.task import LoadTask, Prompt
from ddconsole.runner.acceptance import cell_acceptance, with_steps
from ddconsole.runner.server_api import HttpServerApi
from tests.benchmarks.own_load import measured
from tests.benchmarks.peer_tools import PEERS, ROOT

PASSES = 3
STREAMS = 2
TOKENS = 192
PROMPTS = tuple(
    Prompt(f"p{number}", f"# {number}\n{text}")
    for number, text in enumerate(
        2
        * (
            "def add(a, b):", "class Stack:", "import os\nimport sys\n", "for line in open(path):", "def fibonacci(n):",
            "with open(name) as file:", "try:\n    value = int(text)", "def read(self, size=-1):",
        )
    )
)  # fmt: skip
_T_95 = {2: 4.303, 4: 2.776}
"""Student's t for 95 %, by degrees of freedom."""
_READY = 120.0


@dataclass(frozen=True)
class Row:
    """What was found on one server."""

    server: str
    told: int
    counted: int | None
    by_peer: int | None
    lost_by_peer: int
    rates: Sequence[float]
    peer_rates: Sequence[float]
    acceptance: float | None
    engine_acceptance: float | None

    @property
    def half(self) -> float:
        """Of the interval of our rate."""
        return _T_95[len(self.rates) - 1] * statistics.stdev(self.rates) / math.sqrt(len(self.rates))

    def __str__(self) -> str:
        mean = statistics.fmean(self.rates)
        peer = statistics.fmean(self.peer_rates) if self.peer_rates else None
        peer_tokens = "–" if self.by_peer is None else f"{self.by_peer} ({self.lost_by_peer} requests lost)"
        where = "–" if peer is None else f"{peer:.1f} ({'within' if abs(peer - mean) <= self.half else 'outside'})"
        lengths = (_three(self.acceptance), _three(self.engine_acceptance))
        cells = (self.server, self.told, self.counted, peer_tokens, f"{mean:.1f} ± {self.half:.1f}", where, *lengths)
        return "| " + " | ".join(map(str, cells)) + " |"


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _folder(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        sys.exit(f"{name} is not set")
    return value


def start_of(kind: str, *, drafting: bool) -> tuple[ServerStart, dict[str, str]]:
    """A server as the runner would start it, and its environment."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    speculative = Speculative("draft", draft_tokens=5 if kind == "sglang" else 4) if drafting else None
    args: dict[str, Any] = {}
    environment: dict[str, str] = {}
    command: tuple[str, ...] = ()
    if kind == "llamacpp":
        models = ROOT / "tests/fixtures/models"
        command = engine(kind).default_command(sys.executable)
        model, draft = models / "tinypy.gguf", models / "tinypy-draft.gguf"
    else:
        models = Path(_folder("DDCONSOLE_SGLANG_MODELS"))
        model, draft = models / "tinypy-hf", models / "tinypy-draft-hf"
        args = {"dtype": "float32"}
        environment = {"HF_HUB_OFFLINE": "1"}
    if kind == "sglang":
        command = engine(kind).default_command(_folder("DDCONSOLE_SGLANG_PYTHON"))
        args |= {"device": "cpu", "context-length": 2048, "max-total-tokens": 16384, "sleep-on-idle": True}
        args |= {"attention-backend": "intel_amx"}
        environment |= {"SGLANG_USE_CPU_ENGINE": "1", "FEAS_AMX_ATTENTION": "1"}
    if kind == "vllm":
        command = engine(kind).default_command(str(PEERS / "vllm/bin/python"))
        args |= {"max-model-len": 2048, "enforce-eager": True}
        environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    deployment = Deployment(
        "d01",
        "draft" if drafting else "ar",
        1,
        STREAMS,
        args,
        environment,
        Placement(),
        speculative,
        context_tokens=1024,
    )
    start = ServerStart(deployment, command, str(model), str(draft), "tested", port, None)
    return start, environment


@asynccontextmanager
async def server(start: ServerStart, kind: str, environment: dict[str, str]) -> AsyncIterator[HttpServerApi]:
    """The server, ready: it has answered a completion."""
    command = engine(kind).server_command(start)
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(  # noqa: ASYNC220  # before anything is measured
            command.argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, **environment, **command.env},
        )  # fmt: skip
        try:
            async with HttpServerApi(start.port, SystemClock()) as api:
                await _ready(api, process, log)
                yield api
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


async def _ready(api: HttpServerApi, process: subprocess.Popen[bytes], log: Any) -> None:
    deadline = time.monotonic() + _READY
    body = {"model": "tested", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    while time.monotonic() < deadline:
        try:
            if (await api.post("/v1/chat/completions", body)).status == 200:
                return
        except (OSError, TimeoutError):
            await asyncio.sleep(0.5)
        if process.poll() is not None:
            break
    log.seek(0)
    sys.exit(f"the server is not ready: {log.read()[-3000:].decode(errors='replace')}")


def our_pass(start: ServerStart, kind: str) -> list[RequestRecord]:
    point = WorkloadPoint(
        "real", "closed-loop", "p", STREAMS, TOKENS, 1, len(PROMPTS), Sampling(temperature=0.0, ignore_eos=True)
    )
    body = engine(kind).request_body(start, point)
    url = f"http://127.0.0.1:{start.port}"
    return [with_steps(one) for one in measured(LoadTask("c001", 1, url, "tested", point, PROMPTS, None, body))]


def peer_pass(start: ServerStart, folder: Path) -> dict[str, Any] | None:
    """`vllm bench serve` on the same prompts; None where it is not installed."""
    program = PEERS / "vllm/bin/vllm"
    if not program.exists():
        return None
    prompts = folder / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": one.text}) + "\n" for one in PROMPTS))
    subprocess.run(
        [
            program, "bench", "serve", "--backend", "openai-chat", "--base-url", f"http://127.0.0.1:{start.port}",
            "--endpoint", "/v1/chat/completions", "--model", "tested", "--tokenizer", str(_tokenizer()),
            "--dataset-name", "custom", "--dataset-path", prompts, "--custom-output-len", str(TOKENS),
            "--skip-chat-template", "--disable-shuffle", "--num-prompts", str(len(PROMPTS)),
            "--max-concurrency", str(STREAMS),
            "--ignore-eos", "--temperature", "0", "--save-result", "--result-dir", folder,
            "--result-filename", "r.json", "--disable-tqdm",
        ],
        check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"},
    )  # fmt: skip
    told: dict[str, Any] = json.loads((folder / "r.json").read_text())
    return told


def _tokenizer() -> Path:
    from tests.benchmarks.peer_tools import tokenizer_folder  # noqa: PLC0415

    return tokenizer_folder()


async def compare(kind: str, *, drafting: bool) -> Row:
    """One server, in turns by us and by the peer."""
    start, environment = start_of(kind, drafting=drafting)
    adapter: Engine = engine(kind)
    records: list[RequestRecord] = []
    rates, peer_rates, by_peer, lost = [], [], 0, 0
    before, after = Counters(), Counters()
    counted, steps = 0, []
    async with server(start, kind, environment) as api:
        our_pass(start, kind)  # warm
        for _ in range(PASSES):
            before = await adapter.counters(api) or Counters()
            found = our_pass(start, kind)
            after = await adapter.counters(api) or Counters()
            counted += (after.output_tokens or 0) - (before.output_tokens or 0)
            records += found
            rates.append(summarise(found).server_rate or 0.0)
            acceptance = cell_acceptance(found, before, after, speculating=drafting)
            steps.append((acceptance, before, after))
            with tempfile.TemporaryDirectory() as folder:
                told = peer_pass(start, Path(folder))
            if told is not None:
                peer_rates.append(float(told["output_throughput"]))
                by_peer += int(told["total_output_tokens"])
                lost += len(PROMPTS) - int(told["completed"])
    ours = [one for one, _, _ in steps if one is not None]
    length = sum(one.tokens for one in ours) / sum(one.steps or 0 for one in ours) if ours and drafting else None
    return Row(
        f"{kind}, {'draft model' if drafting else 'plain'}",
        sum(one.output_tokens or 0 for one in records),
        counted,
        by_peer if peer_rates else None,
        lost,
        rates,
        peer_rates,
        length,
        engine_acceptance([(b, a) for _, b, a in steps], len(PROMPTS)) if drafting else None,
    )


def engine_acceptance(spans: Sequence[tuple[Counters, Counters]], requests: int) -> float | None:
    """Tokens a step by the engine's counters alone: steps, or steps that drafted and what was accepted in them."""

    def total(name: str) -> int | None:
        values = [(getattr(before, name), getattr(after, name)) for before, after in spans]
        known = [after - before for before, after in values if before is not None and after is not None]
        return sum(known) if len(known) == len(values) else None

    tokens, steps, accepted = total("output_tokens"), total("verify_steps"), total("accepted")
    if tokens and steps:
        return tokens / steps
    if tokens and accepted is not None:
        return tokens / (tokens - accepted - requests * len(spans))
    return None


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server that runs is ended all the same
    head = (
        "| server | tokens: ours | engine's counter | peer | server tok/s: ours | peer | acceptance: ours | engine's |"
    )
    sys.stdout.write(head + "\n" + "|---" * 8 + "|\n")
    for name in sys.argv[1:] or ["llamacpp"]:
        kind, _, which = name.partition("-")
        for drafting in (False, True) if not which else (which == "draft",):
            sys.stdout.write(f"{asyncio.run(compare(kind, drafting=drafting))}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
