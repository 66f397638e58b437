import csv
import io
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from ddconsole.cli import main
from ddconsole.compare.comparison import Comparison, compare
from ddconsole.compare.facts import NO_FILES
from ddconsole.compare.latex import comparison_texts, export_comparison
from ddconsole.compare.side import side_of
from ddconsole.report.attempt_reader import attempts_in_memory
from tests.compare.changed_runs import Recipe, made
from tests.compare.test_compare_runs import CHANGED, FIRST
from tests.report.conftest import pytest_runtest_setup
from tests.report.hostile_names import BY_HAND

__all__ = ["pytest_runtest_setup"]  # a TeX that is missing skips these too, and fails in CI


def comparison_of(first: Recipe, second: Recipe) -> Comparison:
    runs = (made(first), made(second))
    return compare(*(side_of(one.state, attempts_in_memory(one.attempts), NO_FILES) for one in runs))


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return comparison_of(FIRST, replace(CHANGED, failing=("c003",)))


def pages(pdf: Path) -> str:
    done = subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, check=True, text=True)
    return " ".join(done.stdout.split())


def test_the_twins_hold_every_cell_in_full_precision(comparison: Comparison) -> None:
    texts = comparison_texts(comparison, "output_rate")
    rows = list(csv.DictReader(io.StringIO(texts["fig-compare.csv"])))
    differences = comparison.compared("output_rate").differences
    assert [float(row["ratio"]) for row in rows] == [one.ratio.value for one in differences]
    assert [row["verdict"] for row in rows] == [one.verdict.value for one in differences]
    changes = list(csv.DictReader(io.StringIO(texts["tab-compare-changes.csv"])))
    assert [row["what"] for row in changes] == ["driver", "attention_backend"]
    (lost,) = csv.DictReader(io.StringIO(texts["tab-compare-one-sided.csv"]))
    assert (lost["measured_in"], lost["lost"]) == ("A", "true")


def test_files_are_ascii_and_the_same_twice(comparison: Comparison) -> None:
    texts = comparison_texts(comparison, "output_rate")
    assert texts == comparison_texts(comparison, "output_rate")
    assert all(text.isascii() for name, text in texts.items() if name.endswith(".tex"))


@pytest.mark.tex
def test_the_document_compiles_and_says_what_changed(comparison: Comparison, tmp_path: Path) -> None:
    report = export_comparison(comparison, "output_rate", tmp_path, lambda _: None)
    assert report.pdf_reason == ""
    assert report.warnings == ()
    assert report.pdf == tmp_path / "compare.pdf"
    text = pages(report.pdf)
    for words in ("580.95.05 580.105.08", "attention_backend triton flashinfer all servers", "CUDA out of memory"):
        assert words in text
    assert "of 23 cells that both have: " in text


@pytest.mark.tex
def test_runs_of_hostile_names_compile(tmp_path: Path) -> None:
    names = ("ar", BY_HAND[1], BY_HAND[6])
    first = Recipe(run=BY_HAND[5], methods=names, sizes=(1,), args={BY_HAND[10]: BY_HAND[2]})
    second = replace(
        first, run=BY_HAND[23], args={BY_HAND[10]: BY_HAND[3]}, driver=BY_HAND[7], noise=1, slower={names[1]: 0.9}
    )
    report = export_comparison(comparison_of(first, second), "output_rate", tmp_path, lambda _: None)
    assert report.pdf_reason == ""
    assert report.warnings == ()


@pytest.mark.tex
def test_a_comparison_in_which_nothing_changed_compiles(tmp_path: Path) -> None:
    report = export_comparison(comparison_of(FIRST, FIRST), "ttft", tmp_path, lambda _: None)
    assert report.pdf is not None
    assert "Nothing else is different between the two runs." in pages(report.pdf)


def test_the_command_writes_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDCONSOLE_RUNS", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    made(FIRST).write(tmp_path / "first")
    assert main(["compare", "first", "first", "--latex", str(tmp_path / "out")]) == 0
    assert {"compare.tex", "fig-compare.tex", "tab-compare-servers.csv", "MANIFEST.sha256"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    (tmp_path / "file").write_text("")
    assert main(["compare", "first", "first", "--latex", str(tmp_path / "file")]) == 2
