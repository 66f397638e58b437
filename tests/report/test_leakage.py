"""Outputs that are not the baseline's, and acceptance that falls as the budget grows, are flagged with numbers."""

from collections.abc import Callable
from dataclasses import replace

from ddconsole.core.records import RequestRecord
from ddconsole.core.sweep import Sampling
from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.collect import result_set
from ddconsole.report.leakage import with_leakage
from ddconsole.report.marks import Mark
from ddconsole.report.read_attempt import ReadAttempt, read_attempt
from ddconsole.report.result_set import CellResult
from tests.report.sample_runs import SampleRun


def cells_with(sample: SampleRun, change: Callable[[RequestRecord, str], RequestRecord]) -> list[CellResult]:
    """The sample's cells with their records changed; `change` is told the method."""
    result = result_set(sample.state, attempts_in_memory(sample.attempts))
    files: dict[str, list[ReadAttempt]] = {cell.cell: [] for cell in result.cells}
    methods = {cell.cell: cell.method for cell in result.cells}
    for (name, _), file in sample.attempts.items():
        requests = tuple(change(one, methods[name]) for one in file.requests)
        files[name].append(read_attempt(replace(file, requests=requests)))
    plain = [replace(cell, marks=(), reasons=()) for cell in result.cells]
    return with_leakage(plain, files, "ar")


def same(record: RequestRecord, method: str) -> RequestRecord:
    return replace(record, text="one two", text_sha256="a")


def other(record: RequestRecord, method: str) -> RequestRecord:
    if method == "ar" or record.prompt != "code":
        return same(record, method)
    return replace(record, text="one too", text_sha256="b")


def test_equal_outputs_and_rising_acceptance_are_no_sign(ct200: SampleRun) -> None:
    assert all(cell.marks == () for cell in cells_with(ct200, same))


def test_other_outputs_are_flagged_with_their_share_and_the_first_difference(ct200: SampleRun) -> None:
    cells = cells_with(ct200, other)
    flagged = [cell for cell in cells if cell.marks == (Mark.FLAGGED,)]
    assert flagged
    assert all(cell.method != "ar" for cell in flagged)
    assert all("outputs are equal to ar's under greedy decoding" in cell.reasons[0] for cell in flagged)
    assert all(cell.reasons[0].endswith("code differs from character 6 on") for cell in flagged)


def test_sampled_outputs_are_not_compared(ct200: SampleRun) -> None:
    result = result_set(ct200.state, attempts_in_memory(ct200.attempts))
    warm = Sampling(temperature=0.7)
    cells = [replace(one, point=replace(one.point, sampling=warm), marks=(), reasons=()) for one in result.cells]
    files: dict[str, list[ReadAttempt]] = {cell.cell: [] for cell in cells}
    for (name, _), file in ct200.attempts.items():
        method = next(cell.method for cell in cells if cell.cell == name)
        files[name].append(read_attempt(replace(file, requests=tuple(other(one, method) for one in file.requests))))
    assert all(cell.marks == () for cell in with_leakage(cells, files, "ar"))


def test_acceptance_that_falls_as_the_budget_grows_is_flagged(ct200: SampleRun) -> None:
    result = result_set(ct200.state, attempts_in_memory(ct200.attempts))
    cells = []
    for cell in result.cells:
        figures = cell.figures
        if cell.method == "ddtree-b16" and figures is not None and figures.acceptance is not None:
            low = replace(figures.acceptance, tokens=figures.acceptance.tokens // 2)
            figures = replace(figures, acceptance=low)
        cells.append(replace(cell, figures=figures, marks=(), reasons=()))
    flagged = [one for one in with_leakage(cells, {one.cell: [] for one in cells}, "ar") if one.marks]
    assert {one.method for one in flagged} == {"ddtree-b16"}
    assert all("acceptance falls from" in one.reasons[0] and "at budget 16" in one.reasons[0] for one in flagged)
