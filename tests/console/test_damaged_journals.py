"""A run whose journal is empty or damaged: named as such, never taken for the newest run or for one that runs."""

import os
import shutil
from pathlib import Path

import pytest

from ddconsole.cli import main

TESTS = Path(__file__).resolve().parents[1]


@pytest.fixture(name="runs")
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A good run, and beside it two younger ones: one with an empty journal, one damaged in its first line."""
    whole = (TESTS / "fixtures" / "runs" / "0.1.0" / "journal.jsonl").read_bytes()
    journals = {"good": whole, "empty": b"", "broken": b"x" + whole}
    for age, (name, journal) in enumerate(reversed(journals.items())):
        (tmp_path / name).mkdir()
        (tmp_path / name / "journal.jsonl").write_bytes(journal)
        os.utime(tmp_path / name / "journal.jsonl", (1e9 - age, 1e9 - age))
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    return tmp_path


def test_runs_lists_them_last_and_says_what_is_wrong(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("good  ")
    assert lines[1:] == ["broken  journal damaged at line 1", "empty  journal empty"]


def test_status_and_verbs_without_a_name_take_the_newest_run_that_says_something(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--short"]) == 0
    assert capsys.readouterr().out.startswith("good ")
    assert main(["cells"]) == 0
    assert capsys.readouterr().out.startswith("good  ")


@pytest.mark.parametrize("verb", ["cells", "logs", "servers", "debts", "export", "pause", "attach", "attach --offline"])
@pytest.mark.parametrize(("run", "trouble"), [("empty", "journal empty"), ("broken", "journal damaged at line 1")])
def test_a_verb_says_what_is_wrong(
    runs: Path, verb: str, run: str, trouble: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb.split(), run]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"ddconsole: {run}: {trouble}")
    assert str(runs / run) in said.err


def test_a_run_that_is_damaged_later_is_shown_up_to_there(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (runs / "good" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    shutil.rmtree(runs / "broken")
    (runs / "good" / "journal.jsonl").write_bytes(b"".join([*lines[:-2], b"x\n", lines[-1]]))
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0].endswith(f"journal damaged at line {len(lines) - 1}")
    assert main(["cells", "good"]) == 0
    assert f"journal damaged at line {len(lines) - 1}" in capsys.readouterr().err
