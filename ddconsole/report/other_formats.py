"""All cells of a run in other formats than LaTeX: one file each, in full precision where the format is for programs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddconsole.report.attempt_reader import attempts_in_folder, state_of_run
from ddconsole.report.cell_fields import cells_csv, results_jsonl
from ddconsole.report.collect import result_set
from ddconsole.report.export_place import check_folder, write_into
from ddconsole.report.markdown import markdown_text
from ddconsole.report.parquet import parquet_bytes
from ddconsole.report.result_set import ResultSet


@dataclass(frozen=True, slots=True)
class Format:
    """One format."""

    suffix: str
    about: str
    write: Callable[[ResultSet], bytes]
    is_text: bool = True


def _utf8(text: str) -> bytes:
    """What no encoding knows (half of a surrogate pair, from a name) is written as its number."""
    return text.encode("utf-8", "backslashreplace")


FORMATS: Mapping[str, Format] = {
    "csv": Format(
        ".csv", "one row a cell, every figure in full precision", lambda one: _utf8(cells_csv(one, one.cells))
    ),
    "jsonl": Format(".jsonl", "JSON Lines: one object a cell, the same fields", lambda one: _utf8(results_jsonl(one))),
    "markdown": Format(".md", "tables to paste into an issue or a wiki", lambda one: _utf8(markdown_text(one))),
    "parquet": Format(
        ".parquet", "typed columns; needs the extra: pip install 'ddconsole[parquet]'", parquet_bytes, is_text=False
    ),
}


def run_as(folder: Path, name: str, progress: Callable[[str], None]) -> tuple[bytes, tuple[str, ...]]:
    """A run in one of `FORMATS`, and warnings about what is in it.

    Raises:
        RunUnreadable: the folder holds no readable run.
        ExportFailed: what the format needs is not installed.
    """
    progress("reading the journal")
    state, damage = state_of_run(folder)
    progress("making the figures from the request records")
    result = result_set(state, attempts_in_folder(folder, state))
    progress(f"writing {name}")
    return FORMATS[name].write(result), (*([damage] if damage else ()), *result.warnings)


def save_run(folder: Path, name: str, to: Path, progress: Callable[[str], None]) -> tuple[Path, tuple[str, ...]]:
    """Write a run as `results` with the format's ending into the folder `to`, made if need be; as `write_into`.

    Raises:
        RunUnreadable: the folder holds no readable run.
        ExportFailed: what the format needs is not installed, or the file cannot be written.
    """
    check_folder(to)
    data, _ = run_as(folder, name, progress)
    return write_into(to, f"results{FORMATS[name].suffix}", data)
