import errno
import hashlib
import json
import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ddconsole.core import events as ev
from ddconsole.core.sweep import Cell, Deployment, Placement, Speculative
from ddconsole.report.attempt_reader import attempts_in_memory
from ddconsole.report.compile_pdf import compile_pdf, error_sentence, overfull_boxes
from ddconsole.report.export import export_run, export_texts
from ddconsole.report.export_place import ExportFailed, cannot_write
from ddconsole.report.result_set import ResultSet
from tests.report.conftest import results_of
from tests.report.hostile_names import BY_HAND
from tests.report.sample_runs import (
    SampleRun,
    begin,
    closed_loop,
    conversation,
    ct200_run,
    measure,
    single,
    start_launch,
)


def pages_of(pdf: Path) -> list[str]:
    text = subprocess.run(["pdftotext", "-layout", pdf, "-"], capture_output=True, check=True, text=True).stdout
    return text.split("\f")[:-1]


def test_the_same_results_give_the_same_bytes(small: SampleRun, tmp_path: Path) -> None:
    folder = small.write(tmp_path / "run")
    first = export_run(folder, tmp_path / "a", lambda _: None, make_pdf=False)
    in_memory = (small.state, attempts_in_memory(small.attempts))
    second = export_run(in_memory, tmp_path / "b", lambda _: None, make_pdf=False)
    assert first.warnings == ()
    assert [path.name for path in first.files] == [path.name for path in second.files]
    assert [path.read_bytes() for path in first.files] == [path.read_bytes() for path in second.files]


def test_names_are_plain_files_are_ascii_and_the_manifest_holds(small: SampleRun, tmp_path: Path) -> None:
    report = export_run((small.state, attempts_in_memory(small.attempts)), tmp_path, lambda _: None, make_pdf=False)
    assert (report.pdf, report.pdf_reason) == (None, "not asked for")
    lines = (tmp_path / "MANIFEST.sha256").read_text().splitlines()
    listed = {line.split("  ")[1]: line.split("  ")[0] for line in lines}
    assert {path.name for path in report.files} == {*listed, "MANIFEST.sha256"}
    for name, digest in listed.items():
        raw = (tmp_path / name).read_bytes()
        assert hashlib.sha256(raw).hexdigest() == digest
        assert re.fullmatch(r"[a-z0-9-]+\.(tex|csv|jsonl|py)", name)
        assert raw.isascii() or name.endswith(("csv", "jsonl"))
        if name.endswith(".tex") and not name.startswith("ddconsole-"):
            head = raw.decode().splitlines()[:4]
            assert head[0].startswith("% ddconsole ")
            assert head[1] == "% plan sha256 " + "5e" * 32
            assert head[2].startswith("% result set sha256 ")
            assert head[3] == "% data of 2026-09-21T14:22:11Z"


def test_a_second_export_removes_only_what_the_first_made(ct200: SampleRun, tmp_path: Path) -> None:
    source = (ct200.state, attempts_in_memory(ct200.attempts))
    export_run(source, tmp_path, lambda _: None, make_pdf=False)
    (tmp_path / "paper.tex").write_text("mine")
    (tmp_path / "tab-main-single-tp8.tex").write_text("changed by hand")
    one = ct200_run(launches=1, parallel=(1,))
    export_run((one.state, attempts_in_memory(one.attempts)), tmp_path, lambda _: None, make_pdf=False)
    names = {path.name for path in tmp_path.iterdir()}
    assert "tab-main-single-tp4.tex" not in names
    assert {"paper.tex", "tab-main-single-tp8.tex", "tab-main-single-tp1.tex"} <= names


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        ("one.csv", "one.csv: a file is there, not a folder; name another folder"),
        ("one.csv/deep/er", "one.csv: a file is there, not a folder; name another folder"),
        ("nowhere", "nowhere: a link to nothing is there, not a folder"),
        ("/dev/full", "/dev/full: a device or pipe is there, not a folder"),
        ("/proc/x", "/proc/x: .*; name another folder"),
    ],
)
def test_a_place_that_is_no_folder_is_told_before_the_figures_are_made(
    place: str, wrong: str, small: SampleRun, tmp_path: Path
) -> None:
    (tmp_path / "one.csv").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    told: list[str] = []
    with pytest.raises(ExportFailed, match=wrong) as failed:
        export_run((small.state, attempts_in_memory(small.attempts)), tmp_path / place, told.append)
    assert told == []
    assert "free space" not in str(failed.value)
    assert (tmp_path / "one.csv").read_text() == "mine"


