"""SGLang's command line, as far as a sweep needs it, with the flags of DDTree dialect A."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddconsole.rehearsal.host import GPUS
from ddconsole.rehearsal.rates import Method, Speed

DEFAULT_SPECULATIVE_REQUESTS = 48
"""SGLang's cap of running requests under speculation."""
DEFAULT_REQUESTS = 256
DEFAULT_BLOCK = 16
CONTEXT_TOKENS = 262_144

_TEXT: Mapping[str, str | None] = {
    "--tokenizer-path": None,
    "--tokenizer-mode": "auto",
    "--revision": None,
    "--load-format": "auto",
    "--dtype": "auto",
    "--quantization": None,
    "--kv-cache-dtype": "auto",
    "--schedule-policy": "fcfs",
    "--device": "cuda",
    "--host": "127.0.0.1",
    "--dist-init-addr": None,
    "--api-key": None,
    "--admin-api-key": None,
    "--chat-template": None,
    "--reasoning-parser": None,
    "--tool-call-parser": None,
    "--log-level": "info",
    "--log-level-http": None,
    "--export-metrics-to-file-dir": None,
    "--crash-dump-folder": None,
    "--attention-backend": None,
    "--prefill-attention-backend": None,
    "--decode-attention-backend": None,
    "--sampling-backend": None,
    "--mm-attention-backend": None,
    "--cuda-graph-config": None,
    "--cuda-graph-backend-decode": None,
    "--cuda-graph-backend-prefill": None,
    "--speculative-algorithm": None,
    "--speculative-draft-model-revision": None,
    "--speculative-draft-load-format": None,
    "--speculative-draft-model-quantization": None,
    "--speculative-draft-attention-backend": None,
    "--speculative-draft-kv-cache-dtype": None,
    "--speculative-attention-mode": "prefill",
    "--mamba-ssm-dtype": None,
    "--mamba-radix-cache-strategy": "auto",
    "--mamba-backend": "triton",
    "--linear-attn-backend": "triton",
    "--linear-attn-decode-backend": None,
    "--linear-attn-prefill-backend": None,
    "--model-loader-extra-config": "{}",
    "--json-model-override-args": "{}",
}
_NUMBERS: Mapping[str, int | None] = {
    "--dp-size": 1,
    "--pp-size": 1,
    "--base-gpu-id": 0,
    "--gpu-id-step": 1,
    "--port": 30000,
    "--nccl-port": None,
    "--dist-timeout": None,
    "--random-seed": None,
    "--context-length": None,
    "--max-running-requests": None,
    "--max-queued-requests": None,
    "--max-total-tokens": None,
    "--chunked-prefill-size": 8192,
    "--max-prefill-tokens": 16384,
    "--page-size": None,
    "--stream-interval": 1,
    "--decode-log-interval": 40,
    "--log-requests-level": 2,
    "--cuda-graph-max-bs-decode": None,
    "--cuda-graph-max-bs-prefill": None,
    "--speculative-num-steps": None,
    "--speculative-eagle-topk": None,
    "--speculative-num-draft-tokens": None,
    "--speculative-dflash-block-size": None,
    "--speculative-draft-window-size": None,
    "--speculative-ddtree-budget": None,
    "--max-mamba-cache-size": None,
    "--mamba-track-interval": 256,
}
_FRACTIONS: Mapping[str, float | None] = {
    "--mem-fraction-static": None,
    "--schedule-conservativeness": 1.0,
    "--watchdog-timeout": 300.0,
    "--soft-watchdog-timeout": None,
    "--speculative-accept-threshold-single": 1.0,
    "--speculative-accept-threshold-acc": 1.0,
    "--mamba-full-memory-ratio": 0.9,
}
_SWITCHES = (
    "--trust-remote-code",
    "--disable-radix-cache",
    "--disable-overlap-schedule",
    "--enable-mixed-chunk",
    "--disable-custom-all-reduce",
    "--enable-p2p-check",
    "--enable-deterministic-inference",
    "--log-requests",
    "--enable-metrics",
    "--enable-metrics-for-all-schedulers",
    "--export-metrics-to-file",
    "--show-time-cost",
    "--enable-cache-report",
    "--skip-server-warmup",
    "--sleep-on-idle",
    "--incremental-streaming-output",
    "--stream-response-default-include-usage",
    "--disable-cuda-graph",
    "--disable-cuda-graph-padding",
    "--disable-prefill-cuda-graph",
    "--speculative-use-rejection-sampling",
    "--enable-linear-replayssm",
    "--enable-torch-compile",
    "--skip-tokenizer-init",
)


class StartError(ValueError):
    """SGLang refuses these arguments after parsing them: a traceback and exit status 1."""


