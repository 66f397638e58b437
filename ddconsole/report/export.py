"""From a run to a folder of LaTeX fragments, CSV twins and a document."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddconsole.core.run_state import RunState
from ddconsole.report.acceptance_table import acceptance_tables
from ddconsole.report.attempt_reader import AttemptLoader, attempts_in_folder, state_of_run
from ddconsole.report.cell_fields import cells_csv, results_jsonl
from ddconsole.report.chart_tex import chart_fragment
from ddconsole.report.charts import all_charts
from ddconsole.report.collect import result_set
from ddconsole.report.compile_pdf import compile_pdf
from ddconsole.report.design_table import design_tables
from ddconsole.report.document import document_tex
from ddconsole.report.export_place import OURS, check_folder, write_texts
from ddconsole.report.fragment import Fragment
from ddconsole.report.latex_text import lost_characters
from ddconsole.report.listing_table import concurrency_tables, latency_tables
from ddconsole.report.macros import macros_tex
from ddconsole.report.main_table import main_tables
from ddconsole.report.plain_tables import difference_tables, environment_table, exclusion_tables
from ddconsole.report.result_set import ResultSet
from ddconsole.report.turn_table import turn_tables

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export left behind."""

    files: tuple[Path, ...]
    """In the order of their names; the PDF is apart."""
    warnings: tuple[str, ...]
    pdf: Path | None
    pdf_reason: str
    """Why there is no PDF; empty where there is one."""
    kept: tuple[str, ...] = ()
    """Of the warnings, a sentence for each file of the operator's that is kept under another name."""


RunSource = Path | tuple[RunState, AttemptLoader]
"""A run directory, or a run's state with a loader for its attempt files."""


def export_run(
    source: RunSource, to: Path, progress: Callable[[str], None], *, make_pdf: bool = True, tool: str = ""
) -> ExportReport:
    """Write all tables, figures, twins and the document of a run into `to`, and compile it where TeX is there.

    The same results give the same bytes. Files of an earlier export that are not made any more are removed, if nobody
    has changed them since; what is not ours, or was changed, is kept beside and named in the warnings.

    Args:
        source: what to export.
        to: a folder, made if need be.
        progress: is told what is being done, one short line at a time.
        make_pdf: compile the document.
        tool: the TeX that compiles it, as `compile_pdf` takes it.

    Raises:
        RunUnreadable: the run directory holds no readable run.
        ExportFailed: the folder cannot be written.
    """
    warnings: list[str] = []
    if isinstance(source, Path):
        progress("reading the journal")
        state, damage = state_of_run(source)
        load = attempts_in_folder(source, state)
        warnings.extend([damage] if damage else [])
    else:
        state, load = source
    check_folder(to)
    progress("making the figures from the request records")
    result = result_set(state, load)
    progress("writing tables and figures")
    texts = export_texts(result)
    files, kept = write_texts(to, texts)
    warnings.extend(kept)
    warnings.extend(result.warnings)
    warnings.extend(_lost(result))
    if not make_pdf:
        return ExportReport(files, tuple(warnings), None, "not asked for", kept)
    compiled = compile_pdf(to, progress, data_time=result.data_time, tool=tool)
    return ExportReport(files, (*warnings, *compiled.warnings), compiled.pdf, compiled.reason, kept)


def export_texts(result: ResultSet) -> dict[str, str]:
    """Every file of an export by its name, without the manifest. TeX files are ASCII."""
    fragments = list(fragments_of(result))
    texts = {f"{one.name}.tex": one.tex for one in fragments}
    texts |= {f"{one.name}.csv": one.csv for one in fragments}
    texts["ddconsole-preamble.tex"] = preamble_text()
    texts["recompute.py"] = (_HERE / "recompute.py").read_text(encoding="ascii")
    texts["results-macros.tex"] = macros_tex(result)
    texts["main.tex"] = document_tex(result, fragments)
    texts["results.csv"] = cells_csv(result, result.cells)
    texts["results.jsonl"] = results_jsonl(result)
    for name, text in texts.items():
        assert OURS.fullmatch(name), name
        assert text.isascii() or not name.endswith(".tex"), name
    return dict(sorted(texts.items()))


def preamble_text() -> str:
    """What the fragments need, for the head of a document: packages, then how figures look."""
    parts = ("ddconsole-preamble.tex", "ddconsole-style.tex")
    return "".join((_HERE / "templates" / name).read_text(encoding="ascii") for name in parts)


def fragments_of(result: ResultSet) -> Iterator[Fragment]:
    """The tables and figures for which there are data, each with a name of its own."""
    taken: set[str] = set()
    for one in _made(result):
        name, number = one.name, 1
        while name in taken:
            number += 1
            name = f"{one.name}-{number}"
        taken.add(name)
        yield one if name == one.name else replace(one, name=name)


def _made(result: ResultSet) -> Iterator[Fragment]:
    yield from main_tables(result)
    yield from concurrency_tables(result)
    yield from turn_tables(result)
    yield from acceptance_tables(result)
    yield from latency_tables(result)
    yield from (chart_fragment(result, chart) for chart in all_charts(result))
    yield from exclusion_tables(result)
    yield from design_tables(result)
    yield environment_table(result)
    yield from difference_tables(result)


def _lost(result: ResultSet) -> Sequence[str]:
    texts = [text for cell in result.cells for text in (cell.label, *cell.reasons)]
    lost = lost_characters([result.plan_name, result.run, result.host, *texts, *(v for _, v in result.environment)])
    return [f"LaTeX shows these characters by their numbers: {' '.join(lost[:20])}"] if lost else []
