import csv
import io
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ddconsole.core.attempt_file import AttemptFile
from ddconsole.core.records import RequestRecord
from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.collect import result_set
from ddconsole.report.export import export_texts, fragments_of
from ddconsole.report.fragment import Fragment
from ddconsole.report.marks import Mark
from ddconsole.report.result_set import ResultSet
from tests.report.conftest import results_of
from tests.report.sample_runs import SampleRun, ct200_run, single

FIXTURES = Path(__file__).parents[1] / "fixtures/report"
Files = Mapping[tuple[str, int], AttemptFile]
NUMBER = re.compile(r"^(?:\\bfseries )?(-?[0-9]+(?:\.[0-9]+)?)$")


def fragment_of(result: ResultSet, name: str) -> Fragment:
    return next(one for one in fragments_of(result) if one.name == name)


def rows_of(tex: str) -> list[list[str]]:
    """Rows of cells between the rules of a tabular, without the row ends."""
    lines = [line.strip() for line in tex.split(r"\midrule")[1].splitlines() if " & " in line]
    ended = [re.sub(r"\s*\\\\(\[[^]]*\])?( % [ -~]+)?$", "", line) for line in lines]
    return [[cell.strip() for cell in re.split(r"(?:^|\s)&\s", line)] for line in ended]


def files_of(sample: SampleRun, method: str, size: int, **point: object) -> list[AttemptFile]:
    """The newest attempt of each round of one cell, by plain search."""
    found: dict[int, AttemptFile] = {}
    for file in sample.attempts.values():
        asked = file.cell["point"]
        if (file.deployment["method"], file.deployment["tensor_parallel"]) != (method, size):
            continue
        if all(asked[name] == value for name, value in point.items()):
            found[file.round] = file
    return list(found.values())


def rate(record: RequestRecord) -> float:
    assert record.output_tokens is not None
    assert record.first_text is not None
    assert record.last_text is not None
    return (record.output_tokens - 1) / (record.last_text - record.first_text)


def ttft(record: RequestRecord) -> float:
    assert record.first_text is not None
    return 1000 * (record.first_text - record.sent)


def median_of(files: list[AttemptFile], figure: Callable[[RequestRecord], float]) -> float:
    return statistics.median(figure(record) for file in files for record in file.requests)


def acceptance(files: list[AttemptFile]) -> float:
    records = [record for file in files for record in file.requests]
    if files[0].deployment["method"] == "ar":
        return 1.0
    steps = sum(one.acceptance.steps or 0 for one in records if one.acceptance)
    return sum(one.output_tokens or 0 for one in records) / steps


def server_rate(files: list[AttemptFile]) -> float:
    tokens = sum(record.output_tokens or 0 for file in files for record in file.requests)
    return tokens / sum(max(r.end for r in file.requests) - min(r.sent for r in file.requests) for file in files)


def shows(cell: str, value: float) -> bool:
    """Whether a cell shows this value, rounded to the decimals that the cell has."""
    found = NUMBER.match(cell)
    assert found is not None, cell
    decimals = len(found[1].partition(".")[2])
    return found[1] == f"{value:.{decimals}f}"


@pytest.mark.parametrize("size", [1, 4, 8])
def test_every_number_of_the_main_table_comes_from_the_attempt_files(
    ct200: SampleRun, ct200_results: ResultSet, size: int
) -> None:
    rows = [row for row in rows_of(fragment_of(ct200_results, f"tab-main-single-tp{size}").tex) if row[0]]
    assert len(rows) == 8
    checked = 0
    for method, *cells in rows:
        if r"\multicolumn" in cells[0]:
            assert cells == [r"\multicolumn{3}{c}{skip}"] * 3
            continue
        for place, tokens in enumerate((256, 1024, 2048)):
            files = files_of(ct200, method, size, workload="generate", max_tokens=tokens)
            base = files_of(ct200, "ar", size, workload="generate", max_tokens=tokens)
            shown = cells[3 * place : 3 * place + 3]
            assert shows(shown[0], median_of(files, rate))
            assert shows(shown[1], median_of(files, rate) / median_of(base, rate))
            assert shows(shown[2], acceptance(files))
            checked += 1
    assert checked == (24 if size == 1 else 18)