@dataclass(frozen=True)
class ServerArguments:
    """The command line, and what it resolves to."""

    options: argparse.Namespace
    method: Method
    gpus: tuple[int, ...]
    """Simulated GPUs by index of the host, one a rank; fewer than the ranks where there are not enough."""

    @property
    def tensor_parallel(self) -> int:
        """Ranks."""
        return int(self.options.tp_size)

    @property
    def served_name(self) -> str:
        """What the server answers to."""
        return str(self.options.served_model_name or self.options.model_path)

    @property
    def max_running(self) -> int:
        """Requests that decode at once; the others wait."""
        default = DEFAULT_SPECULATIVE_REQUESTS if self.method.speculative else DEFAULT_REQUESTS
        return int(self.options.max_running_requests or default)

    @property
    def context_tokens(self) -> int:
        """Longest prompt plus output."""
        return int(self.options.context_length or CONTEXT_TOKENS)

    @property
    def block_size(self) -> int:
        """Tokens that the draft model proposes at once."""
        given = self.options.speculative_dflash_block_size or self.options.speculative_num_draft_tokens
        return int(given or DEFAULT_BLOCK)

    @property
    def speed(self) -> Speed:
        """The row of the table that this server runs at."""
        nodes = {GPUS[gpu].numa_node for gpu in self.gpus}
        return Speed(self.method, self.tensor_parallel, crosses_numa=len(nodes) > 1)

    def effective(self) -> dict[str, Any]:
        """The resolved arguments, by SGLang's names, as its log and `/server_info` tell them."""
        values = dict(vars(self.options))
        values["tokenizer_path"] = self.options.tokenizer_path or self.options.model_path
        values["served_model_name"] = self.served_name
        values["attention_backend"] = self.options.attention_backend or "flashinfer"
        values["page_size"] = self.options.page_size or 1
        if self.options.mem_fraction_static is None:
            values["mem_fraction_static"] = 0.85
        if not self.method.speculative:
            values["speculative_algorithm"] = None
            return values
        values["max_running_requests"] = self.max_running
        values["speculative_num_draft_tokens"] = self.method.positions
        values["speculative_num_steps"] = values["speculative_eagle_topk"] = 1
        if self.method.kind == "ddtree":
            values["speculative_ddtree_budget"] = self.method.budget
            values["disable_overlap_schedule"] = True
        return values


def make_parser() -> argparse.ArgumentParser:
    """All flags; `--help` prints them."""
    parser = argparse.ArgumentParser(
        prog="sglang serve", description="SIMULATED by ddconsole's rehearsal: no model is loaded and no GPU is used."
    )
    parser.add_argument("--model-path", "--model", required=True)
    parser.add_argument("--served-model-name", default=None)
    parser.add_argument("--tp-size", "--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--speculative-draft-model-path", "--speculative-draft-model", default=None)
    parser.add_argument("--grammar-backend", choices=("xgrammar", "outlines", "llguidance", "none"), default=None)
    parser.add_argument("--cuda-graph-bs-decode", type=int, nargs="+", default=None)
    parser.add_argument("--cuda-graph-bs-prefill", type=int, nargs="+", default=None)
    for flag, text in _TEXT.items():
        parser.add_argument(flag, default=text)
    for flag, number in _NUMBERS.items():
        parser.add_argument(flag, type=int, default=number)
    for flag, fraction in _FRACTIONS.items():
        parser.add_argument(flag, type=float, default=fraction)
    for flag in _SWITCHES:
        parser.add_argument(flag, action="store_true")
    return parser


def parse(arguments: Sequence[str], environment: Mapping[str, str]) -> ServerArguments:
    """Read a command line; as argparse does, it prints and exits with 2 where it is wrong.

    Raises:
        StartError: the flags are known, but not possible together.
    """
    options = make_parser().parse_args(arguments)
    method = _method(options)
    ranks = range(options.tp_size)
    visible = _visible_gpus(environment.get("CUDA_VISIBLE_DEVICES"))
    places = [options.base_gpu_id + rank * options.gpu_id_step for rank in ranks]
    return ServerArguments(options, method, tuple(visible[place] for place in places if place < len(visible)))


def without_speculation(arguments: ServerArguments) -> ServerArguments:
    """The same server with its draft silently not used."""
    return ServerArguments(arguments.options, Method("ar"), arguments.gpus)


def _method(options: argparse.Namespace) -> Method:
    name = (options.speculative_algorithm or "").upper()
    if not name:
        return Method("ar")
    block = options.speculative_dflash_block_size or options.speculative_num_draft_tokens or DEFAULT_BLOCK
    if name in {"DFLASH", "DDTREE"}:
        if not options.speculative_draft_model_path:
            raise StartError(f"{name} speculative decoding requires setting --speculative-draft-model-path.")
        if options.pp_size > 1:
            raise StartError(f"{name} speculative decoding only supports pp_size == 1.")
    if name == "DFLASH":
        return Method("dflash", block)
    if name == "DDTREE":
        return Method("ddtree", (options.speculative_ddtree_budget or block - 1) + 1)
    if name in {"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DSPARK"}:
        return Method(name.lower(), options.speculative_num_draft_tokens or 4)
    raise StartError(f"Unknown speculative algorithm name: {name}")


def _visible_gpus(text: str | None) -> list[int]:
    """Indices of the simulated host's GPUs that CUDA would show; as in CUDA, what follows a wrong entry is hidden."""
    if text is None:
        return list(range(len(GPUS)))
    uuids = {gpu.uuid: gpu.index for gpu in GPUS}
    found: list[int] = []
    for entry in text.split(","):
        name = entry.strip()
        index = uuids.get(name, int(name) if name.isdigit() else -1)
        if not 0 <= index < len(GPUS):
            break
        found.append(index)
    return found
