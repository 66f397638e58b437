"""What happened: the vocabulary of the journal.

Events are flat frozen dataclasses of JSON values, so that the codec is a dozen lines, an old reader ignores fields it
does not know, and an unknown event changes nothing. The runner writes the same events into its own file; the agent
takes them over into the journal with (launch, n), so taking one over twice changes nothing.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ddconsole.core.event_data import Data
from ddconsole.core.launch_events import (
    AttemptDone,
    AttemptFailed,
    AttemptInterrupted,
    AttemptStarted,
    AttemptStopped,
    EngineSeen,
    LaunchDirty,
    LaunchFailed,
    LaunchGone,
    LaunchHeld,
    LaunchPlanned,
    LaunchReady,
    LaunchStarting,
    LaunchStopping,
)

__all__ = [  # of others: readers of the journal find every event here
    "AttemptDone",
    "AttemptFailed",
    "AttemptInterrupted",
    "AttemptStarted",
    "AttemptStopped",
    "Data",
    "EngineSeen",
    "LaunchDirty",
    "LaunchFailed",
    "LaunchGone",
    "LaunchHeld",
    "LaunchPlanned",
    "LaunchReady",
    "LaunchStarting",
    "LaunchStopping",
]


@dataclass(frozen=True, slots=True)
class RunCreated:
    """A plan was submitted. First event of every journal."""

    run: str
    plan_name: str
    plan_sha256: str
    host: str
    baseline: str
    simulated: bool
    version: str
    engine: str
    protocol: Data = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeploymentAdded:
    """A deployment of the plan, or of an edit."""

    deployment: Data


@dataclass(frozen=True, slots=True)
class CellAdded:
    """A cell of the plan, or a duplicate."""

    cell: Data


@dataclass(frozen=True, slots=True)
class CellEdited:
    """The next revision of a cell: attempts of the revision before do not count any more."""

    cell: Data
    by: str
    changes: Data = field(default_factory=dict)
    """What was typed, as in `Command.changes`."""


@dataclass(frozen=True, slots=True)
class EpochBegan:
    """An agent took the journal over. `reason`: `created`, `restarted`, `host rebooted`, `container restarted`."""

    reason: str
    boot: str
    pid: int
    version: str
    since: float = 0.0
    """Wall time of the boot that voided what was known; 0 where there was none."""
    format: int = 1
    """Of the journal. A version that knows only lower ones does not write to it."""


@dataclass(frozen=True, slots=True)
class JournalRepaired:
    """A torn last line was cut off; its bytes stand in `kept_in`."""

    cut_bytes: int
    kept_in: str


@dataclass(frozen=True, slots=True)
class CommandTaken:
    """A command took effect. Its id takes effect at most once."""

    id: str
    name: str
    cells: tuple[str, ...]
    by: str
    text: str = ""
    """What was answered."""


@dataclass(frozen=True, slots=True)
class ControlTaken:
    """A console controls the run from now on; the one before only watches. `epoch` counts up by one each time."""

    by: str
    """user@machine."""
    console: str
    """Random id of the console's process."""
    epoch: int
    where: str = ""
    """Its terminal, or `command line`."""


# --- the schedule ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CellsMovedFirst:
    """`start`: these cells come next, in this order."""

    cells: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class CellsRetried:
    """From an end state back to pending."""

    cells: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class CellsSkipped:
    """Left out by the plan (`by` = `plan`) or by the operator."""

    cells: tuple[str, ...]
    by: str
    because: str


@dataclass(frozen=True, slots=True)
class CellsPutBack:
    """Left out before by ddconsole itself, and pending again."""

    cells: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class CellsPruned:
    """Left out by the protocol."""

    cells: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class CellsRepeated:
    """Done, and pending again for one more round: the protocol asks for a narrower interval, or to look for drift."""

    cells: tuple[str, ...]
    because: str
    sooner: bool = False
    """Before what else waits; one that still has a round to do gets no further one."""


@dataclass(frozen=True, slots=True)
class CellsUnfit:
    """A lower bound of their memory rules them out; `retry` overrules it."""

    cells: tuple[str, ...]
    because: str


@dataclass(frozen=True, slots=True)
class CellStopRequested:
    """`stop` or `skip` of a running cell; the attempt's end follows from the runner."""

    cell: str
    attempt: int
    by: str
    then_skip: bool = False


