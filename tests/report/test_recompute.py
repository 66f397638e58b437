"""The script of an export makes the numbers of the tables again, from the request records and by itself."""

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ddconsole.report.export import export_run
from tests.report.all_marks import run_with_every_mark
from tests.report.sample_runs import SampleRun, ct200_run

FROZEN = Path(__file__).parents[1] / "fixtures/runs/0.1.0"
SCRIPT = Path(__file__).parents[2] / "ddconsole/report/recompute.py"


def recomputed(run: Path, export: Path) -> subprocess.CompletedProcess[str]:
    """Isolated: neither our packages nor any other can be imported."""
    argv = [sys.executable, "-I", "-S", str(export / "recompute.py"), str(run)]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/")


def exported(sample: SampleRun, folder: Path) -> tuple[Path, Path]:
    run, export = sample.write(folder / "run"), folder / "report"
    export_run(run, export, lambda _: None, make_pdf=False)
    return run, export


def test_it_imports_the_standard_library_only() -> None:
    tree = ast.parse(SCRIPT.read_text())
    imported = {one.names[0].name for one in ast.walk(tree) if isinstance(one, ast.Import)}
    imported |= {one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


@pytest.mark.parametrize("which", ["small", "one-launch", "every-mark"])
def test_every_number_of_the_tables_is_made_again(which: str, small: SampleRun, tmp_path: Path) -> None:
    samples = {"small": lambda: small, "every-mark": run_with_every_mark}
    sample = samples.get(which, lambda: ct200_run(launches=1, parallel=(1, 4)))()
    run, export = exported(sample, tmp_path)
    done = recomputed(run, export)
    assert done.returncode == 0, done.stdout + done.stderr
    told = re.search(r"([0-9]+) numbers of ([0-9]+) tables made again from the request records, 0 differ", done.stdout)
    assert told is not None
    assert int(told[1]) > 100


def test_intervals_over_three_launches_are_made_again(tmp_path: Path) -> None:
    run, export = exported(ct200_run(launches=3, parallel=(4,)), tmp_path)
    done = recomputed(run, export)
    assert done.returncode == 0, done.stdout + done.stderr
    typeset = (export / "tab-main-single-tp4.tex").read_text()
    assert len(re.findall(r"\[[0-9.]+, [0-9.]+\]", typeset)) > 20


def test_a_frozen_run_is_made_again(tmp_path: Path) -> None:
    export_run(FROZEN, tmp_path, lambda _: None, make_pdf=False)
    done = recomputed(FROZEN, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("table", "number", "changed", "said"),
    [
        ("tab-main-single-tp1", "30.2", "30.3", "c001 rate: typeset 30.3, made again 30.2381"),
        ("tab-main-single-tp1", "(0.7)", "(0.8)", "c001 rate spread: typeset 0.8"),
        ("tab-latency-single-tp1", "62.7", "62.9", "c001 TTFT (ms) p50: typeset 62.9"),
        ("tab-turns-calculator-tp1", "1.00", "1.01", "c007"),
    ],
)
def test_a_number_that_was_changed_is_found(
    table: str, number: str, changed: str, said: str, small: SampleRun, tmp_path: Path
) -> None:
    run, export = exported(small, tmp_path)
    path = export / f"{table}.tex"
    head, body = path.read_text().split(r"\midrule", 1)
    assert number in body
    path.write_text(head + r"\midrule" + body.replace(number, changed, 1))
    done = recomputed(run, export)
    assert done.returncode == 1
    assert f"{table}.tex {said}" in done.stdout


def test_a_run_that_is_not_there_is_said_so(small: SampleRun, tmp_path: Path) -> None:
    run, export = exported(small, tmp_path)
    shutil.rmtree(run)
    done = recomputed(run, export)
    assert done.returncode == 2
    assert "usage: python3 recompute.py RUN_DIRECTORY" in done.stderr
