"""Opening the app: the one place where ddconsole knows of its screens."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ddconsole.commands.results_desk import RunResults
from ddconsole.commands.terminal import noted_terminal
from ddconsole.link.feed import RunFeed
from ddconsole.link.prompting import Prompts

Preflight = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]
"""Runs the checks again: their findings as JSON."""


async def open_app(
    feed: RunFeed, folder: Path, preflight: Preflight | None = None, prompts: Prompts | None = None
) -> int:
    """The console on a run, whose exports go into its folder; the exit status when the operator leaves."""
    from screens.app import run_console  # noqa: PLC0415  # Textual takes a third of a second: only where it opens

    with noted_terminal():
        return await run_console(feed, preflight=preflight, export=RunResults(folder), prompts=prompts)