@dataclass(frozen=True, slots=True)
class RunPaused:
    """By whom, and why. `by` = `ddconsole` when a cause repeated, the gate held or something is dirty."""

    by: str
    because: str


@dataclass(frozen=True, slots=True)
class DeadlineSet:
    """When the sweep has to be over, by the host's clock at the moment it was said; `at` = 0 means no deadline."""

    at: float
    """Wall time."""
    text: str
    """`07:00 CET`."""
    by: str


@dataclass(frozen=True, slots=True)
class HostRechecked:
    """What was looked at after a boot, before anything goes on. With findings, the sweep pauses."""

    findings: tuple[str, ...] = ()
    """`CHECK: what was found`, of the checks that failed."""
    overruled: bool = False
    """The operator had seen these findings and told the sweep to go on."""


@dataclass(frozen=True, slots=True)
class RunResumed:
    """Go on."""

    by: str


@dataclass(frozen=True, slots=True)
class RunDraining:
    """No new launches."""

    by: str


@dataclass(frozen=True, slots=True)
class RunStopping:
    """Stop now."""

    by: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """`complete` when no cell is pending any more, else `stopped` or `drained`."""

    outcome: str


# --- debts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DebtTaken:
    """Something that the run must put back; written before it is taken away."""

    debt: str
    what: str
    record: Data = field(default_factory=dict)
    """What it takes to put it back, without secrets (`ddconsole.agent.debt_record`)."""
    boot: str = ""


@dataclass(frozen=True, slots=True)
class DebtSettled:
    """It is back, or waived by name."""

    debt: str
    how: str
    waived: bool = False
    """The run leaves it alone from now on."""


@dataclass(frozen=True, slots=True)
class DebtKept:
    """An attempt to put it back did not succeed: it stays a debt."""

    debt: str
    because: str


@dataclass(frozen=True, slots=True)
class DebtsAsked:
    """The operator wants them put back now."""

    debts: tuple[str, ...]
    by: str


@dataclass(frozen=True, slots=True)
class Warned:
    """Something the operator should know that changes no state."""

    text: str
    about: str = ""


Event = (
    RunCreated
    | DeploymentAdded
    | CellAdded
    | CellEdited
    | EpochBegan
    | JournalRepaired
    | CommandTaken
    | ControlTaken
    | LaunchPlanned
    | EngineSeen
    | LaunchHeld
    | LaunchStarting
    | LaunchReady
    | LaunchStopping
    | LaunchDirty
    | LaunchGone
    | LaunchFailed
    | AttemptStarted
    | AttemptDone
    | AttemptFailed
    | AttemptStopped
    | AttemptInterrupted
    | CellsMovedFirst
    | CellsRetried
    | CellsSkipped
    | CellsPutBack
    | CellsPruned
    | CellsRepeated
    | CellsUnfit
    | CellStopRequested
    | RunPaused
    | DeadlineSet
    | HostRechecked
    | RunResumed
    | RunDraining
    | RunStopping
    | RunEnded
    | DebtTaken
    | DebtSettled
    | DebtKept
    | DebtsAsked
    | Warned
)

EVENT_TYPES: dict[str, type[Event]] = {kind.__name__: kind for kind in Event.__args__}


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the agent took an event over from: the n-th line of a launch's event file."""

    launch: int
    n: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal. `seq` never starts again; `epoch` names the writer; `at` is wall time."""

    epoch: int
    seq: int
    at: float
    event: Event | None
    """None when this version does not know the event's type: it changes nothing and is counted."""
    origin: Origin | None = None
    more: int = 0
    """Lines that were written together with this one and stand behind it: all of them count, or none."""


def event_to_json(event: Event) -> dict[str, Any]:
    """`{"type": ..., <fields>}`."""
    return {"type": type(event).__name__, **asdict(event)}


def event_from_json(data: Data) -> Event | None:
    """The event, ignoring fields this version does not know; None for an unknown type or a missing field."""
    kind = EVENT_TYPES.get(str(data.get("type")))
    if kind is None:
        return None
    make: Callable[..., Event] = kind
    values = {
        one.name: tuple(data[one.name]) if isinstance(data[one.name], list) else data[one.name]
        for one in fields(kind)
        if one.name in data
    }
    try:
        return make(**values)
    except TypeError:
        return None
