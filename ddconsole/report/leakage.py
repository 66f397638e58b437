"""Signs that a method does not do what it says: other outputs than the baseline's, acceptance that falls.

Outputs may also differ because requests were batched otherwise, which changes the rounding of sums: the baseline's own
variants are all taken as equal, and the share and the place tell one from the other.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from ddconsole.core.records import RequestOutcome
from ddconsole.report.read_attempt import ReadAttempt, RequestFigures
from ddconsole.report.result_set import CellResult, EqualOutputs, PointKey, point_key
from ddconsole.report.run_notes import flagged

_FALL = 0.01
"""Share by which acceptance may fall from one budget to the next larger one: rounding and ties of the drafts."""

Attempts = Mapping[str, Sequence[ReadAttempt]]
"""The counted ones by cell."""


def with_leakage(cells: Sequence[CellResult], attempts: Attempts, baseline: str) -> list[CellResult]:
    """The cells with their equal outputs; those with a sign are flagged and have its numbers among their reasons."""
    signs: dict[str, list[str]] = {}
    outputs: dict[str, EqualOutputs] = {}
    for cell, compared, text in _compared_outputs(cells, attempts, baseline):
        outputs[cell] = compared
        if text:
            signs.setdefault(cell, []).append(text)
    for cell, text in _falling_acceptance(cells):
        signs.setdefault(cell, []).append(text)
    told = [
        replace(cell, figures=replace(cell.figures, outputs=outputs[cell.cell]))
        if cell.figures is not None and cell.cell in outputs
        else cell
        for cell in cells
    ]
    return [flagged(cell, signs[cell.cell]) if cell.cell in signs else cell for cell in told]


def _compared_outputs(
    cells: Sequence[CellResult], attempts: Attempts, baseline: str
) -> Iterable[tuple[str, EqualOutputs, str]]:
    """Greedy decoding only, with the same context: outputs that a request of the baseline gave for that prompt.

    Yields:
        The cell, its count, and what to say where some are not equal.
    """
    expected: dict[tuple[int, PointKey], dict[str, dict[str, str]]] = {}
    for cell in cells:
        if cell.method == baseline:
            texts = expected.setdefault((cell.tensor_parallel, point_key(cell.point)), {})
            for record in _succeeded(attempts[cell.cell]):
                variants = texts.setdefault(record.prompt, {})
                variants[record.text_sha256] = record.text or variants.get(record.text_sha256, "")
    for cell in cells:
        texts = expected.get((cell.tensor_parallel, point_key(cell.point)), {})
        if cell.method == baseline or cell.point.sampling.temperature > 0 or cell.point.turns == "live":
            continue
        compared = [record for record in _succeeded(attempts[cell.cell]) if record.prompt in texts]
        other = [record for record in compared if record.text_sha256 not in texts[record.prompt]]
        if not compared:
            continue
        text = ""
        if other:
            told = next((record for record in other if record.text), other[0])
            share = f"{len(compared) - len(other)} of {len(compared)} outputs are equal to {baseline}'s"
            text = f"{share} under greedy decoding; {_first_difference(told, texts[told.prompt])}"
        yield cell.cell, EqualOutputs(len(compared) - len(other), len(compared)), text


def _succeeded(attempts: Sequence[ReadAttempt]) -> list[RequestFigures]:
    done = (one for attempt in attempts for one in attempt.requests if one.outcome is RequestOutcome.OK)
    return [one for one in done if one.text_sha256]


def _first_difference(record: RequestFigures, texts: Mapping[str, str]) -> str:
    """Where the output leaves the baseline's that it follows longest."""
    if not record.text:
        return f"{record.prompt} differs"
    shared = max(_shared(record.text, text) for text in texts.values())
    return f"{record.prompt} differs from character {shared + 1} on"


def _shared(one: str, other: str) -> int:
    number = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        number += 1
    return number


def _falling_acceptance(cells: Sequence[CellResult]) -> Iterable[tuple[str, str]]:
    """A larger budget can only offer more: acceptance below that of the next smaller one is a sign."""
    by_place: dict[tuple[str, int, PointKey], dict[int, CellResult]] = {}
    for cell in cells:
        speculative = cell.deployment.speculative
        if speculative is not None and speculative.budget is not None and cell.figures is not None:
            place = (speculative.kind, cell.tensor_parallel, point_key(cell.point))
            by_place.setdefault(place, {}).setdefault(speculative.budget, cell)
    for budgets in by_place.values():
        ordered = sorted(budgets)
        for small, large in pairwise(ordered):
            less, more = (budgets[one].figures for one in (small, large))
            before, after = less and less.acceptance_length, more and more.acceptance_length
            if before and after and after < before * (1 - _FALL):
                text = f"acceptance falls from {before:.2f} at budget {small} to {after:.2f} at budget {large}"
                yield budgets[large].cell, text
