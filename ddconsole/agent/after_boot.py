"""What follows when the machine was started anew under a run: its pids mean nothing any more, and it waits."""

import json
from datetime import datetime

from ddconsole.agent.journal import Journal
from ddconsole.agent.takeover import RunnerEvents, adopted
from ddconsole.core import states as st
from ddconsole.core.events import AttemptInterrupted, Event, LaunchFailed, LaunchGone, RunPaused
from ddconsole.core.host_changes import host_changes
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.run_state import RunState
from ddconsole.runner.run_directory import RunDirectory

BY = "ddconsole"


def boot_in_words(what: str, since: float, now: float) -> str:
    """`host rebooted 03:12`, by the host's clock and zone; with the date when it was not today."""
    at = datetime.fromtimestamp(since).astimezone()
    today = datetime.fromtimestamp(now).astimezone().date() == at.date()
    return f"{what} {at:%H:%M}" if today else f"{what} {at:%-d %b %H:%M}"


def void_what_lived(journal: Journal, run: RunDirectory, why: str) -> None:
    """End the launch and the cell of before the boot on paper alone: no process is looked for, none is signalled.

    What the runner wrote before the machine went is taken over first: a result with its event, or whole without it,
    counts.
    """
    live = journal.state.live_launch()
    if live is None:
        return
    RunnerEvents(journal, run, live.number).take_over()
    state = journal.state
    events: list[Event] = []
    row = state.running_cell()
    if row is not None and isinstance(row.state, st.Running) and row.state.launch == live.number:
        interrupted = AttemptInterrupted(row.cell.id, row.state.attempt, live.number, why, blameless=True)
        events.append(adopted(run, row.cell.id, row.state) or interrupted)
    launch = state.launches[live.number]
    if launch.state.phase is st.LaunchPhase.DIRTY:
        events.append(LaunchGone(live.number))
    elif launch.state.phase in st.LIVE_LAUNCH_PHASES:
        do = "goes on after resume"
        events.append(LaunchFailed(live.number, st.HOST_STARTED_ANEW, why, do=do, retry=st.Retry.AS_IS))
    journal.append(events)


def say_so(journal: Journal, run: RunDirectory, why: str, host: HostState | None) -> None:
    """Pause with the reason, and with what else is different since the run's last launch."""
    state = journal.state
    if state.phase is not st.RunPhase.PAUSED or state.paused_because.startswith(why):
        return
    changes = changes_since(run, host)
    parts = [why]
    parts += [f"before that: {state.paused_because}"] if state.paused_because != state.boot_why else []
    parts += [f"changed since: {'; '.join(changes)}"] if changes else []
    journal.append([RunPaused(BY, "; ".join(parts))])


def changes_since(run: RunDirectory, host: HostState | None) -> tuple[str, ...]:
    """What is different about the machine since the gate of the run's last launch looked at it."""
    if host is None:
        return ()
    try:
        before = host_state_from_json(json.loads(run.environment.read_bytes()))
    except (OSError, ValueError):
        return ()
    return host_changes(before, host)


def new_findings(state: RunState, findings: tuple[str, ...]) -> tuple[str, ...]:
    """Findings of checks that the operator has not seen fail after this boot."""
    seen = {one.partition(":")[0] for one in state.boot_findings}
    return tuple(one for one in findings if one.partition(":")[0] not in seen)
