"""What compared servers run with: the arguments that each told after its start, beside what the plan says.

Methods are compared at the same tensor-parallel size, so there is one matrix for each size, a column a deployment. An
argument may differ where the plan gives it different values (its methods or workloads), and where it is speculation
itself; every other difference is flagged, and so is a server that does not run with what the plan pins for all.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ddconsole.core.run_state import LaunchRow, RunState
from ddconsole.core.sweep import Deployment

ALWAYS_SHOWN: Mapping[str, str] = {
    "disable_radix_cache": "radix cache",
    "enable_prefix_caching": "prefix cache",
    "disable_overlap_schedule": "overlap scheduler",
    "async_scheduling": "overlap scheduler",
    "disable_cuda_graph": "CUDA graphs",
    "enforce_eager": "CUDA graphs",
    "cuda_graph_max_bs": "CUDA graphs",
    "attention_backend": "attention",
    "prefill_attention_backend": "attention",
    "decode_attention_backend": "attention",
    "mem_fraction_static": "memory fraction",
    "gpu_memory_utilization": "memory fraction",
    "max_running_requests": "running requests",
    "max_num_seqs": "running requests",
    "total_slots": "running requests",
}
"""Arguments of the engines that decide whether a comparison is fair, and what they are about."""

NOT_TOLD = "not told"
_SPECULATION = ("speculati", "branches")
FOLLOWS = frozenset({"max_total_num_tokens", "max_total_tokens", "kv_tokens", "max_mamba_cache_size"})
"""How much the cache holds: what the draft and its states leave of the memory, shown and not flagged."""
SIZED = frozenset({"max_running_requests", "effective_max_running_requests_per_dp", "max_num_seqs", "total_slots"})
"""Follow from the size that the plan's cells give a deployment."""
_OF_ONE_LAUNCH = ("port", "served", "pid", "dist_init", "launch", "log_", "seed", "host", "time", "uuid")
"""Parts of names that differ between any two launches."""


class Difference(StrEnum):
    """What is to be said of an argument's values over the columns."""

    NONE = "same"
    PLANNED = "planned"
    """The plan gives different values, or it is speculation itself."""
    FOLLOWS = "follows"
    """Follows from what is planned: capacity, and how many requests a server is sized for."""
    UNPLANNED = "unplanned"
    UNHEEDED = "unheeded"
    """The plan pins a value for all, and a server runs with another."""


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One argument."""

    argument: str
    about: str
    """What it decides, for those of `ALWAYS_SHOWN`; else empty."""
    values: tuple[str, ...]
    """By column, as the server told; `not told` where it did not."""
    pinned: str | None
    """The value that the plan gives to all columns; None where it gives none, or different ones."""
    difference: Difference

    @property
    def flagged(self) -> bool:
        """Whether the plan does not account for it."""
        return self.difference in (Difference.UNPLANNED, Difference.UNHEEDED)


@dataclass(frozen=True, slots=True)
class ServerMatrix:
    """The deployments of one tensor-parallel size."""

    tensor_parallel: int
    columns: tuple[str, ...]
    """Ids of deployments with a server that was ready."""
    labels: tuple[str, ...]
    """Their methods, with the deployment where two share one."""
    rows: tuple[MatrixRow, ...]

    def flagged(self) -> tuple[MatrixRow, ...]:
        """Rows that the plan does not account for."""
        return tuple(row for row in self.rows if row.flagged)


def server_matrices(state: RunState) -> tuple[ServerMatrix, ...]:
    """One matrix for each tensor-parallel size that has a server that was ready, smallest first."""
    told: dict[str, list[LaunchRow]] = {}
    for launch in state.launches.values():
        if launch.effective and launch.deployment in state.deployments:
            told.setdefault(launch.deployment, []).append(launch)
    sizes = sorted({state.deployments[name].tensor_parallel for name in told})
    return tuple(_matrix(state, size, told) for size in sizes)


def _matrix(state: RunState, size: int, told: Mapping[str, Sequence[LaunchRow]]) -> ServerMatrix:
    compared = [one for one in state.deployments.values() if one.tensor_parallel == size and one.id in told]
    by_column = [_values_of(told[one.id]) for one in compared]
    names = sorted({name for values in by_column for name in values}, key=_place)
    rows = tuple(_row(name, compared, by_column) for name in names)
    return ServerMatrix(size, tuple(one.id for one in compared), _labels(compared), rows)


def _labels(compared: Sequence[Deployment]) -> tuple[str, ...]:
    methods = [one.method for one in compared]
    return tuple(one.method if methods.count(one.method) == 1 else f"{one.method} {one.id}" for one in compared)


def _place(name: str) -> tuple[int, str]:
    known = list(ALWAYS_SHOWN)
    return (known.index(name) if name in known else len(known), name)


def _values_of(launches: Sequence[LaunchRow]) -> dict[str, str]:
    """By argument: what the deployment's launches told, all of them where they do not agree."""
    found: dict[str, dict[str, None]] = {}
    for launch in launches:
        for name, value in _flat(launch.effective):
            if not any(part in name.lower() for part in _OF_ONE_LAUNCH):
                found.setdefault(name, {})[value] = None
    return {name: " / ".join(values) for name, values in found.items()}


