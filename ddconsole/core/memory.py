"""Memory of one GPU that a server needs at least. Sizes in bytes inside, in GiB where a name says so.

Counted are the weights, the draft's weights, the recurrent state of each request with its copy per draft token, the KV
cache of the requests in flight, and what a process needs before any of these. Everything else (activations, graphs,
fragmentation) comes on top, so that only a need above what is there rules a deployment out.
Formulas: SGLang's memory pool (`[layers, requests + 1, draft_tokens, heads, key, value]`), see `draft_state_bytes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from ddconsole.core.plan_parts import ShapeSpec
from ddconsole.core.sweep import EngineArgument, Speculative

GIB = 1 << 30
WORKSPACE_GIB = 1.0
"""CUDA context, libraries and communication buffers of one process: less was never seen."""

_STATIC_SHARE = ("mem-fraction-static", "gpu-memory-utilization")
"""Flags that bound weights, KV cache and recurrent state together, as a share of the GPU (SGLang, vLLM)."""
_STATE_TYPE = ("mamba-ssm-dtype",)
_CACHE_TYPE = ("kv-cache-dtype",)
_ELEMENT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "fp8_e5m2": 1, "fp8_e4m3": 1, "fp8": 1}


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model decides its memory. Layers and heads are counts, `*_bytes` the size of one element."""

    weight_bytes: float
    attention_layers: int
    kv_heads: int
    head_dim: int
    draft_bytes: float = 0.0
    kv_bytes: int = 2
    recurrent_layers: int = 0
    key_heads: int = 0
    key_dim: int = 0
    value_heads: int = 0
    value_dim: int = 0
    conv_kernel: int = 0
    state_bytes: int = 4
    conv_bytes: int = 2

    def kv_bytes_per_token(self, tensor_parallel: int) -> float:
        """Of one GPU; heads that do not divide are replicated."""
        heads = max(1.0, self.kv_heads / tensor_parallel)
        return self.attention_layers * 2 * heads * self.head_dim * self.kv_bytes

    def state_bytes_per_request(self, tensor_parallel: int) -> float:
        """Recurrent state and convolution window of one request, on one GPU."""
        if self.recurrent_layers == 0:
            return 0.0
        state = self.value_heads * self.key_dim * self.value_dim * self.state_bytes
        channels = 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim
        window = channels * max(0, self.conv_kernel - 1) * self.conv_bytes
        return self.recurrent_layers * (state + window) / tensor_parallel


