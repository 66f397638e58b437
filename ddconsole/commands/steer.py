"""The verbs that tell a sweep something: cells and the run as a whole."""

import argparse
import asyncio
import dataclasses
from pathlib import Path

from ddconsole.commands.connection import (
    EXPECTED,
    UsageProblem,
    agent_of,
    fail,
    host_of,
    matching_cells,
    printed,
    rehearsal_of,
    require_run,
    state_on_disk,
)
from ddconsole.commands.one_command import answer_line, one_command
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command, CommandAnswer


def main(options: argparse.Namespace) -> int:
    """Give one command; status 1 when it was refused."""
    try:
        folder = require_run(options.run)
        state = state_on_disk(folder)
        command = _command(options, state)
        answer = asyncio.run(_give(options, folder, state, command))
    except EXPECTED as problem:
        return fail(problem)
    if options.json:
        printed(dataclasses.asdict(answer))
    else:
        print(answer_line(options.verb, answer))
    return 0 if answer.taken else 1


def _command(options: argparse.Namespace, state: RunState) -> Command:
    cells = matching_cells(state, options.cells) if hasattr(options, "cells") else ()
    changes = _changes(options) if options.verb == "edit" else {}
    if options.verb == "until":
        changes = {"until": options.time}
    return one_command(options, options.verb, cells, changes, options.because)


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


async def _give(options: argparse.Namespace, folder: Path, state: RunState, command: Command) -> CommandAnswer:
    host = options.host or host_of(folder, state)
    async with agent_of(host, rehearsal=rehearsal_of(folder)) as client:
        return await client.command(folder.name, command)
