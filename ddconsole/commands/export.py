"""`ddconsole export`: tables and figures of a run, from what is on disk here."""

import argparse
from pathlib import Path

from ddconsole.commands.connection import EXPECTED, fail, require_run
from ddconsole.commands.exporting import export_folder


def main(options: argparse.Namespace) -> int:
    """Export; status 1 when no PDF could be made though a TeX is there."""
    try:
        folder = require_run(options.run)
        export_folder(folder, Path(options.to))
    except (*EXPECTED, ValueError) as problem:
        return fail(problem)
    return 0
