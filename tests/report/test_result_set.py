import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddconsole.core import events as ev
from ddconsole.core.records import RequestOutcome, TokenSource
from ddconsole.core.states import Pruned
from ddconsole.core.sweep import to_json
from ddconsole.report.attempt_reader import (
    AttemptUnavailable,
    RunUnreadable,
    attempts_in_folder,
    attempts_in_memory,
    state_of_run,
)
from ddconsole.report.collect import result_set
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import CellResult, ResultSet
from tests.report.sample_runs import SampleRun, closed_loop, file_bytes, small_run


def cell_of(result: ResultSet, name: str) -> CellResult:
    return next(cell for cell in result.cells if cell.cell == name)


def changed(sample: SampleRun, cell: str, **changes: Any) -> ResultSet:
    key = (cell, 1)
    files = {**sample.attempts, key: replace(sample.attempts[key], **changes)}
    return result_set(sample.state, attempts_in_memory(files))


def test_figures_are_made_again_from_the_records_of_all_counted_attempts(
    ct200: SampleRun, ct200_results: ResultSet
) -> None:
    assert len(ct200_results.cells) == 216
    for cell in ct200_results.counted():
        files = [file for (name, _), file in ct200.attempts.items() if name == cell.cell]
        records = [record for file in files for record in file.requests]
        rates = [
            (one.output_tokens - 1) / (one.last_text - one.first_text)
            for one in records
            if one.output_tokens and one.last_text and one.first_text
        ]
        figures = cell.figures
        assert figures is not None
        assert figures.output_rate is not None
        assert figures.output_rate.value == pytest.approx(statistics.median(rates))
        assert (figures.launches, figures.requests) == (3, len(records))
        tokens = sum(r.output_tokens or 0 for r in records)
        walls = sum(max(r.end for r in f.requests) - min(r.sent for r in f.requests) for f in files)
        assert figures.server_rate == pytest.approx(tokens / walls)
        if cell.method == "ar":
            assert figures.acceptance_length == 1.0
        else:
            steps = sum(r.acceptance.steps or 0 for r in records if r.acceptance)
            assert figures.acceptance_length == pytest.approx(tokens / steps)


def test_speed_up_is_against_the_baseline_at_the_same_size_and_point(ct200_results: ResultSet) -> None:
    places = {(c.method, c.tensor_parallel, c.point): c for c in ct200_results.counted()}
    for (method, size, point), cell in places.items():
        base = places["ar", size, point].figures
        assert cell.figures is not None
        assert base is not None
        assert cell.figures.speed_up is not None
        assert cell.figures.output_rate is not None
        assert base.output_rate is not None
        assert cell.figures.speed_up.value == pytest.approx(cell.figures.output_rate.value / base.output_rate.value)
        assert (cell.figures.speed_up.low is None) == (method == "ar")


def test_states_become_marks_and_reasons(small_results: ResultSet) -> None:
    assert cell_of(small_results, "c010").marks == (Mark.SKIPPED,)
    assert cell_of(small_results, "c010").reasons == ("256 tokens overflow the context of n-gram drafts",)
    assert cell_of(small_results, "c013").marks == (Mark.FAILED,)
    assert "3 of 40 requests failed" in cell_of(small_results, "c013").reasons[0]
    retried = cell_of(small_results, "c012")
    assert retried.figures is not None
    assert [one.number for one in retried.figures.attempts] == [2]
    assert retried.tries == 2
    flagged = cell_of(small_results, "c005")
    assert flagged.marks == (Mark.WITHIN_ONE_LAUNCH, Mark.FLAGGED)
    assert flagged.reasons == ("attempt 1: GPU 0 throttled for 4 s (power)",)


def test_a_simulated_run_is_marked_in_every_cell_with_figures(
    ct200_results: ResultSet, small_results: ResultSet
) -> None:
    assert ct200_results.simulated
    assert all(Mark.SIMULATED in cell.marks for cell in ct200_results.counted())
    assert not small_results.simulated
    assert not any(Mark.SIMULATED in cell.marks for cell in small_results.cells)


