"""Taking a runner's events over into the journal, and what follows when a runner is gone."""

import hashlib
import json

from ddconsole.agent.journal import Journal
from ddconsole.core import states as st
from ddconsole.core.attempt_file import AttemptFile, attempt_from_json
from ddconsole.core.clock import Clock
from ddconsole.core.events import (
    AttemptDone,
    AttemptInterrupted,
    Entry,
    Event,
    LaunchDirty,
    LaunchFailed,
    Origin,
)
from ddconsole.core.journal_line import DamagedLine, decode_line
from ddconsole.core.run_state import LaunchRow
from ddconsole.core.visible_text import visible_line
from ddconsole.engines.engine import Engine
from ddconsole.runner.belonging import members_of
from ddconsole.runner.durable import sweep_ruins
from ddconsole.runner.gpu_memory import GpuMemory, read_level
from ddconsole.runner.identity import ProcessIdentity
from ddconsole.runner.log_tail import last_lines
from ddconsole.runner.run_directory import LAST_WORDS, LaunchDirectory, RunDirectory
from ddconsole.runner.server_process import stop_members
from ddconsole.runner.shared_memory import clear_shared_memory


class RunnerEvents:
    """Reads one launch's event file and appends its events to the journal, each once."""

    def __init__(self, journal: Journal, run: RunDirectory, launch: int) -> None:
        self._journal = journal
        self._folder = run.launch(launch)
        self._launch = launch
        self._offset = 0

    def take_over(self) -> int:
        """Append what came since the last call; the number of events."""
        try:
            with self._folder.events.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return 0
        whole, _, _ = data.rpartition(b"\n")
        if not whole:
            return 0
        taken = 0
        for line in whole.split(b"\n"):
            entry = _decoded(line)
            row = self._journal.state.launches.get(self._launch)
            if entry is not None and entry.event is not None and row is not None and entry.seq > row.taken_over:
                self._journal.append([entry.event], Origin(self._launch, entry.seq))
                taken += 1
            self._offset += len(line) + 1
        return taken


def _decoded(line: bytes) -> Entry | None:
    """The entry, or None for the ruins of a line that a full disk or a kill left: it was never acknowledged."""
    try:
        return decode_line(line)
    except (DamagedLine, ValueError, KeyError, TypeError):
        return None


async def bury(journal: Journal, run: RunDirectory, launch: LaunchRow, engine: Engine, why: str, clock: Clock) -> None:
    """A runner is gone without having ended its launch: clear its processes away, then say what is known.

    The memory of its GPUs gets a minute to come back; else the launch is dirty, and who holds it is said.

    A result that was written whole before its event is adopted; a running cell without one is interrupted.
    """
    folder = run.launch(launch.number)
    left = await clean(folder, engine, clock)
    sweep_ruins(run.folders())
    level = read_level(folder.gpu_memory)
    if not left and level is not None:
        left = await GpuMemory(journal.state.deployments[launch.deployment].placement.gpus).wait_until_back(level)
    events: list[Event] = []
    row = journal.state.running_cell()
    if row is not None and isinstance(row.state, st.Running) and row.state.launch == launch.number:
        events.append(
            adopted(run, row.cell.id, row.state)
            or AttemptInterrupted(row.cell.id, row.state.attempt, launch.number, why)
        )
    evidence = tuple(visible_line(line, 300) for line in last_lines(folder.runner_log, 6))
    told = next((line.partition(LAST_WORDS)[2].strip() for line in evidence if f" {LAST_WORDS} " in line), "")
    cause = st.Cause("RUNNER-DIED", why, evidence, "goes on by itself", st.Retry.AS_IS)
    if told:
        text, remedy = f"the runner could not go on: {told}", "put it right, then resume"
        cause = st.Cause(st.STORAGE, text, evidence, remedy, st.Retry.AS_IS)
    events.append(LaunchFailed(launch.number, cause.id, cause.text, cause.evidence, cause.do, cause.retry))
    if left:
        events.append(LaunchDirty(launch.number, left))
    journal.append(events)


async def clean(folder: LaunchDirectory, engine: Engine, clock: Clock) -> tuple[str, ...]:
    """End every process of a launch whose runner is gone; the answer is what is left."""

    def members() -> set[ProcessIdentity]:
        return members_of(folder)

    left = await stop_members(members, None, engine.stop_steps, lambda _name, _deadline: None, clock)
    if not left:
        clear_shared_memory(folder.shared_memory)
    return left


def adopted(run: RunDirectory, cell: str, running: st.Running) -> AttemptDone | None:
    """The event that the runner could not write any more, if its result file is whole and is this attempt's."""
    path = run.attempt(cell, running.attempt)
    try:
        raw = path.read_bytes()
        attempt = attempt_from_json(json.loads(raw))
    except (OSError, ValueError):
        return None
    if not _is_of(attempt, cell, running):
        return None
    return AttemptDone(
        cell,
        running.attempt,
        running.launch,
        hashlib.sha256(raw).hexdigest(),
        attempt.fingerprint,
        attempt.figures,
        (*attempt.flags, "adopted: the runner died between the result and its event"),
    )


def _is_of(attempt: AttemptFile, cell: str, running: st.Running) -> bool:
    return (
        attempt.outcome == "done"
        and attempt.cell["id"] == cell
        and attempt.attempt == running.attempt
        and attempt.launch == running.launch
    )
