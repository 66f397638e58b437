"""How fast each turn of a conversation was: of all attempts that count, from the files of a run."""

import statistics
from pathlib import Path

from ddconsole.core.figures import output_rate
from ddconsole.core.records import RequestOutcome
from ddconsole.report.attempt_reader import AttemptLoader, AttemptUnavailable, attempts_in_folder, state_of_run


def turn_rates(folder: Path) -> dict[str, tuple[tuple[int, float], ...]]:
    """By cell, (turn, median tokens a second) of its conversation; cells without readable attempts are left out.

    Raises:
        RunUnreadable: the folder holds no readable run.
    """
    state, _ = state_of_run(folder)
    load = attempts_in_folder(folder, state)
    found: dict[str, tuple[tuple[int, float], ...]] = {}
    for row in state.cells.values():
        if row.cell.point.kind != "conversation":
            continue
        rates: dict[int, list[float]] = {}
        for attempt in row.compared_attempts():
            _add(rates, load, row.cell.id, attempt.number)
        if rates:
            found[row.cell.id] = tuple((turn, statistics.median(rates[turn])) for turn in sorted(rates))
    return found


def _add(rates: dict[int, list[float]], load: AttemptLoader, cell: str, attempt: int) -> None:
    try:
        file = load(cell, attempt)
    except AttemptUnavailable:
        return
    for record in file.requests:
        rate = output_rate(record) if record.outcome is RequestOutcome.OK else None
        if rate is not None:
            rates.setdefault(record.turn, []).append(rate)
