"""From a run's state and its attempt files to a result set."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddconsole.core.run_state import RunState
from ddconsole.core.states import Blocked, CellPhase, Failed
from ddconsole.report.attempt_reader import AttemptLoader
from ddconsole.report.cell_figures import figures_of, rates_of
from ddconsole.report.comparability import PARTS, differences
from ddconsole.report.leakage import with_leakage
from ddconsole.report.marks import Mark, in_order, mark_of_phase
from ddconsole.report.read_attempt import ReadAttempt
from ddconsole.report.result_set import CellFigures, CellResult, PointKey, ResultSet, point_key
from ddconsole.report.run_notes import with_run_notes
from ddconsole.report.statistics import Estimate, ratio_estimate
from ddconsole.report.usable_attempts import UsableAttempts, usable_attempts


def result_set(state: RunState, load: AttemptLoader) -> ResultSet:
    """Make the results of a run.

    Attempts that are not of the driver, build and model that most attempts have are refused: their cells say so.

    Args:
        state: the fold of the run's journal.
        load: gives an attempt's file, or raises `AttemptUnavailable`.

    Raises:
        ValueError: the state is of no run.
    """
    created = state.created
    if created is None:
        raise ValueError("the journal holds no run")
    found = usable_attempts(state, load)
    attempts = [attempt for one in found for attempt in one.attempts]
    by_cell = {one.row.cell.id: one.attempts for one in found}
    cells = [_result(one, name, created.baseline) for one, name in zip(found, _shown_names(found), strict=True)]
    compared = with_leakage(list(_with_speed_ups(cells, found, created.baseline)), by_cell, created.baseline)
    return ResultSet(
        run=created.run,
        plan_name=created.plan_name,
        plan_sha256=created.plan_sha256,
        host=created.host,
        engine=created.engine,
        version=created.version,
        baseline=created.baseline,
        simulated=created.simulated or any(one.simulated for one in attempts),
        outcome=state.outcome or state.phase.value,
        began=state.began,
        data_time=max((one.counted.ended_at for one in attempts), default=state.began),
        protocol=created.protocol,
        cells=tuple(with_run_notes(compared, state)),
        environment=(*_environment(attempts), *_accepted(state)),
        differences=differences(
            [
                ((one.deployment.method, one.deployment.tensor_parallel), attempt.effective)
                for one in found
                for attempt in one.attempts
            ]
        ),
        warnings=tuple(f"{one.row.cell.id}: {text}" for one in found for text in one.warnings),
    ).with_digest()


def _shown_names(found: Sequence[UsableAttempts]) -> list[str]:
    """Each cell's method as shown. Two cells in one place of a table are told apart by deployment or cell."""
    taken: dict[tuple[str, int, PointKey], list[str]] = {}
    names = []
    for one in found:
        deployment, cell = one.deployment, one.row.cell
        others = taken.setdefault((deployment.method, deployment.tensor_parallel, point_key(cell.point)), [])
        name = deployment.method
        if others:
            name += f" ({cell.id})" if deployment.id in others else f" ({deployment.id})"
        others.append(deployment.id)
        names.append(name)
    return names


def _result(one: UsableAttempts, method: str, baseline: str) -> CellResult:
    state = one.row.state
    if one.attempts:
        plain = one.deployment.method == baseline and one.deployment.speculative is None
        figures = figures_of(one.attempts, is_plain_baseline=plain)
        marks = _marks_of(figures, one)
    else:
        figures = None
        marks = {mark_of_phase(state.phase, state.cause.id if isinstance(state, Failed | Blocked) else "")}
    return CellResult(
        cell=one.row.cell.id,
        method=method,
        deployment=one.deployment,
        point=one.row.cell.point,
        phase=state.phase,
        tries=len(one.row.attempts),
        marks=tuple(in_order(marks)),
        figures=figures,
        reasons=tuple(dict.fromkeys(one.reasons)),
    )


def _marks_of(figures: CellFigures, one: UsableAttempts) -> set[Mark]:
    row = one.row
    holds = {
        Mark.WITHIN_ONE_LAUNCH: figures.launches == 1,
        Mark.TWO_LAUNCHES: figures.launches == 2,
        Mark.INCOMPLETE: len(figures.attempts) < row.cell.rounds or row.state.phase is not CellPhase.DONE,
        Mark.SOME_FAILED: figures.succeeded < figures.requests,
        Mark.ESTIMATED_TOKENS: any(attempt.summary.estimated_tokens for attempt in figures.attempts),
        Mark.LENGTH_NOT_FIXED: not row.cell.point.sampling.ignore_eos,
        Mark.FROM_COUNTERS: figures.acceptance is not None and figures.acceptance.source == "counters",
        Mark.FLAGGED: one.flagged,
        Mark.SIMULATED: any(attempt.simulated for attempt in one.attempts),
    }
    return {mark for mark, is_so in holds.items() if is_so}


def _with_speed_ups(
    cells: Sequence[CellResult], found: Sequence[UsableAttempts], baseline: str
) -> Iterable[CellResult]:
    """Each cell against the baseline's first cell at the same tensor-parallel size and workload point."""
    rates = {
        cell.cell: rates_of(one.attempts) if one.attempts else None for cell, one in zip(cells, found, strict=True)
    }
    against: dict[tuple[int, PointKey], str] = {}
    for cell in cells:
        if cell.deployment.method == baseline and rates[cell.cell] is not None:
            against.setdefault((cell.tensor_parallel, point_key(cell.point)), cell.cell)
    for cell in cells:
        base = against.get((cell.tensor_parallel, point_key(cell.point)))
        if cell.figures is None or base is None:
            yield cell
        elif base == cell.cell:
            yield replace(cell, figures=replace(cell.figures, speed_up=Estimate(1.0)))
        else:
            speed_up = ratio_estimate(rates[cell.cell], rates[base])
            yield replace(cell, figures=replace(cell.figures, speed_up=speed_up))


def _environment(attempts: Sequence[ReadAttempt]) -> tuple[tuple[str, str], ...]:
    """Driver, build and model that all counted attempts share, one line a value."""
    if not attempts:
        return ()
    lines: list[tuple[str, str]] = []
    shared = json.loads(attempts[0].environment.parts)
    for part in PARTS:
        value = shared[part]
        if isinstance(value, Mapping):
            lines.extend((f"{part} {name}", _words(told)) for name, told in sorted(value.items()) if told is not None)
        elif value is not None:
            lines.append((part, _words(value)))
    return tuple(lines)


def _accepted(state: RunState) -> tuple[tuple[str, str], ...]:
    """Findings of pre-flight that the operator accepted, with the reasons."""
    return tuple(("accepted", one.text) for one in state.warnings if one.about == "accepted finding")


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(_words(one) for one in value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_words(one)}" for name, one in sorted(value.items()))
    return str(value)
