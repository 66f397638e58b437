"""Staying on a run: in the console, or with progress as lines until it has ended."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddconsole.commands.console import open_app
from ddconsole.commands.exporting import export_folder
from ddconsole.commands.places import runs_folder
from ddconsole.core import states as st
from ddconsole.core.coming_back import come_back
from ddconsole.core.row_text import GLYPHS, short_cause
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import cell_label
from ddconsole.core.visible_text import visible_line
from ddconsole.core.wire import StageStatus, Submission
from ddconsole.link.client import AgentError, LinkPhase
from ddconsole.link.console_identity import operator
from ddconsole.link.feed import RunFeed
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.mirror import Mirror

PAUSED = 3
"""Exit status when the sweep paused by itself: it waits on its host."""
_MIRROR_WAITED_FOR = 3.0
"""Seconds that an operator who leaves waits for the copies of what was finished last."""
_MIRROR_ALONE = 300.0
"""The same where nobody waits."""


@dataclass(frozen=True, slots=True)
class Stay:
    """How to stay."""

    headless: bool
    submission: Submission | None = None
    """For checks from the console; None when the run was found and not begun here."""
    export_at_end: bool = False
    readonly: bool = False
    """Look, and touch nothing."""
    begun: bool = False
    """The run was begun here: the console has control from the start."""


async def stay_on(client: HttpAgentClient, run: str, stay: Stay) -> int:
    """Stay until the run has ended (headless) or the operator leaves; the exit status."""
    folder = runs_folder() / run
    mirror = None if client.host == "local" else Mirror(client, run, folder)
    feed = LiveRunFeed(client, run, readonly=stay.readonly, journal=mirror.journal if mirror is not None else None)
    feed.start()
    if mirror is not None:
        mirror.start(reads_journal=False)
    try:
        if stay.headless or not _is_terminal():
            code = await follow(feed)
        else:
            if stay.begun:
                # Whoever begins a run has control; if that fails, the first command takes it.
                with suppress(AgentError):
                    await feed.take_control(None)
            code = await _console(client, feed, folder, stay)
        if stay.export_at_end and feed.state.phase is st.RunPhase.ENDED:
            await asyncio.to_thread(_export, folder)
        elif feed.state.phase is not st.RunPhase.ENDED:
            print(f"the sweep goes on at {feed.host}: {come_back(run, feed.host)}", file=sys.stderr)
        return code
    finally:
        await feed.close()
        if mirror is not None:
            await mirror.finish(_MIRROR_ALONE if stay.headless else _MIRROR_WAITED_FOR)
            await mirror.close()
            for problem in mirror.problems:
                print(f"copy of {run}: {visible_line(problem)}", file=sys.stderr)


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _console(client: HttpAgentClient, feed: RunFeed, folder: Path, stay: Stay) -> int:
    submission = stay.submission
    if submission is None:
        return await open_app(feed, folder, prompts=client.prompts)

    return await open_app(feed, folder, _Preflight(client, submission), client.prompts)


class _Preflight:
    """What the preflight screen asks of the agent, about the run's own plan."""

    def __init__(self, client: HttpAgentClient, submission: Submission) -> None:
        self._client = client
        self._submission = submission

    async def __call__(self) -> Sequence[Mapping[str, Any]]:
        return await self._client.preflight(self._submission, "standard")

    async def accept(self, check: str, because: str) -> Sequence[Mapping[str, Any]]:
        return await self._client.preflight(self._submission, "standard", accept=check, because=because, by=operator())

    async def stage(self) -> StageStatus:
        return await self._client.stage(self._submission)

    async def staged(self) -> StageStatus:
        return await self._client.staged()


def _export(folder: Path) -> None:
    export_folder(folder, folder / "report")