def test_attempts_of_another_driver_build_or_model_are_refused_with_what_differs(small: SampleRun) -> None:
    model = {"name": "SmolLM2-135M-Instruct", "config_sha256": "9b1d" * 16}
    parts = {"driver": None, "build": {"version": "b7000"}, "model": model}
    result = changed(small, "c008", fingerprint_parts=parts)
    cell = cell_of(result, "c008")
    assert cell.figures is None
    assert cell.marks == (Mark.EXCLUDED,)
    assert cell.reasons == ('attempt 1 does not compare with the others: build.version: "b6800" \u2192 "b7000"',)
    assert result.warnings == (f"c008: {cell.reasons[0]}",)


def test_a_simulated_attempt_never_stands_among_measured_ones(small: SampleRun) -> None:
    result = changed(small, "c008", simulated=True)
    assert cell_of(result, "c008").figures is None
    assert "it is simulated" in cell_of(result, "c008").reasons[0]
    assert not result.simulated


def test_an_attempt_above_the_failure_limit_is_in_no_figure(small: SampleRun) -> None:
    requests = list(small.attempts["c008", 1].requests)
    requests[3] = replace(requests[3], outcome=RequestOutcome.SHORT)
    cell = cell_of(changed(small, "c008", requests=tuple(requests)), "c008")
    assert cell.figures is None
    assert cell.reasons == ("attempt 1 is in no figure: 1 of 15 requests failed, the limit is 1%",)


def test_estimated_tokens_free_lengths_and_counters_are_marked(small: SampleRun) -> None:
    file = small.attempts["c008", 1]
    told = {
        **file.figures,
        "acceptance": {"tokens": 960, "steps": 600, "drafted": None, "accepted": None, "source": "counters"},
    }
    requests = tuple(replace(one, token_source=TokenSource.ESTIMATED, acceptance=None) for one in file.requests)
    cell = cell_of(changed(small, "c008", requests=requests, figures=told), "c008")
    assert {Mark.ESTIMATED_TOKENS, Mark.FROM_COUNTERS} <= set(cell.marks)
    assert cell.figures is not None
    assert cell.figures.acceptance_length == 1.6


def test_unknown_acceptance_is_not_one(small: SampleRun) -> None:
    file = small.attempts["c008", 1]
    requests = tuple(replace(one, acceptance=None) for one in file.requests)
    cell = cell_of(changed(small, "c008", requests=requests, figures={**file.figures, "acceptance": None}), "c008")
    assert cell.figures is not None
    assert cell.figures.acceptance_length is None


def test_a_journal_that_contradicts_the_records_is_flagged(small: SampleRun) -> None:
    file = small.attempts["c008", 1]
    requests = tuple(replace(one, last_text=(one.last_text or 0) + 1.0) for one in file.requests)
    result = changed(small, "c008", requests=requests)
    assert Mark.FLAGGED in cell_of(result, "c008").marks
    assert "the journal says" in result.warnings[0]


def test_a_missing_attempt_file_empties_its_cell_and_warns(small: SampleRun) -> None:
    files = {key: file for key, file in small.attempts.items() if key != ("c001", 1)}
    result = result_set(small.state, attempts_in_memory(files))
    assert cell_of(result, "c001").figures is None
    assert result.warnings == ("c001: attempt 1 cannot be used: its attempt file is missing",)
    speed_up = cell_of(result, "c008").figures
    assert speed_up is not None
    assert speed_up.speed_up is None


def test_a_cell_with_some_rounds_done_is_shown_as_incomplete() -> None:
    sample = small_run()
    sample.tell(ev.CellsRetried(("c001",), "ann@desk"))
    result = result_set(sample.state, attempts_in_memory(sample.attempts))
    cell = cell_of(result, "c001")
    assert cell.figures is not None
    assert Mark.INCOMPLETE in cell.marks


