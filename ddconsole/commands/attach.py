"""`ddconsole` and `ddconsole attach`: the console on a run, from its agent or from disk."""

import argparse
import asyncio
import json
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from ddconsole.commands.connection import (
    EXPECTED,
    agent_of,
    fail,
    host_of,
    rehearsal_of,
    require_run,
    state_on_disk,
)
from ddconsole.commands.console import open_app
from ddconsole.commands.places import runs_folder
from ddconsole.commands.staying import Stay, follow, stay_on
from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.submission_json import submission_from_json
from ddconsole.core.wire import Submission
from ddconsole.link.client import AgentError
from ddconsole.link.offline_feed import OfflineRunFeed

UNREACHED = 2
"""Exit status when the host of a run that may go on cannot be reached."""


def main(options: argparse.Namespace) -> int:
    """Open a run: a live one through its agent, a finished one from disk."""
    try:
        if options.host:
            return asyncio.run(_on_host(options))
        folder = require_run(options.run)
        state = state_on_disk(folder)
        if state.phase is st.RunPhase.ENDED and state.live_launch() is None and host_of(folder, state) != "local":
            return asyncio.run(_from_disk(options, folder))
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
        except AgentError as problem:
            if host == "local":
                raise
            return await _lost(options, folder, problem)
        return await stay_on(client, folder.name, _stay(options, folder))


async def _lost(options: argparse.Namespace, folder: Path, problem: AgentError) -> int:
    """The host cannot be reached: what is here of the run is shown, and said to be no more than that."""
    feed = OfflineRunFeed(folder, lost=str(problem))
    print(f"ddconsole: {feed.link.detail}", file=sys.stderr)
    try:
        if getattr(options, "headless", False):
            return UNREACHED
        return await open_app(feed, folder)
    finally:
        await feed.close()


async def _on_host(options: argparse.Namespace) -> int:
    async with agent_of(options.host, say=True) as client:
        found = await client.runs()
        wanted = [one for one in found if options.run is None or one.run.startswith(options.run)]
        if not wanted:
            known = ", ".join(one.run for one in found) or "none"
            return fail(ValueError(f"{options.host} has no run {options.run or ''}; there are: {known}"))
        folder = runs_folder() / wanted[0].run
        return await stay_on(client, wanted[0].run, _stay(options, folder if folder.is_dir() else None))


async def _from_disk(options: argparse.Namespace, folder: Path) -> int:
    feed = OfflineRunFeed(folder)
    try:
        if getattr(options, "headless", False):
            return await follow(feed)
        return await open_app(feed, folder)
    finally:
        await feed.close()
