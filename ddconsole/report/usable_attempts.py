"""Which attempts of a cell may enter its figures, and why the others may not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.states import Blocked, CellPhase, Failed, Interrupted, Pruned, Skipped, Stopped, Unfit
from ddconsole.core.sweep import Deployment
from ddconsole.report.attempt_reader import AttemptLoader, AttemptUnavailable
from ddconsole.report.comparability import Environment, common_environment
from ddconsole.report.read_attempt import ReadAttempt, Reader
from ddconsole.report.result_set import CountedAttempt

FAILURE_LIMIT = 0.01
"""Share of failed requests above which an attempt is in no mean, where the protocol names none."""

_LEFT_OUT = frozenset({CellPhase.SKIPPED, CellPhase.UNFIT})
"""Phases in which somebody decided that the cell does not count, whatever was measured before.

Not pruned ones: what a canary measured in the rounds before is what decided.
"""


@dataclass(slots=True)
class UsableAttempts:
    """One cell with the attempts that count, and what is to be said of them."""

    row: CellRow
    deployment: Deployment
    attempts: list[ReadAttempt] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why it has no figures, or fewer, or which are disturbed."""
    warnings: list[str] = field(default_factory=list)
    """Of those, what the exporting person should look at."""
    flagged: bool = False

    @property
    def counted(self) -> list[CountedAttempt]:
        """The attempts' figures."""
        return [one.counted for one in self.attempts]


def usable_attempts(state: RunState, load: AttemptLoader) -> list[UsableAttempts]:
    """Every cell of the run, in its order, with the attempts that may stand in one table."""
    limit = float(state.created.protocol.get("failure_limit", FAILURE_LIMIT)) if state.created else FAILURE_LIMIT
    reader = Reader()
    by_cell: dict[str, UsableAttempts] = {}
    for row in _baseline_first(state):
        by_cell[row.cell.id] = _gathered(row, state, load, limit, reader)
    found = [by_cell[name] for name in state.cells]
    common = common_environment(one.environment for cell in found for one in cell.attempts)
    if common is not None:
        for cell in found:
            _refuse_others(cell, common)
    return found


def _baseline_first(state: RunState) -> Sequence[CellRow]:
    return sorted(state.cells.values(), key=lambda row: not _is_baseline(state, row))


def _is_baseline(state: RunState, row: CellRow) -> bool:
    return state.created is not None and state.deployments[row.cell.deployment].method == state.created.baseline


def _gathered(row: CellRow, state: RunState, load: AttemptLoader, limit: float, reader: Reader) -> UsableAttempts:
    found = UsableAttempts(row, state.deployments[row.cell.deployment], reasons=_reasons_of_state(row))
    if row.state.phase in _LEFT_OUT:
        return found
    for attempt in row.done_attempts():
        try:
            read = reader.take(load(row.cell.id, attempt.number), is_baseline=_is_baseline(state, row))
        except AttemptUnavailable as problem:
            _warn(found, f"attempt {attempt.number} cannot be used: {problem}")
            continue
        counted = read.counted
        refused = _refusal(read, limit)
        if refused:
            _warn(found, f"attempt {attempt.number} is in no figure: {refused}")
            continue
        found.attempts.append(read)
        found.reasons.extend(f"attempt {counted.number}: {flag}" for flag in counted.flags)
        contradictions = _contradictions(counted, attempt.figures)
        for text in contradictions:
            _warn(found, f"attempt {counted.number}: {text}")
        found.flagged = found.flagged or bool(contradictions) or bool(counted.flags)
    return found


def _warn(found: UsableAttempts, text: str) -> None:
    found.reasons.append(text)
    found.warnings.append(text)


def _refusal(read: ReadAttempt, limit: float) -> str:
    if read.outcome != "done":
        return f"its file says {read.outcome}, the journal says done"
    summary = read.counted.summary
    if summary.succeeded == 0:
        return "no request succeeded"
    if summary.failed > limit * summary.requests:
        return f"{summary.failed} of {summary.requests} requests failed, the limit is {limit:.0%}"
    return ""


def _contradictions(counted: CountedAttempt, journal: Mapping[str, Any]) -> Sequence[str]:
    """What a forged or damaged result would show."""
    found = []
    told, again = journal.get("output_rate"), counted.summary.output_rate
    if isinstance(told, int | float) and again is not None and abs(told - again) > 1e-6 * abs(again):
        found.append(f"the journal says {told:.6g} tok/s, the request records {again:.6g}")
    length = counted.summary.acceptance.length if counted.summary.acceptance else None
    if length is not None and length < 1 - 1e-9:
        found.append(f"an acceptance length of {length:.3g} is impossible, the least is 1")
    return found


def _refuse_others(cell: UsableAttempts, common: Environment) -> None:
    kept = []
    for one in cell.attempts:
        difference = one.environment.difference(common) if one.environment != common else ""
        if difference:
            _warn(cell, f"attempt {one.counted.number} does not compare with the others: {difference}")
        else:
            kept.append(one)
    cell.attempts = kept


def _reasons_of_state(row: CellRow) -> list[str]:
    state = row.state
    match state:
        case Failed(cause=cause) | Blocked(cause=cause):
            return [cause.text]
        case Stopped(by=by):
            return [f"stopped by {by}"]
        case Interrupted(why=why):
            return [why]
        case Skipped(by=by, because=because):
            return [because if by == "plan" else f"{because} ({by})"]
        case Pruned(because=because) | Unfit(because=because):
            return [because]
        case _:
            return [] if state.phase is CellPhase.DONE else ["not measured to its end when this was exported"]