def test_two_cells_in_one_place_are_told_apart() -> None:
    sample = small_run()
    state = sample.state
    original = state.cells["c001"].cell
    copy = replace(original, id="c015", derived_from="c001")
    sample.tell(ev.CellAdded(to_json(copy)))
    result = result_set(sample.state, attempts_in_memory(sample.attempts))
    assert [cell.method for cell in result.cells if cell.cell in {"c001", "c015"}] == ["ar", "ar (c015)"]


def test_differing_server_arguments_are_listed_by_method(ct200_results: ResultSet) -> None:
    assert [one.argument for one in ct200_results.differences] == ["disable_overlap"]
    (no, yes) = ct200_results.differences[0].values
    assert no == ("false", ("ar",))
    assert yes[1][:2] == ("dflash", "ddtree-b8")


def test_the_digest_changes_with_the_results_only(small: SampleRun, small_results: ResultSet) -> None:
    again = result_set(small.state, attempts_in_memory(dict(reversed(small.attempts.items()))))
    assert again.sha256 == small_results.sha256
    requests = small.attempts["c001", 1].requests[:-1]
    assert changed(small, "c001", requests=requests).sha256 != small_results.sha256


def test_a_run_directory_reads_as_the_run_in_memory(small: SampleRun, small_results: ResultSet, tmp_path: Path) -> None:
    folder = small.write(tmp_path / "run")
    state, damage = state_of_run(folder)
    assert damage is None
    assert result_set(state, attempts_in_folder(folder, state)) == small_results


def test_files_that_are_gone_changed_or_broken_are_refused_by_reason(small: SampleRun, tmp_path: Path) -> None:
    folder = small.write(tmp_path / "run")
    load = attempts_in_folder(folder, small.state)
    path = folder / "cells/c001/1.json"
    path.write_bytes(file_bytes(small.attempts["c002", 1]))
    with pytest.raises(AttemptUnavailable, match="changed after it was committed"):
        load("c001", 1)
    path.unlink()
    with pytest.raises(AttemptUnavailable, match="missing"):
        load("c001", 1)
    no_hashes = attempts_in_folder(folder, replace(small.state, cells={}))
    for raw in (b"{", b"[]", b'{"format": 99}', b'{"requests": [{}]}', b"\xff"):
        path.write_bytes(raw)
        with pytest.raises(AttemptUnavailable):
            no_hashes("c001", 1)


def test_a_folder_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunUnreadable, match="ddconsole runs"):
        state_of_run(tmp_path)
    (tmp_path / "journal.jsonl").write_bytes(b"")
    with pytest.raises(RunUnreadable, match="holds no run"):
        state_of_run(tmp_path)


def test_a_torn_journal_is_read_with_a_warning(small: SampleRun, tmp_path: Path) -> None:
    folder = small.write(tmp_path / "run")
    journal = folder / "journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-20])
    state, damage = state_of_run(folder)
    assert damage is not None
    assert "torn" in damage
    assert state.seq == len(small.entries) - 1


def test_percentiles_are_withheld_below_their_floor(small_results: ResultSet) -> None:
    by_point = {cell.point: cell.figures for cell in small_results.cells if cell.method == "ar"}
    ten, forty = by_point[closed_loop(1, 64)], by_point[closed_loop(4, 64)]
    assert ten is not None
    assert forty is not None
    assert ten.ttft.at(0.50) is None
    assert forty.ttft.at(0.50) is not None
    assert forty.ttft.at(0.90) is None


def test_what_a_pruned_cell_measured_before_is_kept_and_incomplete(small: SampleRun) -> None:
    row = small.state.cells["c001"]
    pruned = replace(row, state=Pruned("its canary"), cell=replace(row.cell, rounds=row.cell.rounds + 1))
    state = replace(small.state, cells={**small.state.cells, "c001": pruned})
    cell = cell_of(result_set(state, attempts_in_memory(small.attempts)), "c001")
    assert cell.figures is not None
    assert Mark.INCOMPLETE in cell.marks
    assert cell.reasons == ("its canary",)
