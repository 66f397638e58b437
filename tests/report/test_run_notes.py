"""What flags a whole server or the machine reaches every table: marks, reasons, legend and exclusions."""

import csv
import io
import json
from dataclasses import replace
from typing import Any

from ddconsole.commands.cells import server_lines
from ddconsole.core.drift import baseline_drift
from ddconsole.core.server_matrix import matrix_notes
from ddconsole.core.sweep import Cell, Deployment, Placement, Speculative
from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.collect import result_set
from ddconsole.report.export import export_texts
from ddconsole.report.markdown import markdown_text
from ddconsole.report.marks import Mark
from tests.report.conftest import results_of
from tests.report.sample_runs import SampleRun, begin, end_launch, measure, single, start_launch

AR = Deployment("d01", "ar", 1, 4, {}, {}, Placement())
TREE = Deployment("d02", "tree", 1, 4, {}, {}, Placement(), Speculative("tree", budget=8))


def two_servers(ar: dict[str, Any], tree: dict[str, Any], *, rounds: int = 1) -> SampleRun:
    sample = SampleRun()
    cells = [Cell("c001", "d01", single(64), rounds=rounds), Cell("c002", "d02", single(64))]
    cells.append(Cell("c003", "d02", single(128)))
    begin(sample, [AR, TREE], cells)
    for number in range(1, rounds + 1):
        start_launch(sample, number, AR, number, **ar)
        measure(sample, cells[0], AR, number, number, number)
        end_launch(sample, number)
    start_launch(sample, rounds + 1, TREE, 1, **tree)
    measure(sample, cells[1], TREE, 1, rounds + 1, 1)
    return sample


def test_an_unplanned_difference_of_servers_is_in_every_table() -> None:
    sample = two_servers({"max_running_requests": 128}, {"max_running_requests": 48})
    (note,) = matrix_notes(sample.state, "d02")
    assert f"tree TP1: {note}" in server_lines(sample.state)
    result = results_of(sample)
    assert [Mark.FLAGGED in cell.marks for cell in result.cells] == [True, True, False]
    texts = export_texts(result)
    rows = list(csv.DictReader(io.StringIO(texts["results.csv"])))
    assert ["flagged" in row["marks"].split() for row in rows] == [True, True, False]
    lines = [json.loads(line) for line in texts["results.jsonl"].splitlines()]
    for told in (rows[1]["reasons"], lines[1]["reasons"]):
        assert note in told
    assert note.replace("_", r"\_") in markdown_text(result)
    assert "flagged & 1 & c002" in texts["tab-exclusions.tex"]
    assert note in texts["tab-exclusions.csv"]
    assert r"\textsuperscript{w,f}" in texts["tab-main-single-tp1.tex"]
    assert "of a server that differs unplanned" in texts["main.tex"]


def test_equal_servers_flag_nothing_and_many_differences_are_told_in_short() -> None:
    same = {"max_running_requests": 48}
    assert all(Mark.FLAGGED not in cell.marks for cell in results_of(two_servers(same, same)).cells)
    ar, tree = ({f"argument_{letter}": value for letter in "abcdefghi"} for value in (1, 2))
    reasons = results_of(two_servers(ar, tree)).cells[1].reasons
    assert len(reasons) == 7
    assert reasons[-1] == "and 3 more: ddconsole servers lists them"


def test_a_drift_of_the_baseline_flags_every_cell_of_its_size() -> None:
    sample = two_servers({}, {}, rounds=4)
    row = sample.state.cells["c001"]
    slower = tuple(
        replace(attempt, figures={**attempt.figures, "output_rate": 100.0 * 0.9**number})
        for number, attempt in enumerate(row.attempts)
    )
    state = replace(sample.state, cells={**sample.state.cells, "c001": replace(row, attempts=slower)})
    (drift,) = baseline_drift(state)
    assert drift.beyond
    for cell in result_set(state, attempts_in_memory(sample.attempts)).cells[:2]:
        assert Mark.FLAGGED in cell.marks
        assert any(reason.startswith("the baseline drifted") for reason in cell.reasons)
