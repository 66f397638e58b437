"""A run as results: every cell with its figures, made again from the request records, and what is said of them.

Pure: the same state and attempt files give the same result set, and its SHA-256 says so.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from ddconsole.core.figures import Summary
from ddconsole.core.records import Acceptance
from ddconsole.core.states import CellPhase
from ddconsole.core.sweep import Deployment, WorkloadPoint, to_json
from ddconsole.report.comparability import Difference
from ddconsole.report.hardware_figures import HardwareFigures
from ddconsole.report.marks import Mark
from ddconsole.report.statistics import Estimate

PERCENTILES = (0.50, 0.90, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class CountedAttempt:
    """An attempt that counts, with the figures of its own records."""

    number: int
    launch: int
    round: int
    started_at: float
    ended_at: float
    summary: Summary
    flags: tuple[str, ...]
    hardware: HardwareFigures | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """A time of every request, in seconds; percentiles that the sample does not carry are None."""

    requests: int
    percentiles: tuple[float | None, ...]
    """In the order of `PERCENTILES`."""

    def at(self, fraction: float) -> float | None:
        """One of `PERCENTILES`."""
        return self.percentiles[PERCENTILES.index(fraction)]


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """One turn of a conversation, over all its counted attempts."""

    turn: int
    """From 1."""
    requests: int
    context: float | None
    """Prompt tokens, all earlier turns included; median."""
    output_rate: Estimate | None
    ttft: Estimate | None
    """Seconds; median. None where its requests are too few for the 50th percentile."""
    acceptance: Acceptance | None


@dataclass(frozen=True, slots=True)
class EqualOutputs:
    """How many outputs are those of the baseline, under greedy decoding and with the same context."""

    equal: int
    compared: int

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return self.equal / self.compared


@dataclass(frozen=True, slots=True)
class CellFigures:
    """What a cell measured, over all its counted attempts."""

    attempts: tuple[CountedAttempt, ...]
    launches: int
    repetitions: int
    """Over all launches."""
    requests: int
    succeeded: int
    output_tokens: int
    output_rate: Estimate | None
    """Tokens a second per request; median."""
    server_rate: float | None
    """All output tokens over the wall time of the attempts."""
    acceptance: Acceptance | None
    ttft: Distribution
    tpot: Distribution
    chunk_gap: float | None
    cached_tokens: int
    achieved_concurrency: float | None
    end_to_end: Distribution | None = None
    tokens_per_chunk: float | None = None
    goodput: float | None = None
    """Requests a second within the plan's limits; median of the attempts, as the four below."""
    steady_rate: float | None = None
    """Tokens a second while every stream ran."""
    steady_seconds: float | None = None
    rate_bias: float | None = None
    """The share by which the output rate may be too high: see `core.figures.rate_bias`."""
    speed_up: Estimate | None = None
    """Against the baseline's median at the same tensor-parallel size and workload point."""
    branches: bool | None = None
    """Whether the build's own log shows a tree that branches; None where it does not tell."""
    outputs: EqualOutputs | None = None
    """None where outputs are not compared: the baseline itself, sampling, live turns, no baseline."""
    turns: tuple[TurnFigures, ...] = ()
    """Of a conversation."""
    request_acceptance: tuple[float, ...] = ()
    """The acceptance length of each request whose engine told it."""

    @property
    def energy_per_token(self) -> float | None:
        """Joules of all GPUs for one output token; None unless every attempt's energy is known."""
        known = [one.hardware.energy for one in self.attempts if one.hardware and one.hardware.energy is not None]
        return sum(known) / self.output_tokens if len(known) == len(self.attempts) and self.output_tokens else None

    @property
    def energy_from(self) -> str:
        """`counter` or `mean power`, the less exact one of its attempts; empty where the energy is not known."""
        return max((one.hardware.energy_from for one in self.attempts if one.hardware), default="")

    @property
    def numa_nodes(self) -> tuple[int, ...] | None:
        """The NUMA nodes of its GPUs; None where they are not known."""
        told = [one.hardware.numa_nodes for one in self.attempts if one.hardware]
        return next((one for one in told if one is not None), None)

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens per verify step, bonus token included."""
        return self.acceptance.length if self.acceptance else None

    @property
    def step_time(self) -> float | None:
        """Seconds of one decode or verify step: acceptance length over output rate."""
        if self.output_rate is None or self.acceptance_length is None or self.output_rate.value <= 0:
            return None
        return self.acceptance_length / self.output_rate.value


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell: what it is, what it measured, what is said of it."""

    cell: str
    method: str
    """As shown: the plan's name, with the deployment or cell where two share a place."""
    deployment: Deployment
    point: WorkloadPoint
    phase: CellPhase
    tries: int
    """Attempts of any outcome."""
    marks: tuple[Mark, ...]
    figures: CellFigures | None = None
    reasons: tuple[str, ...] = ()
    """Why it has no figures, or what disturbs them."""

    @property
    def tensor_parallel(self) -> int:
        """Of its deployment."""
        return self.deployment.tensor_parallel

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.method} TP{self.tensor_parallel} {self.point.label}"

    @property
    def missing_mark(self) -> Mark:
        """The mark in place of figures."""
        return next((mark for mark in self.marks if mark.replaces_figure), Mark.NOT_IN_PLAN)


@dataclass(frozen=True, slots=True)
class ResultSet:
    """Everything that an export says."""

    run: str
    plan_name: str
    plan_sha256: str
    host: str
    engine: str
    version: str
    """Of the ddconsole that ran it."""
    baseline: str
    simulated: bool
    outcome: str
    began: float
    data_time: float
    """When the last counted attempt ended."""
    protocol: Mapping[str, Any]
    cells: tuple[CellResult, ...]
    environment: tuple[tuple[str, str], ...]
    """What all counted attempts share: driver, build, model."""
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()
    sha256: str = field(default="", compare=False)

    def counted(self) -> list[CellResult]:
        """Cells with figures."""
        return [cell for cell in self.cells if cell.figures is not None]

    def with_digest(self) -> "ResultSet":
        """The same with its SHA-256."""
        return replace(self, sha256=hashlib.sha256(canonical(replace(self, sha256="")).encode()).hexdigest())


PointKey = tuple[str, str, str, int, int, str, str, str]


@lru_cache(maxsize=8192)
def point_key(point: WorkloadPoint) -> PointKey:
    """What makes two workload points the same for a comparison; repetitions do not, they are counted apart."""
    sampling = canonical(to_json(point.sampling))
    asked = (point.workload, point.kind, point.prompts, point.concurrency, point.max_tokens, sampling, point.turns)
    return (*asked, "" if point.rate is None else f"{point.load} {point.arrivals} {point.arrival_seed}")


def canonical(value: Any) -> str:
    """Any of the values here as JSON, the same bytes for the same value."""
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mark):
        return value.name
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    return value
