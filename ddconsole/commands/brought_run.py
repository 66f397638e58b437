"""The folder of a run here: as it lies, with its age where it is a copy, or brought up to date by its host before."""

import argparse
import asyncio
import sys
from contextlib import aclosing
from pathlib import Path

from ddconsole.commands.connection import agent_of, require_run, run_folder
from ddconsole.commands.known_run import known_from_disk, run_at_host
from ddconsole.commands.places import runs_folder
from ddconsole.core.coming_back import LOCAL
from ddconsole.core.visible_text import visible_line
from ddconsole.link.mirror import Mirror

_CAUGHT_UP = 2
"""Beats of a journal until all that the host had at the first is here."""


def brought_run(options: argparse.Namespace) -> Path:
    """The folder of the run that a verb was given; with `--host`, after what was missing of it has come.

    Raises:
        UsageProblem: there is no such run.
        AgentError, OSError: it cannot be copied.
    """
    if options.host:
        return asyncio.run(_brought(options.host, options.run))
    folder = run_folder(options.run) if options.run else require_run(None)
    if as_of := known_from_disk(folder).as_of:
        print(f"ddconsole: {folder.name}: {as_of}", file=sys.stderr)
    return folder


async def _brought(host: str, run: str | None) -> Path:
    async with agent_of(host, say=True) as client:
        name = await run_at_host(client, run)
        folder = runs_folder() / name
        if host == LOCAL:
            return folder
        mirror = Mirror(client, name, folder)
        try:
            beats = 0
            async with aclosing(mirror.journal(name, 0)) as journal:
                async for item in journal:
                    beats += isinstance(item, float)
                    if beats == _CAUGHT_UP:
                        break
            await mirror.copy_files()
        finally:
            await mirror.close()
        for problem in mirror.problems:
            print(f"copy of {name}: {visible_line(problem)}", file=sys.stderr)
        return folder
