import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from arro3.io import read_parquet

from ddconsole.cli import main
from ddconsole.report.cell_fields import cell_fields
from ddconsole.report.markdown import markdown_text
from ddconsole.report.other_formats import FORMATS
from ddconsole.report.parquet import column_type, parquet_bytes
from ddconsole.report.result_set import ResultSet
from tests.report.hostile_names import BY_HAND
from tests.report.sample_runs import SampleRun


@pytest.fixture
def run(small: SampleRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    return small.write(tmp_path / "small")


def test_parquet_has_the_columns_of_the_csv_with_their_types(ct200_results: ResultSet) -> None:
    table = read_parquet(io.BytesIO(parquet_bytes(ct200_results))).read_all()
    rows = [cell_fields(ct200_results, cell) for cell in ct200_results.cells]
    assert table.column_names == list(rows[0])
    for name in table.column_names:
        assert table[name].to_pylist() == [row[name] for row in rows], name
    assert parquet_bytes(ct200_results) == parquet_bytes(ct200_results)
    kinds = {name: str(table.schema.field(name).type) for name in table.column_names}
    assert "Float64" in kinds["output_rate"]
    assert "Int64" in kinds["concurrency"]
    assert "Bool" in kinds["simulated"]
    assert "Utf8" in kinds["method"]


def test_a_column_that_nobody_knows_has_the_type_of_its_figure() -> None:
    assert column_type("output_rate", [None, None]) is float
    assert column_type("acceptance_steps", [None]) is int
    assert column_type("x", [1, 2.5, None]) is float
    assert column_type("simulated", [True, False]) is bool


def test_without_the_extra_it_is_named(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "arro3.io", None)
    assert main(["export", "small", "--format", "parquet", "--to", str(run / "x.parquet")]) == 2
    err = capsys.readouterr().err.splitlines()[-1]
    assert "pip install 'ddconsole[parquet]'" in err
    assert not (run / "x.parquet").exists()


def test_markdown_has_a_row_a_cell_and_says_what_is_missing(small_results: ResultSet) -> None:
    text = markdown_text(small_results)
    rows = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line][1:]
    assert len(rows) == len(small_results.cells)
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {11}
    first = rows[0].split(" | ")
    assert first[:4] == ["| ar", "generate", "c1", "64"]
    assert first[4].startswith("30.2 (")
    assert sum("| skip |" in row or "| fail |" in row for row in rows) == 2
    assert "- fail: failed" in text
    assert "SIMULATED" not in text


def test_markdown_of_a_simulated_run_says_so(ct200_results: ResultSet) -> None:
    assert "**SIMULATED" in markdown_text(ct200_results)


def test_names_from_outside_do_not_break_a_table(small_results: ResultSet) -> None:
    for name in BY_HAND:
        cells = tuple(replace(cell, method=name, reasons=(name,)) for cell in small_results.cells)
        text = markdown_text(replace(small_results, cells=cells, plan_name=name, run=name))
        rows = [line for line in text.splitlines() if line.startswith("| ")]
        assert len(rows) == len(cells) + 2
        assert {len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) for row in rows} == {11}, name
        assert not any(ord(one) < 32 and one != "\n" for one in text)


def test_every_format_takes_half_of_a_surrogate_pair(small_results: ResultSet) -> None:
    broken = replace(small_results, cells=(replace(small_results.cells[0], method="\ud800x"),))
    for one in FORMATS.values():
        assert b"x" in one.write(broken)


def test_the_command_writes_to_standard_output_to_a_file_and_into_a_folder(
    run: Path, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    assert main(["export", "small", "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capfdbinary.readouterr().out.decode())))
    assert [row["cell"] for row in rows] == [f"c{number:03}" for number in range(1, 15)]
    assert main(["export", "small", "--format", "jsonl", "--to", str(tmp_path / "made" / "cells.jsonl")]) == 0
    lines = (tmp_path / "made" / "cells.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 14
    assert main(["export", "small", "--format", "markdown", "--to", str(tmp_path / "made")]) == 0
    assert (tmp_path / "made" / "results.md").read_text().startswith("# demo")
    assert sorted(path.name for path in (tmp_path / "made").iterdir()) == [
        "MANIFEST.sha256",
        "cells.jsonl",
        "results.md",
    ]
    assert run.is_dir()


@pytest.mark.usefixtures("run")
def test_a_named_file_is_replaced_and_said_so_and_one_in_a_named_folder_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text("mine")
    assert main(["export", "small", "--format", "csv", "--to", str(mine)]) == 0
    assert f"exported to {mine}, replaced what was there" in capsys.readouterr().err
    assert main(["export", "small", "--format", "csv", "--to", str(mine)]) == 0
    assert "replaced what" not in capsys.readouterr().err
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "results.csv").write_text("mine")
    into = ["export", "small", "--format", "csv", "--to", str(folder)]
    assert main(into) == 0
    assert "results.csv was not written by an export: yours is kept as results.csv.yours" in capsys.readouterr().err
    assert (folder / "results.csv.yours").read_text() == "mine"
    assert main(into) == 0
    assert "kept" not in capsys.readouterr().err
    assert (folder / "results.csv").read_bytes() == mine.read_bytes()


@pytest.mark.usefixtures("run")
def test_a_device_is_written_and_not_replaced(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "small", "--format", "csv", "--to", "/dev/full"]) == 2
    assert "/dev/full: a device or pipe that takes nothing" in capfd.readouterr().err
    assert Path("/dev/full").is_char_device()
    assert main(["export", "small", "--format", "csv", "--to", "/dev/null"]) == 0


@pytest.mark.usefixtures("run")
def test_what_cannot_be_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "small"]) == 2
    assert "name it with --to DIR" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main(["export", "small", "--format", "csv", "--to", str(tmp_path / "file" / "x.csv")]) == 2
    assert capsys.readouterr().err.endswith("file: a file is there, not a folder; name another folder\n")
