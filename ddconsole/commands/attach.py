"""`ddconsole` and `ddconsole attach`: the console on a run, by its agent; from disk where the host is lost."""

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

from ddconsole.commands.connection import (
    EXPECTED,
    agent_of,
    fail,
    find_run,
    host_of,
    read_journal,
    rehearsal_of,
    require_run,
    state_on_disk,
)
from ddconsole.commands.console import open_app
from ddconsole.commands.known_run import run_at_host
from ddconsole.commands.places import runs_folder
from ddconsole.commands.staying import Stay, follow, stay_on
from ddconsole.core import states as st
from ddconsole.core.coming_back import LOCAL
from ddconsole.core.run_state import RunState
from ddconsole.core.submission_json import submission_from_json
from ddconsole.core.wire import Submission
from ddconsole.link.client import AgentError
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.offline_feed import OfflineRunFeed

UNREACHED = 2
"""Exit status when the host of a run that may go on cannot be reached."""


def main(options: argparse.Namespace) -> int:
    """Open a run as its host knows it; the copy here only where the host is lost, or with `--offline`."""
    try:
        if options.host and not options.offline:
            return asyncio.run(_on_host(options))
        folder = require_run(options.run)
        state = state_on_disk(folder)
        if options.offline:
            return asyncio.run(_from_disk(options, OfflineRunFeed(folder), folder))
        return asyncio.run(_live(options, folder, state))
    except EXPECTED as problem:
        return fail(problem)


def _stay(options: argparse.Namespace, folder: Path | None) -> Stay:
    return Stay(
        headless=getattr(options, "headless", False),
        submission=_submission(folder) if folder else None,
        readonly=getattr(options, "readonly", False),
    )


def _submission(folder: Path) -> Submission | None:
    try:
        return submission_from_json(json.loads((folder / "submission.json").read_bytes()))
    except (OSError, ValueError):
        return None


async def _live(options: argparse.Namespace, folder: Path, state: RunState) -> int:
    host = host_of(folder, state)
    async with AsyncExitStack() as reached:
        try:
            client = await reached.enter_async_context(agent_of(host, rehearsal=rehearsal_of(folder), say=True))
            if host != LOCAL:
                await _knows(client, folder.name)
        except AgentError as problem:
            if host == LOCAL:
                raise
            return await _lost(options, folder, problem)
        return await stay_on(client, folder.name, _stay(options, folder))


async def _knows(client: HttpAgentClient, run: str) -> None:
    """Whether the host still has a run that is copied here.

    Raises:
        AgentError: it has not; or the link is lost.
    """
    async with aclosing(client.journal_lines(run, _NO_ENTRY)) as lines:
        await anext(lines)


async def _on_host(options: argparse.Namespace) -> int:
    """A run by the name of its host; what was copied of it where that host is lost."""
    async with AsyncExitStack() as reached:
        try:
            client = await reached.enter_async_context(agent_of(options.host, say=True))
            run = await run_at_host(client, options.run)
        except AgentError as problem:
            folder = find_run(options.run)
            if folder is None or host_of(folder, read_journal(folder)[0]) != options.host:
                raise
            return await _lost(options, folder, problem)
        folder = runs_folder() / run
        return await stay_on(client, run, _stay(options, folder if folder.is_dir() else None))


async def _lost(options: argparse.Namespace, folder: Path, problem: AgentError) -> int:
    """The host cannot be reached: what is here of the run is shown, and said to be no more than that."""
    feed = OfflineRunFeed(folder, lost=str(problem))
    print(f"ddconsole: {feed.link.detail}", file=sys.stderr)
    return await _from_disk(options, feed, folder)


async def _from_disk(options: argparse.Namespace, feed: OfflineRunFeed, folder: Path) -> int:
    try:
        if not getattr(options, "headless", False):
            return await open_app(feed, folder)
        ended = feed.state.phase is st.RunPhase.ENDED and feed.state.live_launch() is None
        return await follow(feed) if ended else UNREACHED
    finally:
        await feed.close()


_NO_ENTRY = 2**53
"""Behind every entry of a journal: the agent answers with how far it is, and sends nothing of it."""
