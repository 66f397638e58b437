"""The verbs that tell a sweep something: cells and the run as a whole."""

import argparse
import asyncio
from collections.abc import Mapping

from ddconsole.commands.connection import (
    EXPECTED,
    UsageProblem,
    agent_of,
    fail,
    find_run,
    host_of,
    matching_cells,
    printed,
    rehearsal_of,
    require_run,
    state_on_disk,
)
from ddconsole.commands.known_run import run_at_host, state_at_host
from ddconsole.commands.one_command import answer_json, answer_line, one_command
from ddconsole.core.coming_back import LOCAL
from ddconsole.core.wire import CommandAnswer


def main(options: argparse.Namespace) -> int:
    """Give one command; status 1 when it was refused."""
    try:
        changes = _changes(options) if options.verb == "edit" else {}
        if options.verb == "until":
            changes = {"until": options.time}
        answer = asyncio.run(_give(options, changes))
    except EXPECTED as problem:
        return fail(problem)
    if options.json:
        printed(answer_json(answer))
    else:
        print(answer_line(options.verb, answer))
    return 0 if answer.taken else 1


def _changes(options: argparse.Namespace) -> dict[str, str | None]:
    """`edit`'s options as field -> text and `flag:--name` -> text or None."""
    changes: dict[str, str | None] = {}
    for item in options.fields:
        name, equals, value = item.partition("=")
        if not equals:
            raise UsageProblem(f"--set {item}: write FIELD=VALUE, such as concurrency=4")
        changes[name] = value
    for item in options.flags:
        name, equals, value = item.partition("=")
        changes[f"flag:{name.lstrip('-')}"] = value if equals else "true"
    for name in options.removed:
        changes[f"flag:{name.lstrip('-')}"] = None
    if not changes:
        raise UsageProblem("edit what? --set FIELD=VALUE, --flag NAME=VALUE, --no-flag NAME")
    return changes


async def _give(options: argparse.Namespace, changes: Mapping[str, str | None]) -> CommandAnswer:
    """The run and its cells are named as they are where it runs: a copy of another host's run may be old."""
    folder = find_run(options.run) if options.host else require_run(options.run)
    rehearsal = rehearsal_of(folder) if folder is not None else None
    state = state_on_disk(folder) if folder is not None and not options.host else None
    host = options.host or (host_of(folder, state) if folder is not None and state is not None else LOCAL)
    async with agent_of(host, rehearsal=rehearsal) as client:
        run = await run_at_host(client, options.run) if folder is None or options.host else folder.name
        cells: tuple[str, ...] = ()
        if hasattr(options, "cells"):
            known = state if state is not None and host == LOCAL else await state_at_host(client, run)
            cells = matching_cells(known, options.cells)
        command = one_command(options, options.verb, cells, changes, options.because)
        return await client.command(run, command)