def _flat(arguments: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    for name, value in arguments.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", in_words(value)


def in_words(value: Any) -> str:
    """A value as a server tells it: texts as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


def _row(name: str, compared: Sequence[Deployment], by_column: Sequence[Mapping[str, str]]) -> MatrixRow:
    values = tuple(column.get(name, NOT_TOLD) for column in by_column)
    planned = [_planned(one, name) for one in compared]
    same_plan = len(set(planned)) == 1
    pinned = planned[0] if same_plan and planned[0] else None
    return MatrixRow(
        name, ALWAYS_SHOWN.get(name, ""), values, pinned, _difference(name, values, pinned, compared, same_plan)
    )


def _difference(
    name: str, values: Sequence[str], pinned: str | None, compared: Sequence[Deployment], same_plan: bool
) -> Difference:
    if pinned is not None and any(value != NOT_TOLD and not _same(value, pinned) for value in values):
        return Difference.UNHEEDED
    if len(set(values)) == 1 and " / " not in values[0]:
        return Difference.NONE
    if name.lower().startswith(_SPECULATION) or not same_plan:
        return Difference.PLANNED
    if name in FOLLOWS or (name in SIZED and len({one.size for one in compared}) > 1):
        return Difference.FOLLOWS
    return Difference.UNPLANNED


def _planned(deployment: Deployment, name: str) -> str | None:
    """What the plan's flags say of an argument; None where they are silent."""
    for flag, value in deployment.args.items():
        if flag.lstrip("-").replace("-", "_") == name:
            return in_words(list(value) if isinstance(value, tuple) else value)
    return None


def _same(told: str, planned: str) -> bool:
    """Whether a server runs with what the plan says: numbers by value, words in any case."""
    try:
        return float(told) == float(planned)
    except ValueError:
        return told.lower() == planned.lower()


def matrix_notes(state: RunState, deployment: str) -> list[str]:
    """What is to be said beside the figures of a deployment's cells: where its server differs, unplanned."""
    return notes_of(server_matrices(state), deployment)


def notes_of(matrices: Iterable[ServerMatrix], deployment: str) -> list[str]:
    """As `matrix_notes`, of the run's matrices: made once for all its deployments."""
    notes = []
    for matrix in matrices:
        if deployment not in matrix.columns:
            continue
        column = matrix.columns.index(deployment)
        for row in matrix.flagged():
            mine = row.values[column]
            others = _others(matrix, row, column)
            if row.difference is Difference.UNHEEDED and row.pinned is not None:
                if mine != NOT_TOLD and not _same(mine, row.pinned):
                    notes.append(f"server runs with {row.argument} {mine}, the plan says {row.pinned}")
            elif others:
                notes.append(f"server runs with {row.argument} {mine}, {others}: the plan does not say so")
    return notes


def _others(matrix: ServerMatrix, row: MatrixRow, column: int) -> str:
    """`ar with 128`: the other values, each with the first column that has it."""
    found: dict[str, str] = {}
    for label, value in zip(matrix.labels, row.values, strict=True):
        if value != row.values[column]:
            found.setdefault(value, label)
    return ", ".join(f"{label} with {value}" for value, label in found.items())


def matrix_lines(matrix: ServerMatrix, *, every: bool = False) -> list[str]:
    """The matrix as text: the arguments that decide fairness, and all that differ; with `every`, all that were told."""
    shown = [row for row in matrix.rows if every or row.about or row.difference is not Difference.NONE]
    table = [["", "argument", "", "plan", *matrix.labels]]
    for row in shown:
        said = "" if row.difference is Difference.NONE else row.difference.value
        mark = "!" if row.flagged else ""
        table.append([mark, row.argument, said, row.pinned or "", *row.values])
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    lines = [f"TP{matrix.tensor_parallel}"]
    lines += ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in table]
    return lines