class _Lines:
    """Prints what changed between two states."""

    def __init__(self) -> None:
        self._cells: dict[str, st.CellState] = {}
        self._launches: dict[int, tuple[st.LaunchPhase, str]] = {}
        self._phase: st.RunPhase | None = None
        self._link: LinkPhase | None = None
        self._trouble = ""

    def look(self, feed: RunFeed) -> None:
        """Print the differences since the last look."""
        state = feed.state
        if feed.link.phase is not self._link:
            self._link = feed.link.phase
            if self._link is not LinkPhase.UP:
                because = f": {visible_line(feed.link.detail)}" if feed.link.detail else ""
                print(f"  link {self._link.value}{because}", flush=True)
        if feed.link.trouble != self._trouble:
            self._trouble = feed.link.trouble
            print(f"  {visible_line(self._trouble) or 'the agent goes on'}", flush=True)
        self._look_at_launches(state)
        self._look_at_cells(state)
        if state.phase is not self._phase:
            self._phase = state.phase
            if state.phase is not st.RunPhase.RUNNING:
                because = state.paused_because or state.outcome
                print(f"run {state.phase.value}: {visible_line(because)}", flush=True)

    def _look_at_launches(self, state: RunState) -> None:
        for number, launch in state.launches.items():
            step = launch.state.step if isinstance(launch.state, st.Starting | st.Stopping) else ""
            seen = (launch.state.phase, step)
            if self._launches.get(number) == seen:
                continue
            self._launches[number] = seen
            label = state.deployments[launch.deployment].label
            detail = step or (launch.cause.text if launch.cause else "")
            print(f"  launch {number} {label}: {launch.state.phase.value} {visible_line(detail)}".rstrip(), flush=True)

    def _look_at_cells(self, state: RunState) -> None:
        finished = sum(1 for row in state.cells.values() if row.state.phase in st.END_PHASES)
        for name, row in state.cells.items():
            if self._cells.get(name) == row.state:
                continue
            first = name not in self._cells
            self._cells[name] = row.state
            if isinstance(row.state, st.Pending) or (first and isinstance(row.state, st.Skipped | st.Unfit)):
                continue
            label = cell_label(row.cell, state.deployments[row.cell.deployment])
            text = "" if isinstance(row.state, st.Running) else _figures(state, name) or short_cause(row.state)
            glyph = GLYPHS[row.state.phase]
            line = f"{glyph} {finished}/{len(state.cells)} {name} {row.state.phase.value:11} {label}  {text}"
            print(visible_line(line).rstrip(), flush=True)


def _figures(state: RunState, name: str) -> str:
    attempt = state.cells[name].latest()
    if attempt is None or attempt.outcome is not st.CellPhase.DONE:
        return ""
    rate, first = attempt.figures.get("output_rate"), attempt.figures.get("ttft")
    parts = [f"{rate:.1f} tok/s" if rate else "", f"TTFT {first * 1000:.0f} ms" if first else "", *attempt.flags]
    return "  ".join(part for part in parts if part)


async def follow(feed: RunFeed) -> int:
    """Print progress until the run has ended or has paused by itself."""
    changed = asyncio.Event()
    end = feed.subscribe(lambda _names: changed.set())
    lines = _Lines()
    try:
        while True:
            lines.look(feed)
            state = feed.state
            if state.phase is st.RunPhase.ENDED and state.live_launch() is None:
                failed = [name for name, row in state.cells.items() if row.state.phase in _NOT_WELL]
                return 1 if failed else 0
            if state.phase is st.RunPhase.PAUSED and state.paused_by == "ddconsole" and state.running_cell() is None:
                print(f"paused: ddconsole resume {feed.run} goes on, ddconsole stop-run {feed.run} ends it", flush=True)
                return PAUSED
            if feed.link.phase is LinkPhase.DOWN:
                return 2
            changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), 5.0)
    finally:
        end()


_NOT_WELL = frozenset({st.CellPhase.FAILED, st.CellPhase.BLOCKED, st.CellPhase.INTERRUPTED})
