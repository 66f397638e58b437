"""What a sweep is made of: deployments and cells, as plain frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Scalar = bool | int | float | str
EngineArgument = Scalar | tuple[Scalar, ...]
"""An engine flag's value: `True` is a bare flag, `False` leaves it out, a tuple gives several values."""


@dataclass(frozen=True, slots=True)
class Speculative:
    """Typed speculation of a method: what memory estimates and labels need, and a dialect turns into flags."""

    kind: str
    """`dflash`, `ddtree`, `ngram`, `draft`, `eagle`, ... in the engine's terms."""
    budget: int | None = None
    block_size: int | None = None
    draft_tokens: int | None = None
    draft_model: str | None = None

    @property
    def copies(self) -> int:
        """Draft tokens of which a recurrent model keeps a state each (facts: SGLang's memory pool)."""
        if self.kind == "ddtree" and self.budget is not None:
            return self.budget + 1
        return self.draft_tokens or self.block_size or 16


@dataclass(frozen=True, slots=True)
class Placement:
    """The GPUs of a deployment, by index of the host, and whether its processes are bound to their NUMA node."""

    gpus: tuple[int, ...] = ()
    bind: str = "none"
    """`numa` or `none`."""


@dataclass(frozen=True, slots=True)
class Deployment:
    """What one server is started with: method x tensor-parallel size x server arguments x placement."""

    id: str
    """`d01`, in order of the plan."""
    method: str
    tensor_parallel: int
    size: int
    """Requests the server is sized for (`max-running-requests`)."""
    args: Mapping[str, EngineArgument]
    env: Mapping[str, str]
    placement: Placement
    speculative: Speculative | None = None
    variables: Mapping[str, Scalar] = field(default_factory=dict)
    """The values of the method's `for:`, for skip rules and axes of figures."""
    context_tokens: int = 0
    """Longest prompt plus output of its cells; sizes the context where an engine must be told."""

    @property
    def label(self) -> str:
        """For people: method and tensor-parallel size."""
        return f"{self.method} TP{self.tensor_parallel}"


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the engine picks tokens: part of every request."""

    temperature: float = 0.0
    seed: int | None = 7
    top_p: float | None = None
    top_k: int | None = None
    ignore_eos: bool = True
    thinking: bool | None = None


@dataclass(frozen=True, slots=True)
class WorkloadPoint:
    """What one cell asks of the server."""

    workload: str
    """The plan's name for it."""
    kind: str
    """`single`, `closed-loop`, `open-loop` or `conversation`."""
    prompts: str
    """Name of the prompt set or of the script."""
    concurrency: int
    """Requests in flight; in an open loop what the server is sized for, which limits no sending."""
    max_tokens: int
    repetitions: int
    requests: int
    """Requests of one repetition (turns, for a conversation)."""
    sampling: Sampling
    turns: str = "replay"
    """`replay` (scripted assistant turns, the same context for all methods) or `live`."""
    request_timeout: float = 600.0
    """Seconds until a request that has not ended counts as failed."""
    stall_timeout: float = 180.0
    """Seconds without any token from the server after which the cell fails."""
    rate: float | None = None
    """Requests a second that an open loop means to send; None in the other kinds."""
    arrivals: str | None = None
    """`poisson` or `constant`, in an open loop."""
    arrival_seed: int | None = None
    """Of the times of a Poisson process: every method meets the same ones."""

    @property
    def load(self) -> str:
        """How much is asked at once, for people: `c8`, or `4/s` in an open loop."""
        return f"c{self.concurrency}" if self.rate is None else f"{self.rate:g}/s"

    @property
    def label(self) -> str:
        """For people: workload, load and length."""
        return f"{self.workload} {self.load} {self.max_tokens} tokens"


@dataclass(frozen=True, slots=True)
class Cell:
    """Deployment x workload point: one row of the sweep table."""

    id: str
    """`c061`; an ordinal that is never used again."""
    deployment: str
    point: WorkloadPoint
    rounds: int = 1
    """Launches on which it is measured (`protocol.launches`)."""
    derived_from: str | None = None
    """The cell it was duplicated from."""
    revision: int = 0
    """Counts edits; attempts of an earlier revision do not count."""

    def edited(self, point: WorkloadPoint, deployment: str) -> "Cell":
        """The next revision."""
        return replace(self, point=point, deployment=deployment, revision=self.revision + 1)


def cell_label(cell: Cell, deployment: Deployment) -> str:
    """What people call a cell: `ddtree-b16 TP4 concurrency c8 512 tokens`."""
    return f"{deployment.label} {cell.point.label}"


def to_json(value: Any) -> Any:
    """A deployment, cell or part of one as JSON."""
    if hasattr(value, "__dataclass_fields__"):
        return {name: to_json(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): to_json(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(one) for one in value]
    return value


def deployment_from_json(data: Mapping[str, Any]) -> Deployment:
    """The inverse of `to_json`; fields this version does not know are ignored."""
    speculative = data.get("speculative")
    return Deployment(
        id=data["id"],
        method=data["method"],
        tensor_parallel=data["tensor_parallel"],
        size=data["size"],
        args={key: _argument(value) for key, value in data["args"].items()},
        env=dict(data["env"]),
        placement=Placement(gpus=tuple(data["placement"]["gpus"]), bind=data["placement"]["bind"]),
        speculative=Speculative(**_known(Speculative, speculative)) if speculative else None,
        variables=dict(data.get("variables", {})),
        context_tokens=data.get("context_tokens", 0),
    )


def cell_from_json(data: Mapping[str, Any]) -> Cell:
    """The inverse of `to_json`; fields this version does not know are ignored."""
    known = _known(Cell, data)
    known["point"] = point_from_json(data["point"])
    return Cell(**known)


def point_from_json(data: Mapping[str, Any]) -> WorkloadPoint:
    """The inverse of `to_json`; fields this version does not know are ignored."""
    known = _known(WorkloadPoint, data)
    known["sampling"] = Sampling(**_known(Sampling, data["sampling"]))
    return WorkloadPoint(**known)


def _known(kind: type, data: Mapping[str, Any]) -> dict[str, Any]:
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]  # `kind` is one of our dataclasses
    return {name: data[name] for name in names if name in data}


def _argument(value: Any) -> EngineArgument:
    return tuple(value) if isinstance(value, list) else value