def test_a_full_disk_is_told_to_be_freed_and_a_read_only_one_is_not(tmp_path: Path) -> None:
    full, read_only = (OSError(number, os.strerror(number)) for number in (errno.ENOSPC, errno.EROFS))
    assert "free space or name another folder" in str(cannot_write(tmp_path, full, "folder"))
    assert str(cannot_write(tmp_path, read_only, "folder")).endswith(
        "its file system is read-only; name another folder"
    )


def test_what_is_not_ours_and_what_was_changed_is_kept_and_named(small: SampleRun, tmp_path: Path) -> None:
    source = (small.state, attempts_in_memory(small.attempts))
    elsewhere = tmp_path / "elsewhere.csv"
    elsewhere.write_text("mine")
    to = tmp_path / "paper"
    to.mkdir()
    for name in ("main.tex", "main.pdf", "MANIFEST.sha256"):
        (to / name).write_text(f"my {name}")
    (to / "results.csv").symlink_to(elsewhere)
    first = export_run(source, to, lambda _: None, make_pdf=False)
    assert len(first.kept) == 4
    assert set(first.kept) <= set(first.warnings)
    assert "main.tex was not written by an export: yours is kept as main.tex.yours" in first.kept
    for name in ("main.tex", "main.pdf", "MANIFEST.sha256"):
        assert (to / f"{name}.yours").read_text() == f"my {name}"
    assert elsewhere.read_text() == "mine"
    assert export_run(source, to, lambda _: None, make_pdf=False).kept == ()
    made = (to / "main.tex").read_bytes()
    (to / "main.tex").write_text("edited")
    again = export_run(source, to, lambda _: None, make_pdf=False)
    assert again.kept == ("main.tex was changed since it was exported: yours is kept as main.tex.yours-2",)
    assert (to / "main.tex.yours-2").read_text() == "edited"
    assert (to / "main.tex").read_bytes() == made


def test_the_pdf_of_a_document_that_was_changed_is_kept(small: SampleRun, tmp_path: Path) -> None:
    source = (small.state, attempts_in_memory(small.attempts))
    export_run(source, tmp_path, lambda _: None, make_pdf=False)
    (tmp_path / "main.pdf").write_text("of the document as it was")
    assert export_run(source, tmp_path, lambda _: None, make_pdf=False).kept == ()
    (tmp_path / "main.tex").write_text("edited")
    export_run(source, tmp_path, lambda _: None, make_pdf=False)
    assert (tmp_path / "main.pdf.yours").is_file()


def test_jsonl_has_one_line_a_cell(small_results: ResultSet) -> None:
    lines = [json.loads(line) for line in export_texts(small_results)["results.jsonl"].splitlines()]
    assert [line["cell"] for line in lines] == [f"c{number:03}" for number in range(1, 15)]
    assert lines[0]["output_rate"] == pytest.approx(30.238, abs=0.001)
    assert (lines[9]["output_rate"], lines[9]["state"], lines[9]["simulated"]) == (None, "skipped", False)
    assert {line["result_set_sha256"] for line in lines} == {small_results.sha256}


@pytest.mark.tex
@pytest.mark.parametrize(
    ("which", "tool"),
    [
        ("small", "pdflatex"),
        ("small", "lualatex"),
        ("ct200-tp1", "pdflatex"),
        pytest.param("ct200", "pdflatex", marks=[pytest.mark.trial, pytest.mark.timeout(600)]),
        pytest.param("ct200", "lualatex", marks=[pytest.mark.trial, pytest.mark.timeout(600)]),
        pytest.param("ct200-one-launch", "lualatex", marks=[pytest.mark.trial, pytest.mark.timeout(600)]),
    ],
)
def test_documents_compile_without_a_box_that_sticks_out(
    which: str, tool: str, small: SampleRun, ct200: SampleRun, tmp_path: Path
) -> None:
    others = {"small": small, "ct200": ct200}
    sample = others.get(which) or ct200_run(launches=1, parallel=(1,) if which == "ct200-tp1" else (1, 4, 8))
    told: list[str] = []
    report = export_run((sample.state, attempts_in_memory(sample.attempts)), tmp_path, told.append, tool=tool)
    assert report.pdf_reason == ""
    assert report.warnings == ()
    assert report.pdf == tmp_path / "main.pdf"
    assert told[-1] == f"{tool}, run 1"
    pages = pages_of(report.pdf)
    assert len(pages) >= 6
    simulated = which != "small"
    assert all(("SIMULATED: not measured on hardware" in page) == simulated for page in pages)
    assert not (tmp_path / "main.aux").exists()
    assert "??" not in "".join(pages)


@pytest.mark.tex
def test_the_same_document_gives_the_same_pdf(small: SampleRun, tmp_path: Path) -> None:
    source = (small.state, attempts_in_memory(small.attempts))
    pdfs = [export_run(source, tmp_path / name, lambda _: None).pdf for name in ("a", "b")]
    assert pdfs[0] is not None
    assert pdfs[1] is not None
    assert pdfs[0].read_bytes() == pdfs[1].read_bytes()


