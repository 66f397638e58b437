"""`ddconsole host`: the machine's GPUs, NUMA domains and PCIe links, as text or JSON."""

import argparse
import asyncio
import shutil

from ddconsole.commands import prepare
from ddconsole.commands.connection import EXPECTED, UsageProblem, agent_of, fail, printed, say_what_ssh_leaves_out
from ddconsole.core.host_state_json import host_state_to_json

_INTERVAL = 2.0


def main(options: argparse.Namespace) -> int:
    """Print the host's state, once or again and again."""
    if options.host == "prepare" and options.of is None:
        return fail(UsageProblem("host prepare: which host? ddconsole host prepare HOST"))
    if options.of is not None:
        if options.host != "prepare":
            return fail(UsageProblem(f"host takes one machine, not {options.host} and {options.of}"))
        return prepare.main(argparse.Namespace(host=options.of, python=None, state=None, json=options.json))
    try:
        asyncio.run(_show(options))
    except EXPECTED as problem:
        return fail(problem)
    return 0


async def _show(options: argparse.Namespace) -> None:
    from ddconsole.probe.host_text import host_lines  # noqa: PLC0415  # only the text form needs it

    say_what_ssh_leaves_out(options.host)
    async with agent_of(options.host, say=True) as client:
        while True:
            state = await client.host_state()
            if options.json:
                printed(host_state_to_json(state))
            else:
                lines = host_lines(state, shutil.get_terminal_size().columns)
                print(("\033[2J\033[H" if options.watch else "") + "\n".join(lines), flush=True)
            if not options.watch:
                return
            await asyncio.sleep(_INTERVAL)
