"""Every mark and its line of the legend, read out of the PDF."""

from pathlib import Path

import pytest

from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.export import export_run
from ddconsole.report.marks import Mark
from tests.report.all_marks import run_with_every_mark
from tests.report.test_export import pages_of

IN_PLACE = ("fail", "OOM", "unfit", "skip", "pruned", "stop", "open", "excl")
BESIDE = (
    Mark.WITHIN_ONE_LAUNCH,
    Mark.SOME_FAILED,
    Mark.ESTIMATED_TOKENS,
    Mark.FLAGGED,
    Mark.NOT_CERTIFIED,
    Mark.NOT_IN_PLAN,
    Mark.INCOMPLETE,
)


@pytest.mark.tex
@pytest.mark.parametrize("simulated", [False, True])
def test_each_mark_and_its_legend_stand_in_the_pdf(tmp_path: Path, *, simulated: bool) -> None:
    sample = run_with_every_mark(simulated=simulated)
    report = export_run((sample.state, attempts_in_memory(sample.attempts)), tmp_path, lambda _: None)
    assert report.pdf_reason == ""
    assert [one for one in report.warnings if "too wide" in one or "too high" in one] == []
    pages = pages_of(tmp_path / "main.pdf")
    text = " ".join(" ".join(pages).split())
    legend = text.split("Marks", 1)[1].split("Output rate, speed-up and acceptance", 1)[0]
    tables = "".join(path.read_text() for path in tmp_path.glob("tab-main-*.tex"))
    for sign in IN_PLACE:
        assert f"{{c}}{{{sign}}}" in tables, sign
    expected = [mark for mark in Mark if mark.sign in IN_PLACE] + list(BESIDE)
    for mark in expected:
        assert " ".join(mark.legend.split()) in legend, mark
    assert all(("SIMULATED: not measured on hardware" in page) == simulated for page in pages)
    assert (Mark.SIMULATED.legend in legend) == simulated
    panels = sum(path.read_text().count("nextgroupplot") for path in tmp_path.glob("fig-*.tex"))
    assert text.count("SIMULATED") >= (panels if simulated else 0)


@pytest.mark.tex
def test_a_figure_says_why_a_bar_is_missing(tmp_path: Path) -> None:
    sample = run_with_every_mark()
    export_run((sample.state, attempts_in_memory(sample.attempts)), tmp_path, lambda _: None)
    figures = "".join(path.read_text() for path in tmp_path.glob("fig-bars-*.tex"))
    for sign in IN_PLACE:
        assert f"[{sign}]" in figures, sign
    text = " ".join(" ".join(pages_of(tmp_path / "main.pdf")).split())
    assert "Without figures: 1 skip, 1 unfit, 1 pruned of 6 cells." in text
