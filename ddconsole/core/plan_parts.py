"""The parts of a plan except its workloads: model, engine, methods, placement, protocol, and what is expected."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from ddconsole.core import plan_values as v
from ddconsole.core.plan_values import (
    Arguments,
    Duration,
    Environment,
    Flag,
    FractionAboveZero,
    Gibibytes,
    Id,
    ListOf,
    ModelPlace,
    OneOrMany,
    PlanPart,
    ScalarValue,
    Text,
    Word,
    refusal,
    shown,
)
from ddconsole.core.repeating import MOST_LAUNCHES
from ddconsole.core.sweep import Scalar


class ShapeSpec(PlanPart):
    """What memory estimates need of a model, where its config.json cannot be read beforehand. Sizes in GiB."""

    weights_gib: Gibibytes
    draft_gib: Gibibytes = 0.0
    attention_layers: v.Count
    kv_heads: v.CountAboveZero
    head_dim: v.CountAboveZero
    kv_bytes: v.CountAboveZero = 2
    """Bytes of one element of the KV cache."""
    recurrent_layers: v.Count = 0
    key_heads: v.Count = 0
    key_dim: v.Count = 0
    value_heads: v.Count = 0
    value_dim: v.Count = 0
    conv_kernel: v.Count = 0
    state_bytes: v.CountAboveZero = 4
    """Bytes of one element of the recurrent state."""
    conv_bytes: v.CountAboveZero = 2


def _source(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(value)
    if isinstance(value, str):
        return value
    raise refusal("E113", f"expected a folder, host:folder or a command as a list, got {shown(value)}")


class ModelPart(PlanPart):
    """The served model and its draft. Paths are on the host."""

    path: ModelPlace
    draft: ModelPlace | None = None
    source: Annotated[ModelPlace | tuple[Text, ...] | None, BeforeValidator(_source)] = None
    """Where it comes from: a folder, host:folder, or a command."""
    shape: ShapeSpec | None = None


class EnginePart(PlanPart):
    """The inference server. `python` names an interpreter with the engine in it; `command` names it whole."""

    kind: Id
    python: Text | None = None
    command: Annotated[tuple[Text, ...], ListOf] | None = None
    args: Arguments = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)
    cwd: Text | None = None

    @model_validator(mode="after")
    def _one_way(self) -> "EnginePart":
        if self.command is not None and not self.command:
            raise refusal("E210", "the command is empty", "give the program and its first arguments")
        if self.command is not None and self.python is not None:
            raise refusal("E210", "python and command exclude each other", "command names its own interpreter")
        return self


PlaceholderNumber = Annotated[int | str | None, BeforeValidator(v.number_or_placeholder(1, 65_536))]


class SpeculativeTemplate(PlanPart):
    """Typed speculation of a method; numbers may be placeholders of its `for:`."""

    kind: Id
    budget: PlaceholderNumber = None
    block_size: PlaceholderNumber = None
    draft_tokens: PlaceholderNumber = None
    draft_model: ModelPlace | None = None


class Method(PlanPart):
    """One way of decoding, or with `for:` one for each combination of values."""

    args: Arguments = Field(default_factory=dict)
    env: Environment = Field(default_factory=dict)
    speculative: SpeculativeTemplate | None = None
    for_: Mapping[Word, Annotated[tuple[ScalarValue, ...], OneOrMany]] = Field(default_factory=dict, alias="for")
    name: Text | None = None


def _empty_is_default(value: Any) -> Any:
    return {} if value is None else value


MethodEntry = Annotated[Method, BeforeValidator(_empty_is_default)]
"""`ar:` without anything is a method without flags of its own."""


class SamplingPart(PlanPart):
    """How the engine picks tokens."""

    temperature: v.Temperature = 0.0
    seed: v.Seed | None = 7
    top_p: FractionAboveZero | None = None
    top_k: v.TopK | None = None
    ignore_eos: Flag = True
    thinking: Flag | None = None


class PlacementPart(PlanPart):
    """GPUs for each tensor-parallel size. Sizes that are not listed get the first GPUs."""

    used: Flag = True
    """False for `placement: none`: no GPU is named to the server."""
    gpus: Mapping[v.ParallelSize, Annotated[tuple[v.GpuIndex, ...], ListOf]] = Field(default_factory=dict)
    bind: Literal["numa", "none"] = "none"


def _placement(value: Any) -> Any:
    """`none`, or `{1: [7], 4: [4, 5, 6, 7], bind: numa}`."""
    if isinstance(value, PlacementPart):
        return value
    if value == "none":
        return {"used": False}
    if not isinstance(value, Mapping):
        raise refusal("E113", f"expected none or a mapping, got {shown(value)}", "write {1: [0], bind: numa}")
    inner = {key: one for key, one in value.items() if not isinstance(key, int)}
    for name in ("gpus", "used"):
        if name in inner:
            raise refusal("E114", f'unknown key "{name}"', "the keys are tensor-parallel sizes, as in {1: [7]}")
    return {**inner, "gpus": {key: one for key, one in value.items() if isinstance(key, int)}}


PlacementEntry = Annotated[PlacementPart, BeforeValidator(_placement)]


def _warmup(value: Any) -> Any:
    if value == "auto":
        return value
    problem = v.whole_number(value, 0, 10_000)
    if problem is not None:
        raise refusal("E210", f"{problem}; or auto")
    return value


def _limits(value: Any) -> Any:
    if isinstance(value, Mapping) and all(one is None for one in value.values()):
        raise refusal("E210", "it limits nothing", "write {ttft: 500ms}, with tpot or e2e too, or leave it out")
    return value


class SloPart(PlanPart):
    """Limits of a request that counts as good, in seconds. `ttft`, `tpot` and `e2e` as the figures define them."""

    ttft: v.Latency | None = None
    tpot: v.Latency | None = None
    e2e: v.Latency | None = None


class PrunePart(PlanPart):
    """When a method stops: its first cell at a tensor-parallel size is below this share of the best rate there."""

    below: FractionAboveZero = 0.8


class RepeatPart(PlanPart):
    """How long a cell is measured on further launches."""

    until: FractionAboveZero = 0.03
    """Half of the 95 % interval's width, as a share of the rate."""
    most: Annotated[int, v.whole(3, MOST_LAUNCHES)] = MOST_LAUNCHES
    """Launches of a cell."""


