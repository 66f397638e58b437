"""`ddconsole logs`: a server's log, control characters made visible."""

import argparse
import asyncio
import time
from pathlib import Path

from ddconsole.commands.connection import (
    EXPECTED,
    UsageProblem,
    agent_of,
    fail,
    host_of,
    require_run,
    state_on_disk,
)
from ddconsole.commands.known_run import run_at_host, state_at_host
from ddconsole.core.run_state import RunState
from ddconsole.core.visible_text import last_segment, visible
from ddconsole.core.wire import LogPiece
from ddconsole.link.http_client import HttpAgentClient

_PIECE = 1024 * 1024


def main(options: argparse.Namespace) -> int:
    """Print a log, and go on printing with `--follow`."""
    try:
        run, launch = _which(options)
        if options.host:
            asyncio.run(_print_of_host(options, run, launch))
            return 0
        folder = require_run(run)
        state = state_on_disk(folder)
        number = _launch(folder.name, state, launch)
        local = folder / "launches" / str(number) / "server.log"
        # A log of another host has its name here when it is whole: then nothing has to be asked.
        if local.is_file() and (host_of(folder, state) == "local" or not options.follow):
            _print_file(local, follow=options.follow)
        else:
            asyncio.run(_print_remote(options, folder, state, number))
    except EXPECTED as problem:
        return fail(problem)
    return 0


def _which(options: argparse.Namespace) -> tuple[str | None, int | None]:
    """`logs 3` means launch 3 of the newest run."""
    if options.run is not None and options.run.isdigit() and options.launch is None:
        return None, int(options.run)
    return options.run, options.launch


def _launch(run: str, state: RunState, named: int | None) -> int:
    """The launch that was named, else the last one.

    Raises:
        UsageProblem: there is none of that number.
    """
    number = named if named is not None else max(state.launches, default=0)
    if number not in state.launches:
        known = ", ".join(str(one) for one in state.launches) or "none yet"
        raise UsageProblem(f"{run} has no launch {number}; there are: {known}")
    return number


def _show(line: str) -> None:
    print(visible(last_segment(line)))


def _print_file(path: Path, *, follow: bool) -> None:
    with path.open("rb") as file:
        while True:
            line = file.readline()
            if line.endswith(b"\n") or (line and not follow):
                _show(line.rstrip(b"\n").decode(errors="replace"))
            elif not follow:
                return
            else:
                file.seek(-len(line), 1)
                time.sleep(0.3)


async def _print_remote(options: argparse.Namespace, folder: Path, state: RunState, launch: int) -> None:
    async with agent_of(host_of(folder, state), say=True) as client:
        await _print_log(client, folder.name, launch, follow=options.follow)


async def _print_of_host(options: argparse.Namespace, run: str | None, launch: int | None) -> None:
    async with agent_of(options.host, say=True) as client:
        name = await run_at_host(client, run)
        number = _launch(name, await state_at_host(client, name), launch)
        await _print_log(client, name, number, follow=options.follow)


async def _print_log(client: HttpAgentClient, run: str, launch: int, *, follow: bool) -> None:
    offset = 0
    while True:
        data = await client.log(run, launch, offset, _PIECE)
        whole, newline, rest = data.rpartition(b"\n")
        if not newline:
            _show(rest.decode(errors="replace"))
            break
        for raw in whole.split(b"\n"):
            _show(raw.decode(errors="replace"))
        offset += len(whole) + 1
    if not follow:
        return
    async for item in client.live(run, launch, offset):
        if isinstance(item, LogPiece):
            for line in item.lines:
                _show(line)
