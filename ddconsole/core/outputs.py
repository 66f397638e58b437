"""What came out, in short: enough to say without the attempts' files how many outputs equal the baseline's."""

from collections.abc import Mapping, Sequence

from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.row_text import point_key
from ddconsole.core.run_state import CellRow, RunState
from ddconsole.core.sweep import WorkloadPoint

MOST_PROMPTS = 64
"""Different prompts of a cell beyond which nothing is kept: it would swell the journal."""
_DIGITS = 12
"""Of a text's SHA-256."""

Outputs = Mapping[str, Sequence[str]]
"""By prompt: the beginnings of the hashes of its outputs, each once."""


def outputs_of(point: WorkloadPoint, records: Sequence[RequestRecord]) -> dict[str, list[str]]:
    """The outputs of an attempt; empty where they cannot be compared: sampled, or on contexts of their own."""
    if point.sampling.temperature > 0 or point.turns == "live":
        return {}
    found: dict[str, dict[str, None]] = {}
    for record in records:
        if record.outcome is RequestOutcome.OK and record.text_sha256:
            found.setdefault(record.prompt, {})[record.text_sha256[:_DIGITS]] = None
    return {prompt: list(texts) for prompt, texts in found.items()} if len(found) <= MOST_PROMPTS else {}


def equal_outputs(row: CellRow, state: RunState) -> tuple[int, int] | None:
    """Of how many prompts every output is one that the baseline gave too, and of how many both have one.

    None for the baseline itself, and where there is nothing to compare.
    """
    baseline = state.created.baseline if state.created else ""
    if state.deployments[row.cell.deployment].method == baseline:
        return None
    mine, expected = _all_outputs([row]), _all_outputs(_baseline_rows(row, state, baseline))
    compared = [prompt for prompt in mine if prompt in expected]
    if not compared:
        return None
    return sum(1 for prompt in compared if mine[prompt] <= expected[prompt]), len(compared)


def _baseline_rows(row: CellRow, state: RunState, baseline: str) -> list[CellRow]:
    key = point_key(row, state)
    return [
        other
        for other in state.cells.values()
        if state.deployments[other.cell.deployment].method == baseline and point_key(other, state) == key
    ]


def _all_outputs(rows: Sequence[CellRow]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in rows:
        for attempt in row.compared_attempts():
            told = attempt.figures.get("outputs")
            for prompt, texts in told.items() if isinstance(told, Mapping) else ():
                found.setdefault(str(prompt), set()).update(map(str, texts))
    return found
