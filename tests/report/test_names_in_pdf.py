"""Names and values from anywhere, compiled by both engines: what is read out of the PDF is what was folded."""

import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from ddconsole.report.compile_pdf import compile_pdf
from ddconsole.report.export import preamble_text
from ddconsole.report.latex_text import folded, latex_text, number_text
from tests.report.hostile_names import dataset_of_names

BATCH = 1000


def values_of(number: int) -> list[str]:
    """Numbers as tables have them, always the same: of every size, sign and number of decimals."""
    dice = random.Random(11)
    return [
        number_text(dice.choice((-1, 1)) * 10 ** dice.uniform(-3, 6) * dice.random(), dice.randint(0, 4))
        for _ in range(number)
    ]


def read_back(folder: Path, tool: str, names: Sequence[str], values: Sequence[str], *, breakable: bool) -> str:
    """The text of a PDF with these names in paragraphs and cells, and these values in number columns."""
    lines = "".join(
        f"B{number}B {latex_text(name, breakable=breakable)} E{number}E\\par\n" for number, name in enumerate(names)
    )
    table = "".join(
        f"x & {latex_text(name)} \\\\\n{latex_text(name)} & y \\\\\n" for name in names[:40] if len(name) < 60
    )
    numbers = "".join(f"V{number}V & {value} & W{number}W \\\\\n" for number, value in enumerate(values))
    (folder / "ddconsole-preamble.tex").write_text(preamble_text(), encoding="ascii")
    (folder / "main.tex").write_text(
        "\\documentclass{article}\\input{ddconsole-preamble}\\usepackage{longtable}"
        "\\usepackage[paperwidth=180cm,margin=1cm]{geometry}"
        f"\\begin{{document}}\n{lines}\n\\clearpage\\begin{{tabular}}{{ll}}{table}\\end{{tabular}}\\clearpage"
        f"\\begin{{longtable}}{{lS[table-format=-7.4]l}}{numbers}\\end{{longtable}}\\end{{document}}",
        encoding="ascii",
    )
    compiled = compile_pdf(folder, lambda _: None, tool=tool)
    assert compiled.reason == ""
    return subprocess.run(
        ["pdftotext", "-layout", "-enc", "UTF-8", folder / "main.pdf", "-"], capture_output=True, check=True, text=True
    ).stdout


def check(text: str, names: Sequence[str], values: Sequence[str]) -> None:
    found = dict(re.findall(r"B(\d+)B(.*?)E\1E", text, re.DOTALL))
    assert len(found) == len(names)
    for number, name in enumerate(names):
        assert "".join(found[str(number)].split()) == "".join(folded(name).split()), name
    numbers = re.findall(r"V(\d+)V\s+(\S+)\s+W\1W", text)
    # The minus sign of a number column is the typographic one.
    assert [value.replace("\u2212", "-").replace("\u2013", "-") for _, value in numbers] == list(values)


@pytest.mark.tex
@pytest.mark.parametrize(("tool", "breakable"), [("pdflatex", False), ("pdflatex", True), ("lualatex", False)])
def test_hostile_names_compile_and_read_as_folded(tool: str, tmp_path: Path, *, breakable: bool) -> None:
    names, values = dataset_of_names(), values_of(300)
    check(read_back(tmp_path, tool, names, values, breakable=breakable), names, values)


@pytest.mark.tex
@pytest.mark.trial
@pytest.mark.parametrize("tool", ["pdflatex", "lualatex"])
@pytest.mark.timeout(600)
def test_ten_thousand_names_and_values(tool: str, tmp_path: Path) -> None:
    names, values = dataset_of_names(10_000), values_of(10_000)
    for first in range(0, len(names), BATCH):
        folder = tmp_path / str(first)
        folder.mkdir()
        some = names[first : first + BATCH], values[first : first + BATCH]
        check(read_back(folder, tool, *some, breakable=bool(first % (2 * BATCH))), *some)