def test_every_spread_of_the_small_table_is_half_the_central_95_percent(
    small: SampleRun, small_results: ResultSet
) -> None:
    rows = rows_of(fragment_of(small_results, "tab-main-single-tp1").tex)
    checked = 0
    for (method, *_), (_, *noises) in zip(rows[::2], rows[1::2], strict=True):
        for place, tokens in enumerate((64, 128, 256)):
            shown = re.match(r"\{\\scriptsize \(([0-9.]+)\)\\textsuperscript\{w\}\}", noises[3 * place])
            files = files_of(small, method, 1, workload="generate", max_tokens=tokens)
            assert (shown is None) == (not files)
            if shown is not None:
                low, high = np.quantile([rate(one) for one in files[0].requests], [0.025, 0.975])
                assert shows(shown[1], (high - low) / 2)
                checked += 1
    assert checked == 5


def test_every_number_of_the_concurrency_table_comes_from_the_attempt_files(
    small: SampleRun, small_results: ResultSet
) -> None:
    rows = rows_of(fragment_of(small_results, "tab-concurrency-tp1").tex)
    places = [(method, number) for number in (1, 2, 4) for method in ("ar", "ngram")]
    assert len(rows) == len(places)
    for row, (method, number) in zip(rows, places, strict=True):
        assert row[0] == method
        if (method, number) == ("ngram", 4):
            assert row[1] == r"\multicolumn{7}{c}{fail}"
            continue
        files = files_of(small, method, 1, workload="concurrency", concurrency=number)
        base = files_of(small, "ar", 1, workload="concurrency", concurrency=number)
        assert shows(row[1], median_of(files, rate))
        assert shows(row[3], median_of(files, rate) / median_of(base, rate))
        assert shows(row[5], server_rate(files))
        assert shows(row[6], acceptance(files))
        if number == 1:
            assert row[7] == r"{\textdagger{}}"
        else:
            assert shows(row[7], median_of(files, ttft))
        assert row[8] == str(len(files[0].requests))
    assert rows[2][9] == r"{\scriptsize w,f}"


@pytest.mark.parametrize("kind", ["bars-single", "budget-single"])
def test_figures_draw_the_medians_of_the_attempt_files(ct200: SampleRun, ct200_results: ResultSet, kind: str) -> None:
    tex = fragment_of(ct200_results, f"fig-{kind}-tp1").tex
    drawn = {round(float(one), 4) for one in re.findall(r"\([0-9.]+,([0-9.]+)\) \+= ", tex)}
    methods = ("ar", "dflash") if kind.startswith("bars") else ()
    for method in (*methods, *(f"ddtree-b{budget}" for budget in (8, 12, 15, 16, 32, 64))):
        for tokens in (256, 1024, 2048):
            files = files_of(ct200, method, 1, workload="generate", max_tokens=tokens)
            assert round(median_of(files, rate), 4) in drawn


def test_budgets_that_do_not_branch_are_hollow(ct200_results: ResultSet) -> None:
    tex = fragment_of(ct200_results, "fig-budget-single-tp1").tex
    hollow = re.findall(r"ddc hollow,only marks,forget plot,[^{]*\{(.*?)\}", tex, re.DOTALL)
    assert [re.findall(r"^\s*\(([0-9]+),", one, re.MULTILINE) for one in hollow] == [["8", "12", "15"]] * len(hollow)
    # Three workloads, each with rate, acceptance and equal outputs.
    assert len(hollow) == 9
    assert tex.count("ddc role chain,ddc level,forget plot") == 9


def test_the_best_rate_is_bold_with_all_that_overlap(ct200_results: ResultSet) -> None:
    rows = rows_of(fragment_of(ct200_results, "tab-main-single-tp1").tex)
    bold = [row[0] for row in rows if r"\bfseries" in row[1]]
    first = [cell for cell in ct200_results.counted() if cell.tensor_parallel == 1 and cell.point == single(256, 2)]
    rates = {cell.method: cell.figures.output_rate for cell in first if cell.figures and cell.figures.output_rate}
    best = max(rates.values(), key=lambda one: one.value)
    assert best.low is not None
    assert bold == [name for name, one in rates.items() if one.high is not None and one.high >= best.low]
    assert "ddtree-b15" in bold


def test_a_small_table_is_as_kept(small_results: ResultSet) -> None:
    tex = fragment_of(small_results, "tab-main-single-tp1").tex
    kept = (FIXTURES / "tab-main-single-tp1.tex").read_text(encoding="ascii")
    without_digest = re.sub(r"(% result set sha256 )[0-9a-f]{64}", r"\g<1>DIGEST", tex)
    assert without_digest == kept


