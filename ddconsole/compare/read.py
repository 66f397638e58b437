"""Comparing two run directories: what the command line, the screen and the LaTeX export begin with."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ddconsole.compare.comparison import Comparison, compare
from ddconsole.compare.differences import LEAST
from ddconsole.compare.facts import files_of
from ddconsole.compare.side import Side, side_of
from ddconsole.report.attempt_reader import attempts_in_folder, state_of_run


def compare_folders(
    before: Path, after: Path, progress: Callable[[str], None] = lambda _: None, *, least: float = LEAST
) -> tuple[Comparison, tuple[str, ...]]:
    """Read two runs and compare them; what is wrong with either of them comes as warnings.

    Args:
        before: the directory of the first run, or of a mirror of one.
        after: of the second.
        progress: is told what is being read, one short line at a time.
        least: the change from which on a difference is told, as a share.

    Raises:
        RunUnreadable: one of them is no readable run.
    """
    warnings: list[str] = []
    sides: list[Side] = []
    for name, folder in (("A", before), ("B", after)):
        progress(f"reading {folder.name}")
        state, damage = state_of_run(folder)
        side = replace(side_of(state, attempts_in_folder(folder, state), files_of(folder)), damage=damage or "")
        sides.append(side)
        if damage:
            warnings.append(f"{name}, {folder / 'journal.jsonl'}: {damage}")
        warnings += [f"{name}, {side.run}: {text}" for text in side.warnings]
    return compare(sides[0], sides[1], least=least), tuple(dict.fromkeys(warnings))
