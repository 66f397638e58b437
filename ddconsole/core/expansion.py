"""A plan written out: deployments and cells in a stable order, what is skipped, what cannot fit, and what to know.

Methods come in the order of the plan with the baseline first, then tensor-parallel sizes, then workloads. A cell goes
to the largest server size at which it fits, among the concurrencies that its tensor-parallel size and server arguments
are measured with: so compared methods are sized alike wherever both fit, and a cell that fits only a smaller size gets
a deployment of that size.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddconsole.core.memory import Fit, Load, MemoryModel, Verdict, fits, shape_of_plan
from ddconsole.core.plan import Plan
from ddconsole.core.plan_checks import axes_of
from ddconsole.core.plan_methods import MethodVariant, method_variants
from ddconsole.core.plan_workloads import PlannedPoint, TextSize, planned_points, tokens_of
from ddconsole.core.sweep import Cell, Deployment, EngineArgument

CONTEXT_STEP = 256
"""Contexts are rounded up to so many tokens."""


@dataclass(frozen=True, slots=True)
class Expansion:
    """What a plan stands for, before anything starts."""

    deployments: tuple[Deployment, ...]
    cells: tuple[Cell, ...]
    """All of them, skipped and unfit ones too, in the order of the table."""
    skipped: tuple[tuple[str, str], ...]
    """(cell, because)."""
    unfit: tuple[tuple[str, str], ...]
    """(cell, because): a lower bound of its memory is above what the GPU has."""
    notes: tuple[str, ...]
    """Differences between compared deployments, and what server arguments of workloads cost."""
    memory: Mapping[str, Fit] = field(default_factory=dict)
    """By deployment: the tightest of its cells. Empty without a memory model."""

    @property
    def measured(self) -> tuple[Cell, ...]:
        """The cells that will be tried."""
        left_out = {name for name, _ in (*self.skipped, *self.unfit)}
        return tuple(cell for cell in self.cells if cell.id not in left_out)

    @property
    def launches(self) -> int:
        """Server starts, if none fails: one for each round of each deployment that has a cell to measure."""
        rounds = {cell.deployment: cell.rounds for cell in self.measured}
        return sum(rounds.values())


@dataclass(frozen=True, slots=True)
class _Row:
    """One cell before it has a deployment."""

    variant: MethodVariant
    tensor_parallel: int
    planned: PlannedPoint
    args: Mapping[str, EngineArgument]
    server_args: tuple[Any, ...]
    """Of its workload, so that they can be compared."""
    skipped: str | None
    fit: Fit | None
    """At its own concurrency."""

    @property
    def compared(self) -> tuple[Any, ...]:
        """Cells that agree in this are compared across methods."""
        return self.tensor_parallel, self.server_args

    @property
    def active(self) -> bool:
        """Whether it will be tried."""
        return self.skipped is None and not self.unfit

    @property
    def unfit(self) -> bool:
        """Whether memory rules it out even alone."""
        return self.fit is not None and self.fit.verdict is Verdict.UNFIT


def memory_of(plan: Plan, gpu_gib: float | None = None) -> MemoryModel | None:
    """The memory model of a plan that gives its model's shape; None where shape or GPU is not known.

    Args:
        plan: the plan.
        gpu_gib: memory of one GPU as the host tells it; `expect.gpu_memory_gib` without it.
    """
    available = gpu_gib if gpu_gib is not None else plan.expect.gpu_memory_gib
    if plan.model.shape is None or available is None:
        return None
    return MemoryModel(shape_of_plan(plan.model.shape), available)


def size_of_prompts(texts: list[str]) -> TextSize:
    """The size of a prompt set."""
    return TextSize(len(texts), max((tokens_of(text) for text in texts), default=0))


def size_of_script(system: str, turns: list[tuple[str, str]]) -> TextSize:
    """The size of a script: its system text, and (user, assistant) of each turn. The last answer is in no context."""
    messages = [system, *(text for turn in turns for text in turn)][: 2 * len(turns)]
    return TextSize(len(turns), sum(tokens_of(text) for text in messages))


def expand(plan: Plan, memory: MemoryModel | None = None, texts: Mapping[str, TextSize] | None = None) -> Expansion:
    """Write a plan out.

    Args:
        plan: checked, so that this cannot fail.
        memory: decides what fits and how large servers are made; without it everything fits.
        texts: sizes of prompt sets and scripts by name; usual ones where a name is not in it.
    """
    rows = list(_rows(plan, memory, texts or {}))
    sizes = _sizes(rows, memory)
    deployments, cells, fit_by_deployment = _named(plan, rows, sizes, memory)
    placed = list(zip(rows, cells, strict=True))
    notes = (
        *_size_notes(placed, deployments, plan.baseline),
        *_server_argument_notes(rows, sizes, memory, plan),
        *_displace_notes(plan, deployments.values()),
    )
    return Expansion(
        deployments=tuple(deployments.values()),
        cells=tuple(cells),
        skipped=tuple((cell.id, row.skipped) for row, cell in placed if row.skipped is not None),
        unfit=tuple((cell.id, row.fit.because) for row, cell in placed if row.unfit and not row.skipped and row.fit),
        notes=notes,
        memory=fit_by_deployment,
    )


def _rows(plan: Plan, memory: MemoryModel | None, texts: Mapping[str, TextSize]) -> Iterator[_Row]:
    variants, _ = method_variants(plan.methods)
    for variant in sorted(variants, key=lambda one: one.name != plan.baseline):
        for size in plan.tensor_parallel:
            for name, workload in plan.workloads.items():
                args = {**plan.engine.args, **variant.args, **workload.server_args}
                server_args = tuple(sorted(workload.server_args.items()))
                for planned in planned_points(name, workload, plan.sampling, plan.protocol, texts):
                    axes = axes_of(variant, size, planned.point)
                    skipped = next((rule.because for rule in plan.skip if rule.matches(axes)), None)
                    row = _Row(variant, size, planned, args, server_args, skipped, None)
                    yield replace(row, fit=_fit(row, planned.point.concurrency, memory))


def _fit(row: _Row, size: int, memory: MemoryModel | None) -> Fit | None:
    if memory is None:
        return None
    load = Load(size, row.planned.point.concurrency, row.planned.context, row.args, row.variant.speculative)
    return fits(memory, load, row.tensor_parallel)


def _sizes(rows: list[_Row], memory: MemoryModel | None) -> list[int]:
    """The server size of each cell: the largest at which it fits; its own concurrency where none does."""
    candidates: dict[tuple[Any, ...], set[int]] = {}
    for row in rows:
        if row.active:
            candidates.setdefault(row.compared, set()).add(row.planned.point.concurrency)
    return [_size(row, candidates.get(row.compared, set()), memory) for row in rows]


def _size(row: _Row, candidates: set[int], memory: MemoryModel | None) -> int:
    own = row.planned.point.concurrency
    for size in sorted((one for one in candidates if one > own), reverse=True):
        fit = _fit(row, size, memory)
        if fit is None or fit.verdict is Verdict.POSSIBLE:
            return size
    return own


def _named(
    plan: Plan, rows: list[_Row], sizes: list[int], memory: MemoryModel | None
) -> tuple[dict[str, Deployment], list[Cell], dict[str, Fit]]:
    """Deployments and cells with their ids, in the order of their first use."""
    ids: dict[tuple[Any, ...], str] = {}
    deployments: dict[str, Deployment] = {}
    cells: list[Cell] = []
    memories: dict[str, Fit] = {}
    for row, size in zip(rows, sizes, strict=True):
        # An unfit cell shares no server: what it needs would be asked of cells that fit.
        key = (row.variant.name, *row.compared, size, row.unfit)
        name = ids.setdefault(key, f"d{len(ids) + 1:02d}")
        if name not in deployments:
            deployments[name] = _deployment(plan, row, size, name)
        context = -(-row.planned.context // CONTEXT_STEP) * CONTEXT_STEP
        if context > deployments[name].context_tokens:
            deployments[name] = replace(deployments[name], context_tokens=context)
        fit = _fit(row, size, memory)
        if fit is not None and (name not in memories or fit.needed_gib > memories[name].needed_gib):
            memories[name] = fit
        cells.append(Cell(f"c{len(cells) + 1:03d}", name, row.planned.point, plan.protocol.launches))
    return deployments, cells, memories


def _deployment(plan: Plan, row: _Row, size: int, name: str) -> Deployment:
    return Deployment(
        id=name,
        method=row.variant.name,
        tensor_parallel=row.tensor_parallel,
        size=size,
        args=row.args,
        env={**plan.engine.env, **row.variant.env},
        placement=plan.placement_of(row.tensor_parallel),
        speculative=row.variant.speculative,
        variables=row.variant.variables,
    )


# --- notes -----------------------------------------------------------------------------------------------------


def _size_notes(placed: list[tuple[_Row, Cell]], deployments: Mapping[str, Deployment], baseline: str) -> Iterator[str]:
    """Where a method is sized otherwise than the baseline for cells that are compared."""
    baseline_sizes = {
        (row.compared, row.planned.point): deployments[cell.deployment].size
        for row, cell in placed
        if row.active and row.variant.name == baseline
    }
    differing: dict[tuple[str, int], list[str]] = {}
    for row, cell in placed:
        expected = baseline_sizes.get((row.compared, row.planned.point))
        deployment = deployments[cell.deployment]
        if row.active and expected is not None and deployment.size != expected:
            differing.setdefault((deployment.id, expected), []).append(cell.id)
    for (name, expected), cells in differing.items():
        one = deployments[name]
        yield (
            f"{one.label} is sized for {one.size} requests, {baseline} TP{one.tensor_parallel} for {expected}: "
            f"more do not fit ({_range(cells)})"
        )


def _server_argument_notes(rows: list[_Row], sizes: list[int], memory: MemoryModel | None, plan: Plan) -> Iterator[str]:
    """What it costs that workloads bring server arguments: the starts that would be saved without them."""
    bringing = [name for name, workload in plan.workloads.items() if workload.server_args]
    if not bringing:
        return
    bare = [replace(row, server_args=()) for row in rows]
    more = (_servers(rows, sizes) - _servers(bare, _sizes(bare, memory))) * plan.protocol.launches
    if more > 0:
        yield f"server arguments of {', '.join(bringing)} cost {more} more server starts"


def _displace_notes(plan: Plan, deployments: Iterable[Deployment]) -> Iterator[str]:
    """Units that are in no launch's way: they are not stopped, which an operator who named them will not expect."""
    used = {gpu for one in deployments for gpu in one.placement.gpus}
    for part in plan.displace:
        if part.needs_gpu is not None and part.needs_gpu not in used:
            gpu = f"GPU {part.needs_gpu}"
            yield f"displace: {part.unit} is left running: no launch is placed on {gpu} (placement: names the GPUs)"


def _servers(rows: list[_Row], sizes: list[int]) -> int:
    return len({(row.variant.name, *row.compared, size) for row, size in zip(rows, sizes, strict=True) if row.active})


def _range(cells: list[str]) -> str:
    if len(cells) == 1:
        return cells[0]
    return ", ".join(cells) if len(cells) <= 4 else f"{cells[0]} to {cells[-1]}, {len(cells)} cells"
