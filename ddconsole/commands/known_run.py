"""A run as a verb knows it: by what lies on this machine, with its age where that is a copy, or by asking its host."""

import argparse
import asyncio
import json
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from ddconsole.commands.connection import UsageProblem, agent_of, host_of, require_run, state_on_disk
from ddconsole.core.ages import as_of_copy
from ddconsole.core.coming_back import LOCAL
from ddconsole.core.events import Entry
from ddconsole.core.fold import apply
from ddconsole.core.run_state import RunState
from ddconsole.link.http_client import HttpAgentClient, entry_or_beat
from ddconsole.link.journal_copy import last_heard


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run and what is known of it."""

    name: str
    host: str
    state: RunState
    age: float | None = None
    """Seconds since the host was heard, where this is a copy of another host's run; None where it is of now."""

    @property
    def as_of(self) -> str:
        """`as of 3 min ago, by the copy here; --host ct200 asks the host`; empty for what is of now."""
        return "" if self.age is None else f"{as_of_copy(self.age)}; --host {self.host} asks the host"


def known_run(options: argparse.Namespace) -> KnownRun:
    """The run that a verb was given, asked of its host with `--host`, else from disk.

    Raises:
        UsageProblem: there is none, or it cannot be read.
        AgentError: the host cannot be reached.
    """
    if options.host:
        return asyncio.run(_asked(options.host, options.run))
    return known_from_disk(require_run(options.run))


def known_from_disk(folder: Path) -> KnownRun:
    """A run as what lies here tells it.

    Raises:
        UsageProblem: it cannot be read, or says nothing.
    """
    state = state_on_disk(folder)
    return KnownRun(folder.name, host_of(folder, state), state, copy_age(folder, state))


def copy_age(folder: Path, state: RunState) -> float | None:
    """Seconds since the host of a copy was heard; None for a run that an agent conducts or conducted here."""
    host = host_of(folder, state)
    if host == LOCAL or (folder / "status.json").exists():
        return None
    return max(0.0, time.time() - (last_heard(folder) or state.at))


async def _asked(host: str, run: str | None) -> KnownRun:
    async with agent_of(host, say=True) as client:
        name = await run_at_host(client, run)
        return KnownRun(name, host, await state_at_host(client, name))


async def run_at_host(client: HttpAgentClient, name: str | None) -> str:
    """The id of a host's run by its beginning; the newest without a name.

    Raises:
        UsageProblem: there is none, or there are several.
        AgentError: as the client.
    """
    found = [one.run for one in await client.runs()]
    begin_so = [one for one in found if one.startswith(name or "")]
    wanted = [one for one in found if one == name] or begin_so
    if not wanted:
        raise UsageProblem(f"{client.host} has no run {name or ''}; there are: {', '.join(found) or 'none'}")
    if name is not None and len(wanted) > 1:
        raise UsageProblem(f"run {name!r} could be {', '.join(wanted[:5])}; write more of it")
    return wanted[0]


async def state_at_host(client: HttpAgentClient, run: str) -> RunState:
    """What the host's journal of a run says now.

    Raises:
        AgentError: as the client; the host has no such run.
    """
    state = RunState()
    async with aclosing(client.journal_lines(run, 0)) as lines:
        behind = int(json.loads(await anext(lines))["seq"])
        while state.seq < behind:
            item = entry_or_beat(await anext(lines))
            if isinstance(item, Entry):
                state = apply(state, item)
    return state