class WarmupUntilPart(PlanPart):
    """How long a cell is warmed up: passes of `protocol.warmup` requests until two in a row are as fast."""

    agree: FractionAboveZero = 0.05
    """Share by which they may differ."""
    most: Annotated[int, v.whole(2, 20)] = 5
    """Passes after which it is given up, and the cell flagged."""


class ProtocolPart(PlanPart):
    """How the sweep is measured. Times in seconds."""

    launches: v.Launches = 1
    """Rounds: launches on which every cell is measured."""
    order: Literal["plan", "abba", "information"] = "plan"
    """Of launches and their cells: see `ddconsole.core.launch_order`."""
    baseline_every: Annotated[int, v.whole(1, 10_000)] | None = None
    """Measure the baseline once more after so many cells of other methods, to see drift; not at all without it."""
    warmup: Annotated[Literal["auto"] | int, BeforeValidator(_warmup)] = "auto"
    """Requests before the measured ones; `auto` is one for each stream."""
    warmup_until: WarmupUntilPart | None = None
    """Repeat them until the server is as fast twice; once without it."""
    flush_cache: Flag = True
    ready_timeout: Duration = 1200.0
    stall_timeout: Duration = 180.0
    request_timeout: Duration = 600.0
    retries: v.Retries = 2
    failure_limit: v.Fraction = 0.01
    """Share of failed requests above which a cell fails."""
    canary: Flag = True
    until: v.TimeOfDay | None = None
    """The time of the host's day at which the sweep has to be over; what does not fit is dropped from the end."""
    launcher: Literal["auto", "process", "systemd"] = "auto"
    """How runners are started: in systemd units of their own, as plain processes, or as units where that works."""
    slo: Annotated[SloPart, BeforeValidator(_limits)] = Field(default_factory=SloPart)
    """For the goodput; changes nothing of what is measured."""
    repeat: RepeatPart | None = None
    """Go on beyond `launches` until a cell is sure enough; a fixed number without it."""
    prune: PrunePart | None = None
    """Leave out the rest of a method that its first cell shows far below the best; nothing without it."""
    count_each_chunk: Flag = False
    """Ask the engine to tell its count with every chunk: the first one's tokens are then known, for longer chunks."""
    port: v.Port | None = None
    """First port of servers; free ones of the system without it."""


def _skip_rule(value: Any) -> Any:
    if isinstance(value, SkipRule):
        return value
    if not isinstance(value, Mapping):
        raise refusal("E113", f"expected a mapping, got {shown(value)}", 'write {method: ..., because: "..."}')
    match = {key: one for key, one in value.items() if key != "because"}
    if not match:
        raise refusal("E210", "the rule names no axis", "leave cells out by method, tensor_parallel, workload, ...")
    return {"match": match, **({"because": value["because"]} if "because" in value else {})}


class SkipRule(PlanPart):
    """Cells left out: those that have one of the values on each of the axes named."""

    because: Text = "skipped in the plan"
    match: Mapping[Word, Annotated[tuple[ScalarValue, ...], OneOrMany]]

    def matches(self, axes: Mapping[str, tuple[Scalar, ...]]) -> bool:
        """Whether a cell with these values on its axes is left out. An axis that it does not have never matches."""
        return all(
            any(v.same_scalar(one, other) for one in values for other in axes.get(name, ()))
            for name, values in self.match.items()
        )


SkipEntry = Annotated[SkipRule, BeforeValidator(_skip_rule)]


class PcieSpec(PlanPart):
    """The PCIe link of each GPU under load."""

    gen: Annotated[int, v.whole(1, 8)] | None = None
    width: Annotated[int, v.whole(1, 32)] | None = None


class ExpectPart(PlanPart):
    """What the host should be; preflight compares."""

    gpus: v.Count | None = None
    gpu_name: Text | None = None
    gpu_memory_gib: Gibibytes | None = None
    """Memory of one GPU: without it, what fits is not foretold before the host is asked."""
    pcie: PcieSpec | None = None
    numa_nodes: v.CountAboveZero | None = None


class DisplacePart(PlanPart):
    """A systemd unit that is stopped for the run, and started again at its end."""

    unit: Annotated[str, BeforeValidator(v.check_unit)]
    needs_gpu: v.GpuIndex | None = None


class ProxmoxPart(PlanPart):
    """The Proxmox host below the container: preflight asks it, read-only, over its own SSH entry."""

    host: v.HostName
    container: v.CountAboveZero | None = None
    """Its number there."""


class AgentPart(PlanPart):
    """The agent on the host."""

    python: Text | None = None
    """The interpreter it runs with."""
    state: Text | None = None
    """The folder on the host for what it keeps, absolute or `~/...`; without it by the XDG rules."""
