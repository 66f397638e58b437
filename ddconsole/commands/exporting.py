"""Exporting a run's folder, for the command line and at the end of a demo."""

import sys
from pathlib import Path

from ddconsole.commands.connection import UsageProblem
from ddconsole.report.attempt_reader import RunUnreadable
from ddconsole.report.export import ExportReport, export_run
from ddconsole.report.export_place import ExportFailed


def export_folder(folder: Path, to: Path) -> ExportReport:
    """Export and say what was made.

    Raises:
        UsageProblem: nothing usable could be written.
    """
    try:
        report = export_run(folder, to, lambda text: print(f"  {text}", file=sys.stderr))
    except (ExportFailed, RunUnreadable) as problem:
        raise UsageProblem(str(problem)) from problem
    for warning in report.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"exported to {to}:")
    for path in report.files:
        print(f"  {path.name}")
    print(f"  {report.pdf.name}" if report.pdf else f"no PDF: {report.pdf_reason}")
    return report
