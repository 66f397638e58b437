"""What happened: the vocabulary of the journal.

Events are flat frozen dataclasses of JSON values, so that the codec is a dozen lines, an old reader ignores fields it
does not know, and an unknown event changes nothing. The runner writes the same events into its own file; the agent
takes them over into the journal with (launch, n), so taking one over twice changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeAlias

Data: TypeAlias = Mapping[str, Any]
"""A JSON object: a deployment, a cell or figures, as `ddconsole.core.sweep.to_json` writes it."""


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


# --- launches --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LaunchPlanned:
    """The agent is about to start a runner for this deployment. Written before the start."""

    launch: int
    deployment: str
    round: int


@dataclass(frozen=True, slots=True)
class EngineSeen:
    """What engine, model and configuration are, asked before a launch: written at the first, and when it changed.

    Launches and attempts from here on are a group of their own: their figures are never mixed with earlier ones.
    """

    identity: Data
    """See `ddconsole.core.engine_identity`."""
    changes: tuple[str, ...] = ()
    """Old → new, in words."""


@dataclass(frozen=True, slots=True)
class LaunchHeld:
    """The gate found what would spoil the launch; the sweep pauses."""

    deployment: str
    findings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchStarting:
    """The server was started, or says how far it is."""

    launch: int
    step: str
    progress: float | None = None
    pid: int | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class LaunchReady:
    """The server is ours, answers and does what was asked; what it says it runs with."""

    launch: int
    effective: Data = field(default_factory=dict)
    """Arguments read back from the server."""
    build: Data = field(default_factory=dict)
    """Version, commit and the like."""
    start_seconds: float = 0.0
    canary: Data = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LaunchStopping:
    """One step of ending the server; `deadline` is the wall time of the next."""

    launch: int
    step: str
    deadline: float


@dataclass(frozen=True, slots=True)
class LaunchDirty:
    """Something of the launch is left."""

    launch: int
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LaunchGone:
    """Nothing of the launch is left."""

    launch: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """It did not become ready, or died. The cause in the fields of `ddconsole.core.states.Cause`."""

    launch: int
    cause: str
    text: str
    evidence: tuple[str, ...] = ()
    do: str = ""
    retry: str = "change"


# --- attempts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The runner claimed the cell and begins to measure."""

    cell: str
    attempt: int
    launch: int
    round: int
    revision: int


@dataclass(frozen=True, slots=True)
class AttemptDone:
    """The attempt's file is on disk; `sha256` is the file's, `figures` a `Summary` as JSON."""

    cell: str
    attempt: int
    launch: int
    sha256: str
    fingerprint: str
    figures: Data
    flags: tuple[str, ...] = ()
    """What disturbed it."""


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """The attempt failed; its partial records are kept in its file where `sha256` is not empty."""

    cell: str
    attempt: int
    launch: int
    cause: str
    text: str
    evidence: tuple[str, ...] = ()
    do: str = ""
    retry: str = "change"
    sha256: str = ""
    figures: Data = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptStopped:
    """The operator ended it."""

    cell: str
    attempt: int
    launch: int
    by: str
    sha256: str = ""
    figures: Data = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptInterrupted:
    """Who ran it died. `blameless`: it was no fault of the cell's, so it goes back to pending whatever came before."""

    cell: str
    attempt: int
    launch: int
    why: str
    blameless: bool = False


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
