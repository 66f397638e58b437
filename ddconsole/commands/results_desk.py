"""What the console's Results screen asks for: exports of a run's folder, rates by turn, and comparing with others."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ddconsole.commands.connection import run_folders
from ddconsole.link.client import AgentError

if TYPE_CHECKING:
    from ddconsole.compare.comparison import Comparison

Answer = TypeVar("Answer")
Say = Callable[[str], None]


class RunResults:
    """The results of one run, from its folder on this machine. What is slow runs in a thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def __call__(self, say: Say) -> str:
        """Write tables and figures for LaTeX; the path of the PDF, or of the folder, and a line for each file kept."""
        from ddconsole.report.export import export_run  # noqa: PLC0415  # numpy and jinja2: only where they are used

        to = self._folder / "report"
        report = await _told(partial(export_run, self._folder, to), say)
        return "\n".join([str(report.pdf or to), *report.kept])

    def formats(self) -> Mapping[str, str]:
        """The other formats, with what each is."""
        from ddconsole.report.other_formats import FORMATS  # noqa: PLC0415

        return {name: one.about for name, one in FORMATS.items()}

    async def save(self, name: str, say: Say) -> str:
        """Write all cells in another format; the path, and a line for each file that was kept."""
        from ddconsole.report.other_formats import save_run  # noqa: PLC0415

        path, kept = await _told(partial(save_run, self._folder, name, self._folder / "report"), say)
        return "\n".join([str(path), *kept])

    async def turns(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        """By cell, the median output rate at each turn of its conversation."""
        from ddconsole.report.turn_rates import turn_rates  # noqa: PLC0415

        return await asyncio.to_thread(turn_rates, self._folder)

    def others(self) -> Mapping[str, str]:
        """Other runs on this machine, newest first, with a line about each."""
        return {folder.name: _about(folder) for folder in run_folders() if folder.resolve() != self._folder.resolve()}

    async def compare(self, run: str, say: Say) -> "Comparison":
        """Compare this run, as B, with another one."""
        from ddconsole.compare.read import compare_folders  # noqa: PLC0415

        other = next((folder for folder in run_folders() if folder.name == run), None)
        if other is None:
            raise AgentError(f"run {run} is not here any more", "ddconsole runs lists what there is")
        comparison, _ = await _told(partial(compare_folders, other, self._folder), say)
        return comparison

    async def export_comparison(self, comparison: "Comparison", figure: str, say: Say) -> str:
        """Write a comparison for LaTeX; the path of the PDF, or of the folder, and a line for each file kept."""
        from ddconsole.compare.latex import export_comparison  # noqa: PLC0415

        to = self._folder / "report" / f"against-{comparison.before.run}"
        report = await _told(partial(export_comparison, comparison, figure, to), say)
        return "\n".join([str(report.pdf or to), *report.kept])


def _about(folder: Path) -> str:
    """From the run's summary, which is small; a long journal is not read for a line."""
    try:
        content = json.loads((folder / "status.json").read_bytes())
        counts = ", ".join(f"{number} {phase}" for phase, number in content["counts"].items())
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(content["began"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""
    return f"begun {began}  {counts}{'  SIMULATED' if content.get('simulated') else ''}"


async def _told(work: Callable[[Say], Answer], say: Say) -> Answer:
    """Do it in a thread; what it says comes to the console's own, and what it cannot do as an `AgentError`."""
    from ddconsole.report.attempt_reader import RunUnreadable  # noqa: PLC0415
    from ddconsole.report.export_place import ExportFailed  # noqa: PLC0415

    loop = asyncio.get_running_loop()

    def step(text: str) -> None:
        loop.call_soon_threadsafe(say, text)

    try:
        return await asyncio.to_thread(work, step)
    except (RunUnreadable, ExportFailed) as problem:
        raise AgentError(str(problem), "") from problem
