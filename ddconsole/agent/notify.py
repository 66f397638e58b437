"""Telling the operator by a command of theirs: when the sweep pauses by itself, and when it has ended."""

import asyncio
import logging
from collections.abc import Sequence

from ddconsole.agent.journal import Journal
from ddconsole.core import states as st
from ddconsole.core.run_state import RunState

_DEADLINE = 30.0
"""Real seconds for the operator's command."""

logger = logging.getLogger(__name__)


def message_of(before: RunState, after: RunState, run: str) -> str | None:
    """What to tell about the step from one state to another; None for nothing."""
    if before.phase is after.phase and before.paused_because == after.paused_because:
        return None
    counts = after.counts()
    done = f"{counts.get(st.CellPhase.DONE, 0)} of {len(after.cells)} cells done"
    failed = counts.get(st.CellPhase.FAILED, 0) + counts.get(st.CellPhase.BLOCKED, 0)
    trouble = f", {failed} failed" if failed else ""
    if after.phase is st.RunPhase.PAUSED and after.paused_by == "ddconsole":
        return f"ddconsole {run}: paused, {after.paused_because} ({done}{trouble})"
    if after.phase is st.RunPhase.ENDED:
        return f"ddconsole {run}: {after.outcome}, {done}{trouble}"
    return None


async def keep_notifying(journal: Journal, run: str, command: Sequence[str]) -> None:
    """Run the operator's command, with the message as its last argument, whenever there is something to tell."""
    before = journal.state
    while True:
        await journal.changed(60.0)
        message = message_of(before, journal.state, run)
        before = journal.state
        if message is not None and command:
            await _tell([*command, message])


async def _tell(argv: Sequence[str]) -> None:
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
    except OSError as problem:
        logger.warning("notify: %s: %s", argv[0], problem)
        return
    try:
        status = await asyncio.wait_for(process.wait(), _DEADLINE)
    except TimeoutError:
        process.kill()
        logger.warning("notify: %s took longer than %s s", argv[0], _DEADLINE)
        return
    if status != 0:
        logger.warning("notify: %s ended with %s", argv[0], status)