def test_twins_have_full_precision_and_say_simulated(ct200: SampleRun, ct200_results: ResultSet) -> None:
    rows = list(csv.DictReader(io.StringIO(fragment_of(ct200_results, "tab-main-single-tp4").csv)))
    assert len(rows) == 24
    assert {row["simulated"] for row in rows} == {"true"}
    for row in rows:
        files = files_of(ct200, row["method"], 4, workload="generate", max_tokens=int(row["max_tokens"]))
        assert row["output_rate"] == (repr(median_of(files, rate)) if files else "")
        assert (row["speed_up_low"] == "") == (row["method"] in {"ar", "ddtree-b32", "ddtree-b64"})


def test_every_fragment_of_a_simulated_run_says_so(ct200_results: ResultSet, small_results: ResultSet) -> None:
    fragments = list(fragments_of(ct200_results))
    assert len(fragments) > 20
    for one in fragments:
        drawn = one.tex.split(r"\begin{t", 1)[1]
        assert "SIMULATED" in drawn, one.name
        assert "simulated" in one.csv.splitlines()[0], one.name
    assert not any("SIMULATED" in one.tex for one in fragments_of(small_results))


def test_what_is_not_there_is_not_drawn(small_results: ResultSet) -> None:
    names = {one.name for one in fragments_of(small_results)}
    assert not any(name.startswith("fig-budget") for name in names)
    assert "tab-concurrency-tp1" in names
    no_load = [cell for cell in small_results.cells if cell.point.kind == "single"]
    names = {one.name for one in fragments_of(replace(small_results, cells=tuple(no_load)))}
    assert not any("concurrency" in name or "conversation" in name for name in names)


def test_exclusions_name_cells_once_with_reason_and_attempts(small_results: ResultSet) -> None:
    rows = list(csv.DictReader(io.StringIO(fragment_of(small_results, "tab-exclusions").csv)))
    assert [(row["cell"], row["state"], row["attempts"]) for row in rows] == [
        ("c005", "done", "1"),
        ("c010", "skipped", "0"),
        ("c013", "failed", "1"),
    ]
    assert "100% of {kv_cache}" in rows[2]["reasons"]


def test_many_cells_with_one_reason_stand_in_one_row(ct200_results: ResultSet) -> None:
    tex = fragment_of(ct200_results, "tab-exclusions").tex
    assert "skip & 36 &" in tex
    assert "recurrent-state leakage seen at TP1" in tex.replace(r"\allowbreak{}", "")


def test_marks_of_fragments_are_those_that_occur(small_results: ResultSet) -> None:
    assert fragment_of(small_results, "tab-main-single-tp1").marks == {Mark.SKIPPED, Mark.WITHIN_ONE_LAUNCH}
    assert fragment_of(small_results, "tab-concurrency-tp1").marks == {
        Mark.FAILED,
        Mark.NOT_CERTIFIED,
        Mark.WITHIN_ONE_LAUNCH,
        Mark.FLAGGED,
    }


def test_one_launch_has_no_interval_anywhere() -> None:
    texts = export_texts(results_of(ct200_run(launches=1, parallel=(1,))))
    assert r"[1" not in texts["tab-main-single-tp1.tex"].split(r"\midrule")[1].replace(r"\\[", "")
    assert "interval over launches" not in texts["main.tex"]


def test_a_turn_of_too_few_requests_has_no_median_of_a_time(small_results: ResultSet) -> None:
    """The floor is that of the latency table, which is blank for the whole conversation's 50th percentile below it."""
    (cell,) = [one for one in small_results.counted() if one.point.kind == "conversation" and one.method == "ar"]
    assert cell.figures is not None
    assert all(0 < turn.requests < 11 and turn.ttft is None for turn in cell.figures.turns)
    one = fragment_of(small_results, "tab-turns-calculator-tp1")
    group = one.tex.split("Time to first token (ms)")[1]
    assert group.count(r"{\textdagger{}}") == 2 * len(cell.figures.turns)
    assert Mark.NOT_CERTIFIED in one.marks
    assert {row["ttft_s"] for row in csv.DictReader(io.StringIO(one.csv))} == {""}


def test_a_column_without_any_time_between_chunks_is_left_out(small: SampleRun) -> None:
    files = {
        key: replace(file, requests=tuple(replace(one, chunk_gaps_us=(0, 0, 1000)) for one in file.requests))
        for key, file in small.attempts.items()
    }
    result = result_set(small.state, attempts_in_memory(files))
    assert all(cell.figures.chunk_gap is None for cell in result.counted() if cell.figures)
    assert "gap (ms)" not in fragment_of(result, "tab-latency-single-tp1").tex
