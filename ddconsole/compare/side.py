"""One side of a comparison: the cells of a run with what was observed of each, and the facts around them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from ddconsole.compare.facts import RunFiles, Section, flat_arguments, sections_of
from ddconsole.core.run_state import RunState
from ddconsole.core.states import CellPhase, RunPhase, Skipped
from ddconsole.core.sweep import Deployment, WorkloadPoint
from ddconsole.report.attempt_reader import AttemptLoader
from ddconsole.report.read_attempt import RequestFigures
from ddconsole.report.result_set import PointKey, point_key
from ddconsole.report.statistics import Observations, observe
from ddconsole.report.usable_attempts import UsableAttempts, usable_attempts

Place: TypeAlias = tuple[str, int, PointKey, int]
"""Method, tensor-parallel size, workload point, and the how-manieth cell there is in that place: which cells belong
together in two runs."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure that is compared."""

    id: str
    """As in `core.figures.DEFINITIONS`."""
    title: str
    higher_is_better: bool
    decimals: int
    scale: float = 1.0
    """From the figure's own unit to the one that is shown."""


FIGURES: tuple[Figure, ...] = (
    Figure("output_rate", "tok/s per request", higher_is_better=True, decimals=1),
    Figure("server_rate", "tok/s of the server", higher_is_better=True, decimals=1),
    Figure("ttft", "TTFT (ms)", higher_is_better=False, decimals=1, scale=1000.0),
    Figure("end_to_end", "end to end (s)", higher_is_better=False, decimals=2),
    Figure("acceptance", "acceptance length", higher_is_better=True, decimals=2),
)
BY_ID: Mapping[str, Figure] = {one.id: one for one in FIGURES}

_OF_A_REQUEST: Mapping[str, Callable[[RequestFigures], float | None]] = {
    "output_rate": lambda one: one.output_rate,
    "ttft": lambda one: one.ttft,
    "end_to_end": lambda one: one.end_to_end,
    "acceptance": lambda one: one.acceptance.length if one.acceptance else None,
}


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """One cell of one run."""

    cell: str
    place: Place
    deployment: Deployment
    point: WorkloadPoint
    rounds: int
    phase: CellPhase
    launches: tuple[int, ...]
    """The launches whose attempts count, ascending."""
    observed: Mapping[str, Observations]
    """By the figure's id; one without any value is not there."""
    flagged: bool
    reasons: tuple[str, ...]
    left_out: str = ""
    """Why the plan skips it; empty where it does not."""

    @property
    def label(self) -> str:
        """For people; a second cell in one place says which it is."""
        another = f" ({self.cell})" if self.place[3] else ""
        return f"{self.deployment.label}{another} {self.point.label}"


@dataclass(frozen=True, slots=True)
class Side:
    """One run."""

    run: str
    plan_name: str
    plan_sha256: str
    host: str
    simulated: bool
    began: float
    data_time: float
    """When the last counted attempt ended."""
    sections: tuple[Section, ...]
    cells: Mapping[Place, ComparedCell]
    effective: Mapping[str, Mapping[str, frozenset[str]]]
    """By deployment and argument: what its servers told they run with, one value where all launches agree."""
    warnings: tuple[str, ...]
    ended: bool = True
    """It measures nothing more."""
    damage: str = ""
    """What is wrong with its journal; then nothing is known of what came after. Empty where it was read to its end."""

    @property
    def launches(self) -> int:
        """Launches whose attempts count."""
        return len({launch for cell in self.cells.values() for launch in cell.launches})


def side_of(state: RunState, load: AttemptLoader, files: RunFiles) -> Side:
    """Read one run.

    Args:
        state: the fold of its journal.
        load: gives an attempt's file, or raises `AttemptUnavailable`.
        files: what lies beside the journal.

    Raises:
        ValueError: the state is of no run.
    """
    created = state.created
    if created is None:
        raise ValueError("the journal holds no run")
    found = usable_attempts(state, load)
    counted = [attempt for one in found for attempt in one.attempts]
    cells: dict[Place, ComparedCell] = {}
    for one in found:
        cell = _cell(one, cells)
        cells[cell.place] = cell
    return Side(
        run=created.run,
        plan_name=created.plan_name,
        plan_sha256=created.plan_sha256,
        host=created.host,
        simulated=created.simulated or any(one.simulated for one in counted),
        began=state.began,
        data_time=max((one.counted.ended_at for one in counted), default=state.began),
        sections=sections_of(state, counted[0].environment if counted else None, files),
        cells=cells,
        effective=_effective(state, found),
        ended=state.phase is RunPhase.ENDED,
        warnings=tuple(f"{one.row.cell.id}: {text}" for one in found for text in one.warnings),
    )


def _cell(one: UsableAttempts, taken: Mapping[Place, ComparedCell]) -> ComparedCell:
    cell, deployment, state = one.row.cell, one.deployment, one.row.state
    number = 0
    while (place := (deployment.method, deployment.tensor_parallel, point_key(cell.point), number)) in taken:
        number += 1
    return ComparedCell(
        cell=cell.id,
        place=place,
        deployment=deployment,
        point=cell.point,
        rounds=cell.rounds,
        phase=state.phase,
        launches=tuple(sorted({attempt.launch for attempt in one.attempts})),
        observed=_observed(one),
        flagged=one.flagged,
        reasons=tuple(dict.fromkeys(one.reasons)),
        left_out=state.because if isinstance(state, Skipped) and state.by == "plan" else "",
    )


def _observed(one: UsableAttempts) -> dict[str, Observations]:
    by_launch: dict[int, list[Sequence[RequestFigures]]] = {}
    for attempt in one.attempts:
        by_launch.setdefault(attempt.launch, []).append(attempt.requests)
    found = {name: observe(by_launch, figure) for name, figure in _OF_A_REQUEST.items()}
    found["server_rate"] = _server_rates(one)
    return {name: observations for name, observations in found.items() if observations is not None}


def _server_rates(one: UsableAttempts) -> Observations | None:
    """One value an attempt: all its output tokens over its wall time."""
    by_launch: dict[int, list[float]] = {}
    for counted in one.counted:
        if counted.summary.server_rate:
            by_launch.setdefault(counted.launch, []).append(counted.summary.server_rate)
    if not by_launch:
        return None
    rows = [by_launch[launch] for launch in sorted(by_launch)]
    values = np.full((len(rows), max(map(len, rows)), 1), np.nan)
    for number, row in enumerate(rows):
        values[number, : len(row), 0] = row
    return Observations(values, np.array([len(row) for row in rows], dtype=np.intp), (("", 0),))


def _effective(state: RunState, found: Sequence[UsableAttempts]) -> dict[str, dict[str, frozenset[str]]]:
    """From the attempts that count; where those tell nothing, from the launches."""
    told: dict[str, dict[str, set[str]]] = {}
    for one in found:
        for attempt in one.attempts:
            _add(told.setdefault(one.deployment.id, {}), flat_arguments(attempt.effective))
    silent = {name for name in state.deployments if not told.get(name)}
    for launch in state.launches.values():
        if launch.deployment in silent:
            _add(told.setdefault(launch.deployment, {}), flat_arguments(launch.effective))
    return {
        name: {argument: frozenset(values) for argument, values in arguments.items()}
        for name, arguments in told.items()
        if arguments
    }


def _add(told: dict[str, set[str]], values: Mapping[str, str]) -> None:
    for name, value in values.items():
        told.setdefault(name, set()).add(value)
