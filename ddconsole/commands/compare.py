"""`ddconsole compare`: two runs, from what is on disk here."""

import argparse
import sys
from pathlib import Path

from ddconsole.commands.connection import EXPECTED, UsageProblem, fail, printed, run_folder
from ddconsole.compare.as_json import comparison_json
from ddconsole.compare.comparison import Comparison
from ddconsole.compare.latex import export_comparison
from ddconsole.compare.read import compare_folders
from ddconsole.compare.text import comparison_lines
from ddconsole.report.attempt_reader import RunUnreadable
from ddconsole.report.export_place import ExportFailed

NOT_WORSE, WORSE, BAD_INPUT, NOT_COMPARABLE = range(4)
"""Exit statuses."""


def main(options: argparse.Namespace) -> int:
    """Compare two runs; the exit status: 0 nothing regressed, 1 something did, 2 bad input, 3 not comparable."""
    try:
        if not 0 <= options.least < 100:
            raise UsageProblem(f"--least {options.least:g}: give a percentage from 0 to 100, such as 1")
        folders = run_folder(options.before), run_folder(options.after)
        comparison, warnings = compare_folders(*folders, _say, least=options.least / 100)
    except (*EXPECTED, RunUnreadable, ValueError) as problem:
        return fail(problem)
    for text in warnings:
        print(f"warning: {text}", file=sys.stderr)
    if options.json:
        printed(comparison_json(comparison))
    else:
        for line in comparison_lines(comparison, options.figure, everything=options.all):
            print(line)
    try:
        if options.latex:
            _write(comparison, options.figure, Path(options.latex))
    except ExportFailed as problem:
        return fail(problem)
    return _status(comparison, options.figure)


def _write(comparison: Comparison, figure: str, to: Path) -> None:
    report = export_comparison(comparison, figure, to, lambda text: print(f"  {text}", file=sys.stderr))
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"exported to {report.pdf or to}" + ("" if report.pdf else f"; no PDF: {report.pdf_reason}"), file=sys.stderr)


def _status(comparison: Comparison, figure: str) -> int:
    if comparison.refusals:
        return NOT_COMPARABLE
    return WORSE if comparison.is_worse(figure) else NOT_WORSE


def _say(text: str) -> None:
    if sys.stderr.isatty():
        print(f"  {text}", file=sys.stderr)
