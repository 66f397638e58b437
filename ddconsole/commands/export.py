"""`ddconsole export`: tables and figures of a run, or all its cells in another format, from what is on disk here."""

import argparse
import sys
from pathlib import Path

from ddconsole.commands.brought_run import brought_run
from ddconsole.commands.connection import EXPECTED, UsageProblem, fail
from ddconsole.commands.exporting import export_folder
from ddconsole.report.attempt_reader import RunUnreadable
from ddconsole.report.export_place import ExportFailed, check_file, check_folder, write_into, write_whole
from ddconsole.report.other_formats import FORMATS, run_as


def main(options: argparse.Namespace) -> int:
    """Export; the exit status: 0 done, 2 nothing usable could be written."""
    try:
        folder = brought_run(options)
        if options.format == "latex":
            if not options.to:
                raise UsageProblem("LaTeX is a folder of files: name it with --to DIR")
            export_folder(folder, Path(options.to))
        else:
            _export_as(folder, options.format, options.to)
    except (*EXPECTED, RunUnreadable, ExportFailed, ValueError) as problem:
        return fail(problem)
    return 0


def _export_as(folder: Path, name: str, to: str | None) -> None:
    """Write a file, or to standard output where none is named."""
    wanted = FORMATS[name]
    to_output = to in (None, "-")
    if to_output and not wanted.is_text and sys.stdout.isatty():
        raise UsageProblem(f"{name} is no text for a terminal: name a file with --to FILE")
    into = to is not None and Path(to).is_dir()
    if to is not None and not to_output:
        (check_folder if into else check_file)(Path(to))
    data, warnings = run_as(folder, name, lambda text: print(f"  {text}", file=sys.stderr))
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if to is None or to_output:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    elif into:
        path, kept = write_into(Path(to), f"results{wanted.suffix}", data)
        for text in kept:
            print(f"warning: {text}", file=sys.stderr)
        print(f"exported to {path}", file=sys.stderr)
    else:
        replaced = write_whole(Path(to), data)
        print(f"exported to {to}" + (", replaced what was there" if replaced else ""), file=sys.stderr)
