"""Exporting a run's folder, for the command line, for the console and at the end of a demo."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from ddconsole.commands.connection import UsageProblem
from ddconsole.report.attempt_reader import RunUnreadable
from ddconsole.report.export import ExportFailed, ExportReport, export_run


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


def console_export(folder: Path) -> Callable[[Callable[[str], None]], Awaitable[str]]:
    """What the console's export key does: the same, told step by step; the answer is the path."""

    async def export(progress: Callable[[str], None]) -> str:
        loop = asyncio.get_running_loop()
        to = folder / "report"

        def say(text: str) -> None:
            loop.call_soon_threadsafe(progress, text)

        report = await asyncio.to_thread(export_run, folder, to, say)
        return str(report.pdf or to)

    return export
