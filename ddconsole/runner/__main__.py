"""`python -m ddconsole.runner RUN_DIRECTORY LAUNCH`: run one launch, as the agent ordered it."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path

from ddconsole.core.clock import clock_from_environment
from ddconsole.load.prompts import WorkloadTexts
from ddconsole.runner.durable import in_words, write_json
from ddconsole.runner.handed_environment import take_over
from ddconsole.runner.identity import identify
from ddconsole.runner.life import LaunchLife
from ddconsole.runner.order import read_order
from ddconsole.runner.run_directory import LAST_WORDS, LaunchDirectory, RunDirectory
from ddconsole.runner.server_process import become_subreaper


async def _live(directory: Path, launch: int) -> None:
    run = RunDirectory(directory)
    order = read_order(run.launch(launch).order)
    texts = WorkloadTexts.from_json(json.loads(run.texts.read_bytes()))
    become_subreaper()
    _note_who_runs_it(run.launch(launch))
    await LaunchLife(run, order, texts, clock_from_environment()).live()


def _note_who_runs_it(folder: LaunchDirectory) -> None:
    """The agent writes this down as it starts us; one that was killed before that finds us by our own note."""
    identity = identify(os.getpid())
    if identity is not None and not folder.runner.exists():
        write_json(folder.runner, {"boot": identity.boot, "pid": identity.pid, "started": identity.started})


def main() -> None:
    """Run one launch; the log goes to standard error, which the launcher puts into a file."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    directory, launch = sys.argv[1:3]
    os.chdir(directory)
    take_over(RunDirectory(Path(directory)).launch(int(launch)).handed_environment)
    try:
        asyncio.run(_live(Path(directory), int(launch)))
    except OSError as problem:
        # The server is stopped by now. The agent reads this line: it cannot be told in the event file.
        logging.getLogger(__name__).critical("%s %s", LAST_WORDS, in_words(problem))
        sys.exit(os.EX_IOERR)


if __name__ == "__main__":
    main()
