"""`ddconsole debts`: units of the host that a run has stopped, and putting them back or leaving them."""

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping

from ddconsole.commands.connection import (
    EXPECTED,
    agent_of,
    fail,
    host_of,
    printed,
    rehearsal_of,
    require_run,
    state_on_disk,
)
from ddconsole.commands.known_run import KnownRun, known_run
from ddconsole.commands.one_command import answer_json, answer_line, one_command
from ddconsole.core.states import RunCommand
from ddconsole.core.wire import Command, CommandAnswer


def main(options: argparse.Namespace) -> int:
    """List what a run owes (status 1 while it owes anything), or settle or waive it (status 1 when that is refused)."""
    try:
        if not options.settle and not options.waive:
            return _list(known_run(options), as_json=options.json)
        folder = require_run(options.run)
        name = RunCommand.WAIVE if options.waive else RunCommand.SETTLE
        command = one_command(options, name, changes=dict.fromkeys(options.waive or ()))
        host = options.host or host_of(folder, state_on_disk(folder))
        answer = asyncio.run(_give(host, folder.name, command, rehearsal_of(folder)))
    except EXPECTED as problem:
        return fail(problem)
    if options.json:
        printed(answer_json(answer))
    else:
        print(answer_line(name, answer))
    return 0 if answer.taken else 1


async def _give(host: str, run: str, command: Command, rehearsal: Mapping[str, str] | None) -> CommandAnswer:
    async with agent_of(host, rehearsal=rehearsal) as client:
        return await client.command(run, command)


def _list(known: KnownRun, *, as_json: bool) -> int:
    state = known.state
    if known.as_of:
        print(f"ddconsole: {known.name}: {known.as_of}", file=sys.stderr)
    if as_json:
        printed([{"unit": name, "taken": one.taken, "problem": one.problem} for name, one in state.debts.items()])
    for name, debt in () if as_json else state.debts.items():
        taken = time.strftime("%Y-%m-%d %H:%M", time.localtime(debt.taken))
        print(f"{name}  stopped since {taken}  {debt.problem and f'not put back: {debt.problem}'}".rstrip())
    if not state.debts and not as_json:
        print("this run owes nothing")
    return 1 if state.debts else 0