@pytest.mark.tex
def test_the_document_says_what_was_run_and_explains_the_marks_that_occur(small: SampleRun, tmp_path: Path) -> None:
    report = export_run((small.state, attempts_in_memory(small.attempts)), tmp_path, lambda _: None)
    assert report.pdf is not None
    text = " ".join(" ".join(pages_of(report.pdf)).split())
    assert "Of 14 cells, 12 have figures" in text
    assert "on 1 launch a cell" in text
    assert "Left out: 1 cell left out by the plan or by the operator; 1 cell failed." in text
    assert "closed loop: a fixed number of clients" in text
    legend = text.split("Marks")[1].split("Output rate, speed-up and acceptance")[0]
    assert "within one launch" in legend
    assert "too few requests" in legend
    for absent in ("too large", "out of memory", "estimated", "pruned", "hardware"):
        assert absent not in legend


@pytest.mark.tex
def test_fragments_stand_in_another_document_in_another_folder(small: SampleRun, tmp_path: Path) -> None:
    export = tmp_path / "export"
    report = export_run((small.state, attempts_in_memory(small.attempts)), export, lambda _: None, make_pdf=False)
    paper = tmp_path / "paper"
    paper.mkdir()
    names = sorted(path.stem for path in report.files if re.match(r"(tab|fig)-.*\.tex", path.name))
    inputs = "\n\n".join(rf"\input{{../export/{name}}}" for name in names)
    (paper / "main.tex").write_text(
        rf"\documentclass{{article}}\input{{../export/ddconsole-preamble}}\input{{../export/results-macros}}"
        rf"\begin{{document}}{inputs} Rate: \ddcRateNgramTpOneGenerateCOneLSixFour.\end{{document}}"
    )
    done = subprocess.run(
        ["pdflatex", "-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "main.tex"],
        cwd=paper,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-800:]
    assert "Rate: 39.5." in " ".join(pages_of(paper / "main.pdf"))


@pytest.mark.tex
def test_the_macro_of_a_missing_number_stops_latex_and_says_which(small_results: ResultSet, tmp_path: Path) -> None:
    (tmp_path / "results-macros.tex").write_text(export_texts(small_results)["results-macros.tex"])
    (tmp_path / "main.tex").write_text(
        r"\documentclass{article}\input{results-macros}\begin{document}"
        "\n"
        r"\ddcRateNgramTpOneConcurrencyCFourLSixFour\end{document}"
    )
    compiled = compile_pdf(tmp_path, lambda _: None)
    assert compiled.pdf is None
    assert "main.tex line 2: Package ddconsole Error: No number for Rate of ngram TP1 concurrency c4" in compiled.reason
    assert "c013 is failed" in compiled.reason


def test_macro_names_are_letters_and_different(ct200_results: ResultSet) -> None:
    names = re.findall(r"\\newcommand\{\\([^}]*)\}", export_texts(ct200_results)["results-macros.tex"])
    assert len(names) == 216 * 5
    assert len(set(names)) == len(names)
    assert all(name.isalpha() and name.isascii() for name in names)


def hostile_run() -> SampleRun:
    """A run in which every name and message is hostile."""
    sample = SampleRun()
    names = ["ar", *BY_HAND[::2]]
    deployments = [
        Deployment(f"d{number:02}", name, 1, 4, {}, {}, Placement(), Speculative("^^5c$", budget=number + 8))
        for number, name in enumerate(names)
    ]
    points = [replace(single(64, 1), workload=BY_HAND[1]), replace(single(128, 1), workload=BY_HAND[23])]
    points += [replace(closed_loop(2, 64), workload=BY_HAND[6]), replace(conversation("s", "w", 64), workload="%")]
    cells = [
        Cell(f"c{number * len(points) + place:03}", deployment.id, point)
        for number, deployment in enumerate(deployments)
        for place, point in enumerate(points)
    ]
    begin(sample, deployments, cells, run="r\n\\end{document}", plan_name=BY_HAND[5], host=BY_HAND[10], baseline="ar")
    for number, deployment in enumerate(deployments, start=1):
        start_launch(sample, number, deployment, 1)
        for cell in cells:
            if cell.deployment == deployment.id and cell.point.concurrency == 2 and number % 3 == 0:
                text = BY_HAND[number % len(BY_HAND)]
                sample.tell(
                    ev.AttemptStarted(cell.id, 1, number, 1, 0), ev.AttemptFailed(cell.id, 1, number, "X", text)
                )
            elif cell.deployment == deployment.id:
                measure(sample, cell, deployment, 1, number, 1, flags=(BY_HAND[-number],) if number % 5 == 0 else ())
    return sample


@pytest.mark.tex
def test_a_run_of_hostile_names_compiles_and_nothing_sticks_out(tmp_path: Path) -> None:
    sample = hostile_run()
    report = export_run((sample.state, attempts_in_memory(sample.attempts)), tmp_path, lambda _: None)
    assert report.pdf_reason == ""
    lost = [one for one in report.warnings if one.startswith("LaTeX shows")]
    assert len(lost) == 1
    assert "<U+1F600>" in lost[0]
    assert [one for one in report.warnings if "too wide" in one or "too high" in one] == []
    text = "".join("".join(pages_of(tmp_path / "main.pdf")).split())
    assert r"\input{/etc/passwd}" in text
    assert "root:" not in text


def test_a_run_without_any_figures_still_makes_a_document(tmp_path: Path) -> None:
    sample = SampleRun()
    deployment = Deployment("d01", "ar", 1, 1, {}, {}, Placement())
    begin(sample, [deployment], [Cell("c001", "d01", single(64))])
    texts = export_texts(results_of(sample))
    assert "Of 1 cell, 0 have figures" in texts["main.tex"]
    assert "open & 1 &" in texts["tab-exclusions.tex"]


@pytest.mark.tex
def test_a_document_of_a_run_without_figures_compiles(tmp_path: Path) -> None:
    sample = SampleRun()
    begin(sample, [Deployment("d01", "ar", 1, 1, {}, {}, Placement())], [Cell("c001", "d01", single(64))])
    report = export_run((sample.state, attempts_in_memory(sample.attempts)), tmp_path, lambda _: None)
    assert report.pdf_reason == ""


def test_no_tex_names_the_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    compiled = compile_pdf(tmp_path, lambda _: None)
    assert compiled.pdf is None
    assert "apt install texlive-latex-recommended texlive-pictures texlive-science lmodern" in compiled.reason


def test_a_tex_that_hangs_is_ended_with_all_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "pdflatex"
    tool.write_text("#!/bin/sh\n/bin/sleep 600 &\necho $! > child\nwait\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    compiled = compile_pdf(tmp_path, lambda _: None, deadline=0.5)
    assert "did not end within" in compiled.reason
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if _is_gone(child):
            break
        time.sleep(0.05)
    assert _is_gone(child)


def _is_gone(pid: int) -> bool:
    """No such process, or one that nobody has reaped: the kernel ends a killed one in its own time."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("./main.tex:12: Undefined control sequence.\nl.12 \\foo", "main.tex line 12: Undefined control sequence."),
        (
            "! File `siunitx.sty' not found.",
            "siunitx.sty is missing; on Debian: apt install texlive-science",
        ),
        (
            "[\\directlua]:1: module 'luaotfload-main' not found:",
            "luaotfload is missing; on Debian: apt install texlive-luatex",
        ),
        ("! Emergency stop.", "Emergency stop."),
        ("", "its log names no error"),
    ],
)
def test_errors_become_one_sentence(log: str, sentence: str) -> None:
    assert error_sentence(log) == sentence


def test_boxes_up_to_two_points_are_let_be() -> None:
    log = "Overfull \\hbox (1.9pt too wide) in x\nOverfull \\hbox (2.5pt too wide) in alignment at lines 3--9\n"
    assert overfull_boxes(log) == ["a line is 2.5 pt too wide in alignment at lines 3--9"]


@pytest.mark.tex
def test_tex_cannot_read_outside_and_has_no_shell(tmp_path: Path) -> None:
    outside = tmp_path / "secret.tex"
    outside.write_text("SECRET")
    folder = tmp_path / "export"
    folder.mkdir()
    (folder / "main.tex").write_text(
        rf"\documentclass{{article}}\begin{{document}}\immediate\write18{{touch {folder}/made}}"
        r"\input{../secret}\end{document}"
    )
    compiled = compile_pdf(folder, lambda _: None)
    assert compiled.pdf is None
    assert not (folder / "made").exists()


@pytest.mark.tex
def test_a_style_of_ones_own_changes_the_figures_and_outlives_an_export(small: SampleRun, tmp_path: Path) -> None:
    source = (small.state, attempts_in_memory(small.attempts))
    style = tmp_path / "ddconsole-own-style.tex"
    style.write_text("\\pgfplotsset{ddc axis/.append style={xlabel={OWNSTYLE}}}\n")
    report = export_run(source, tmp_path, lambda _: None)
    assert report.pdf is not None
    assert "OWNSTYLE" in "".join(pages_of(report.pdf))
    assert style.exists()
