"""What is said beside a cell's figures, by screens and the command line: doubts, and figures about the measurement."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddconsole.core import states as st
from ddconsole.core.drift import drift_in_words, drift_notes, drift_of
from ddconsole.core.engine_notes import engine_notes
from ddconsole.core.leakage import acceptance_by_budget, leakage_notes
from ddconsole.core.outliers import outliers
from ddconsole.core.outputs import equal_outputs
from ddconsole.core.row_text import Baselines
from ddconsole.core.run_state import Attempt, CellRow, RunState
from ddconsole.core.server_matrix import matrix_notes


def doubts(row: CellRow, state: RunState, known: Baselines) -> list[str]:
    """Why a cell's figures should be looked at before they are used: flags of its attempts first. Empty where done."""
    if not isinstance(row.state, st.Done) and not row.done_attempts():
        return []
    flags = [flag for attempt in row.done_attempts() for flag in attempt.flags]
    found = [*dict.fromkeys(flags), *engine_notes(row, state, known)]
    found += matrix_notes(state, row.cell.deployment)
    return [*found, *leakage_notes(row, state), *drift_notes(row, state)]


def measurement_lines(row: CellRow, state: RunState) -> list[tuple[str, str]]:
    """How it was measured and what came out beside the headline: (short name, sentence)."""
    attempts = row.compared_attempts()
    lines = (
        ("warm-up", _warm_up(attempts)),
        ("cache", _cache(attempts)),
        ("depth", _positions(attempts)),
        ("budgets", _budgets(row, state)),
        ("outputs", _outputs(row, state)),
        ("outlier", _outliers(attempts)),
        ("drift", _drift(row, state)),
    )
    return [(name, text) for name, text in lines if text]


def _warm_up(attempts: Sequence[Attempt]) -> str:
    passes = [len(_list(_part(attempt, "warm_up").get("rates"))) for attempt in attempts]
    known = [number for number in passes if number]
    if not known or max(known) == 1:
        return ""
    least, most = min(known), max(known)
    return f"{least if least == most else f'{least} to {most}'} passes until two in a row were as fast"


def _cache(attempts: Sequence[Attempt]) -> str:
    prompt = sum(_number(attempt.figures.get("prompt_tokens")) for attempt in attempts)
    cached = sum(_number(attempt.figures.get("cached_tokens")) for attempt in attempts)
    return f"{cached / prompt:.0%} of the prompt tokens came from the prefix cache" if prompt and cached else ""


def _positions(attempts: Sequence[Attempt]) -> str:
    """Acceptance by position: the share of steps that accepted the draft there, of the newest attempt that tells."""
    for attempt in reversed(attempts):
        told = _part(attempt, "acceptance")
        reached, steps = _list(told.get("accepted_at")), _number(told.get("steps"))
        if reached and steps:
            shares = " ".join(f"{_number(one) / steps:.2f}" for one in reached)
            return f"accepted by position {shares}"
    return ""


def _budgets(row: CellRow, state: RunState) -> str:
    by_budget = acceptance_by_budget(row, state)
    if len(by_budget) < 2:
        return ""
    return "acceptance by budget " + ", ".join(f"{budget}: {length:.2f}" for budget, (_, length) in by_budget.items())


def _outputs(row: CellRow, state: RunState) -> str:
    equal = equal_outputs(row, state)
    if equal is None:
        return ""
    return f"{equal[0]} of {equal[1]} prompts give the baseline's text"


def _outliers(attempts: Sequence[Attempt]) -> str:
    requests = sum(len(_list(attempt.figures.get("outliers"))) for attempt in attempts)
    rates = [_number(attempt.figures.get("output_rate")) for attempt in attempts]
    launches = [attempts[place].launch for place in outliers(rates)]
    texts = [f"{requests} requests" if requests > 1 else "1 request"] if requests else []
    texts += [f"launch {number}" for number in launches]
    return f"{', '.join(texts)} far from the rest: marked, and counted like the others" if texts else ""


def _drift(row: CellRow, state: RunState) -> str:
    is_baseline = state.created is not None and state.deployments[row.cell.deployment].method == state.created.baseline
    drift = drift_of(state, row) if is_baseline else None
    return drift_in_words(drift) if drift is not None else ""


def _part(attempt: Attempt, name: str) -> Mapping[str, Any]:
    value = attempt.figures.get(name)
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
