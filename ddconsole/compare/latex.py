"""A comparison as a folder: LaTeX tables and a figure with their CSV twins, a document that shows them, its PDF."""

from collections.abc import Callable, Iterator
from pathlib import Path

from ddconsole.compare.comparison import Compared, Comparison
from ddconsole.compare.differences import Verdict
from ddconsole.compare.figure import comparison_figures
from ddconsole.compare.tables import (
    cell_tables,
    change_tables,
    comparison_header,
    one_sided_tables,
    server_tables,
)
from ddconsole.compare.text import side_text
from ddconsole.report.compile_pdf import compile_pdf
from ddconsole.report.export import ExportReport, preamble_text
from ddconsole.report.export_place import write_texts
from ddconsole.report.fragment import Fragment, fill, utc
from ddconsole.report.latex_text import latex_text

DOCUMENT = "compare"


def export_comparison(
    comparison: Comparison, figure: str, to: Path, progress: Callable[[str], None], *, make_pdf: bool = True
) -> ExportReport:
    """Write the tables and the figure of one figure's comparison into `to`, and compile them where TeX is there.

    Args:
        comparison: the two runs.
        figure: the id of the figure.
        to: a folder, made if need be.
        progress: is told what is being done, one short line at a time.
        make_pdf: compile the document.

    Raises:
        ExportFailed: the folder cannot be written.
    """
    progress("writing tables and figures")
    files, kept = write_texts(to, comparison_texts(comparison, figure), DOCUMENT)
    if not make_pdf:
        return ExportReport(files, kept, None, "not asked for", kept)
    data_time = max(comparison.before.data_time, comparison.after.data_time)
    compiled = compile_pdf(to, progress, document=DOCUMENT, data_time=data_time)
    return ExportReport(files, (*kept, *compiled.warnings), compiled.pdf, compiled.reason, kept)


def comparison_texts(comparison: Comparison, figure: str) -> dict[str, str]:
    """Every file by its name, without the manifest. TeX files are ASCII."""
    fragments = list(_fragments(comparison, comparison.compared(figure)))
    texts = {f"{one.name}.tex": one.tex for one in fragments}
    texts |= {f"{one.name}.csv": one.csv for one in fragments}
    texts["ddconsole-preamble.tex"] = preamble_text()
    texts[f"{DOCUMENT}.tex"] = _document(comparison, comparison.compared(figure), fragments)
    return dict(sorted(texts.items()))


def _fragments(comparison: Comparison, compared: Compared) -> Iterator[Fragment]:
    yield from change_tables(comparison)
    yield from comparison_figures(comparison, compared)
    yield from server_tables(comparison, compared)
    yield from cell_tables(comparison, compared)
    yield from one_sided_tables(comparison)


def _document(comparison: Comparison, compared: Compared, fragments: list[Fragment]) -> str:
    floats = [
        {"kind": "figure" if one.is_figure else "table", "name": one.name, "caption": one.caption} for one in fragments
    ]
    return fill(
        "compare-document.tex.j2",
        header=comparison_header(comparison),
        subtitle=latex_text(f"{comparison.before.run} and {comparison.after.run}", breakable=True),
        simulated=comparison.simulated,
        sentences=list(_sentences(comparison, compared)),
        floats=floats,
    )


def _sentences(comparison: Comparison, compared: Compared) -> Iterator[str]:
    for name, side in (("A", comparison.before), ("B", comparison.after)):
        yield _prose(f"{name} is run {side.run}: {side_text(side, utc(side.began))}.")
    for text in comparison.not_known:
        yield _prose(f"{text[0].upper()}{text[1:]}.")
    for refusal in comparison.refusals:
        yield _prose(f"Their figures do not compare: {refusal}.")
    if comparison.refusals:
        return
    counts = {verdict: len(compared.of(verdict)) for verdict in Verdict}
    told = ", ".join(f"{number} {verdict.value}" for verdict, number in counts.items() if number)
    yield _prose(f"{compared.figure.title}, of {len(compared.differences)} cells that both have: {told or 'none'}.")
    if not comparison.changes.found and not comparison.not_known:
        yield _prose("Nothing else is different between the two runs.")
    if comparison.changes.one_sided:
        yield _prose(f"Told by one of them only, so not compared: {', '.join(comparison.changes.one_sided)}.")


def _prose(text: str) -> str:
    """A text of ours that names may have made long: word by word, so that it is not cut as one name would be."""
    return " ".join(latex_text(word, breakable=True) for word in text.split())
