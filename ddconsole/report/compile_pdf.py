"""Makes the PDF with the TeX that is there, and says in one sentence why not where it cannot."""

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DEBIAN_PACKAGES = "texlive-latex-recommended texlive-pictures texlive-science lmodern"
"""What Debian and Ubuntu need for the document."""

DEADLINE = 300.0
"""Seconds of one TeX run: pgfplots takes a quarter of a second for each panel, and a large run has hundreds."""

_PACKAGE_OF_FILE = {
    "siunitx.sty": "texlive-science",
    "pgfplots.sty": "texlive-pictures",
    "tikz.sty": "texlive-pictures",
    "lmodern.sty": "lmodern",
}
"""Where it is not the first of `DEBIAN_PACKAGES`."""
_PACKAGE_OF_TOOL = {"pdflatex": "texlive-latex-base", "lualatex": "texlive-luatex", "latexmk": "latexmk"}
_FLAGS = ("-no-shell-escape", "-halt-on-error", "-interaction=nonstopmode", "-file-line-error")
_WIDEST_OVERFULL = 2.0
"""Points that a box may stick out without a warning."""

_ERROR = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+): (?P<text>.+)$", re.MULTILINE)
_PLAIN_ERROR = re.compile(r"^! (?P<text>.+)$", re.MULTILINE)
_FILE_NOT_FOUND = re.compile(r"File `(?P<name>[^']+)' not found")
_OVERFULL = re.compile(
    r"^Overfull \\(?P<box>[hv])box \((?P<points>[0-9.]+)pt too (?P<way>wide|high)\)(?P<where>.*)$", re.MULTILINE
)

_ASKS_FOR_ANOTHER = re.compile(r"^(LaTeX|Package \S+) Warning: .*Rerun ", re.MULTILINE | re.IGNORECASE)
_TOO_LONG = re.compile(r"Float too large for page by ([0-9.]+)pt")


@dataclass(frozen=True, slots=True)
class Compiled:
    """What came of it."""

    pdf: Path | None
    reason: str
    """Why there is no PDF, in one sentence; empty where there is one."""
    warnings: tuple[str, ...] = ()


def compile_pdf(
    folder: Path,
    progress: Callable[[str], None],
    *,
    document: str = "main",
    data_time: float = 0.0,
    deadline: float = DEADLINE,
    tool: str = "",
) -> Compiled:
    """Compile `<document>.tex` in `folder` without shell escape, and once more where LaTeX asks for it.

    Args:
        folder: where the document and its fragments are; TeX writes only here. The log stays when there is no PDF.
        progress: is told before each run.
        document: file name without its end.
        data_time: wall time that the PDF carries, so that the same document gives the same PDF.
        deadline: seconds for each run.
        tool: `pdflatex`, `lualatex` or `latexmk`; the first of them that is there where empty.
    """
    if tool and not shutil.which(tool):
        return Compiled(None, f"{tool} is not installed; on Debian: apt install {_PACKAGE_OF_TOOL.get(tool, tool)}")
    tool = tool or next((name for name in _PACKAGE_OF_TOOL if shutil.which(name)), "")
    if not tool:
        return Compiled(None, f"no TeX is installed; on Debian: apt install {DEBIAN_PACKAGES}")
    pdf, log = folder / f"{document}.pdf", folder / f"{document}.log"
    pdf.unlink(missing_ok=True)
    argv = [tool, *(("-pdf",) if tool == "latexmk" else ()), *_FLAGS, f"{document}.tex"]
    text = ""
    for run in range(1 if tool == "latexmk" else 2):
        progress(f"{tool}, run {run + 1}")
        problem = _run(argv, folder, data_time, deadline)
        text = _read(log)
        if problem is not None:
            return Compiled(None, f"{tool} {problem}: {error_sentence(text)}")
        if not _ASKS_FOR_ANOTHER.search(text):
            break
    if not pdf.is_file():
        return Compiled(None, f"{tool} ended without a PDF: {error_sentence(text)}")
    for end in (".aux", ".log"):
        (folder / f"{document}{end}").unlink(missing_ok=True)
    return Compiled(pdf, "", tuple(overfull_boxes(text)))


def error_sentence(log: str) -> str:
    """The first error of a TeX log with its file and line, or what to install where a file is missing."""
    if "module 'luaotfload-main' not found" in log:
        return "luaotfload is missing; on Debian: apt install texlive-luatex"
    lost = _FILE_NOT_FOUND.search(log)
    if lost is not None:
        name = lost["name"]
        return f"{name} is missing; on Debian: apt install {_PACKAGE_OF_FILE.get(name, 'texlive-latex-recommended')}"
    placed = _ERROR.search(log)
    if placed is not None:
        return f"{Path(placed['file']).name} line {placed['line']}: {placed['text'].strip()}"
    plain = _PLAIN_ERROR.search(log)
    return plain["text"].strip() if plain else "its log names no error"


def overfull_boxes(log: str) -> list[str]:
    """Boxes that stick out by more than two points, and tables that are longer than a page."""
    too_long = [f"a table or figure is {float(one):.0f} pt longer than a page" for one in _TOO_LONG.findall(log)]
    return too_long + [
        f"a line is {float(found['points']):.1f} pt too {found['way']}{found['where']}"
        for found in _OVERFULL.finditer(log)
        if float(found["points"]) > _WIDEST_OVERFULL
    ]


def _run(argv: Sequence[str], folder: Path, data_time: float, deadline: float) -> str | None:
    """Run TeX in a process group of its own; what went wrong, or None."""
    with subprocess.Popen(
        argv,
        cwd=folder,
        env=_environment(os.environ, data_time),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            code = process.wait(deadline)
        except BaseException as problem:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(problem, subprocess.TimeoutExpired):
                return f"did not end within {deadline:.0f} s and was stopped"
            raise
    return None if code == 0 else f"stopped with exit code {code}"


def _environment(ours: Mapping[str, str], data_time: float) -> dict[str, str]:
    """Long log lines, a reproducible PDF, and no writing outside the folder."""
    return {
        **ours,
        "max_print_line": "1000",
        "SOURCE_DATE_EPOCH": str(int(data_time)),
        "FORCE_SOURCE_DATE": "1",
        "openout_any": "p",
        "openin_any": "p",
    }


def _read(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