def shape_of_config(config: Mapping[str, Any], weight_bytes: float, draft_bytes: float = 0.0) -> ModelShape:
    """The shape of a Hugging Face model from its config.json.

    Args:
        config: the file's content; a multimodal model's `text_config` is looked into.
        weight_bytes: of all weight files.
        draft_bytes: of the draft's weight files.

    Raises:
        ValueError: the config lacks something that is needed.
    """
    text = config.get("text_config", config)
    try:
        recurrent = _recurrent_layers(text)
        heads = int(text["num_attention_heads"])
        shape = ModelShape(
            weight_bytes=weight_bytes,
            draft_bytes=draft_bytes,
            attention_layers=int(text["num_hidden_layers"]) - recurrent,
            kv_heads=int(text.get("num_key_value_heads") or heads),
            head_dim=int(text.get("head_dim") or int(text["hidden_size"]) // heads),
        )
        if recurrent == 0:
            return shape
        return replace(
            shape,
            recurrent_layers=recurrent,
            key_heads=int(text["linear_num_key_heads"]),
            key_dim=int(text["linear_key_head_dim"]),
            value_heads=int(text["linear_num_value_heads"]),
            value_dim=int(text["linear_value_head_dim"]),
            conv_kernel=int(text["linear_conv_kernel_dim"]),
            state_bytes=_ELEMENT_BYTES.get(str(text.get("mamba_ssm_dtype", "float32")), 4),
        )
    except (KeyError, TypeError, ZeroDivisionError) as problem:
        raise ValueError(f"config.json lacks {problem}") from problem


def _recurrent_layers(text: Mapping[str, Any]) -> int:
    kinds = text.get("layer_types")
    if kinds:
        return sum(kind == "linear_attention" for kind in kinds)
    interval = text.get("full_attention_interval")
    if interval and "linear_num_value_heads" in text:
        layers = int(text["num_hidden_layers"])
        return layers - layers // int(interval)
    return 0


def shape_of_plan(spec: ShapeSpec) -> ModelShape:
    """The shape as a plan gives it."""
    numbers = spec.model_dump(exclude={"weights_gib", "draft_gib"})
    return ModelShape(weight_bytes=spec.weights_gib * GIB, draft_bytes=spec.draft_gib * GIB, **numbers)


def draft_state_bytes(shape: ModelShape, requests: int, draft_tokens: int, tensor_parallel: int) -> float:
    """The copies of the recurrent state that speculation keeps: one per request and draft token, on one GPU."""
    return shape.state_bytes_per_request(tensor_parallel) * requests * draft_tokens


class Verdict(StrEnum):
    """Whether memory rules a deployment out."""

    POSSIBLE = "possible"
    """The lower bound fits; whether all the rest does is seen when it starts."""
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Fit:
    """What is needed at least, beside what is there. GiB of one GPU."""

    needed_gib: float
    available_gib: float
    """What the parts have to share: all of the GPU, or the share that a flag leaves them."""
    parts: Mapping[str, float]
    """By name: weights, draft, recurrent state, state copies, KV cache, workspace."""
    verdict: Verdict

    @property
    def because(self) -> str:
        """Why it does not fit; empty where it may."""
        if self.verdict is Verdict.POSSIBLE:
            return ""
        fixed = sum(self.parts.get(name, 0.0) for name in ("weights", "draft", "workspace"))
        left = self.available_gib - fixed
        if left <= 0:
            return f"the weights alone need {fixed:.1f} GiB of each GPU, {self.available_gib:.1f} GiB are there"
        state = self.parts.get("recurrent state", 0.0) + self.parts.get("state copies", 0.0)
        if state > left:
            return f"recurrent state alone needs {state:.1f} GiB, {left:.1f} GiB are left"
        return f"recurrent state and KV cache need {self.needed_gib - fixed:.1f} GiB, {left:.1f} GiB are left"


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """A model on a kind of GPU."""

    shape: ModelShape
    gpu_gib: float
    workspace_gib: float = WORKSPACE_GIB


@dataclass(frozen=True, slots=True)
class Load:
    """What a server is asked to hold at once."""

    size: int
    """Requests that it is sized for: so many recurrent states are set aside."""
    in_flight: int
    """Requests that a cell has running."""
    context: int
    """Tokens of the longest of them."""
    args: Mapping[str, EngineArgument] = field(default_factory=dict)
    speculative: Speculative | None = None


def fits(memory: MemoryModel, load: Load, tensor_parallel: int) -> Fit:
    """Compare the lower bound of a load with one GPU.

    Two bounds are looked at, and the tighter one is told: all parts against the whole GPU, and what the engine sets
    aside at its start against the share that a flag gives it. The draft is not counted into that share, which engines
    do or do not.
    """
    shape = _as_started(memory.shape, load.args)
    speculative = load.speculative
    pool = {
        "weights": shape.weight_bytes / tensor_parallel,
        "recurrent state": shape.state_bytes_per_request(tensor_parallel) * load.size,
        "state copies": draft_state_bytes(shape, load.size, speculative.copies, tensor_parallel) if speculative else 0,
        "KV cache": shape.kv_bytes_per_token(tensor_parallel) * load.in_flight * load.context,
    }
    drafts = speculative is not None and speculative.kind != "ngram"
    around = {
        "draft": shape.draft_bytes / tensor_parallel if drafts else 0,
        "workspace": memory.workspace_gib * GIB,
    }
    bounds = [_fit({**pool, **around}, memory.gpu_gib)]
    share = _named(load.args, _STATIC_SHARE)
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1:
        bounds.append(_fit(pool, memory.gpu_gib * share))
    return min(bounds, key=lambda fit: fit.available_gib - fit.needed_gib)


def _fit(parts: Mapping[str, float], available_gib: float) -> Fit:
    in_gib = {name: size / GIB for name, size in parts.items() if size}
    needed = sum(in_gib.values())
    return Fit(needed, available_gib, in_gib, Verdict.UNFIT if needed > available_gib else Verdict.POSSIBLE)


def _named(args: Mapping[str, EngineArgument], names: tuple[str, ...]) -> EngineArgument | None:
    return next((args[name] for name in names if name in args), None)


def _as_started(shape: ModelShape, args: Mapping[str, EngineArgument]) -> ModelShape:
    """The shape with the element sizes that the flags ask for."""
    state = _ELEMENT_BYTES.get(str(_named(args, _STATE_TYPE)))
    cache = _ELEMENT_BYTES.get(str(_named(args, _CACHE_TYPE)))
    return replace(shape, state_bytes=state or shape.state_bytes, kv_bytes=cache or shape.kv_bytes)
