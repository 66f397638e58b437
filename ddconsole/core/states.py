"""The life of a launch and of a cell: two tables, from which the API, the keys, the help and the README are made.

A state carries its own data, so an impossible state cannot be written. `unknown since` is not here: it belongs to
what a console knows, never to a cell.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class Retry(StrEnum):
    """May a failure be tried again."""

    AS_IS = "asis"
    """The same once more, twice at most, after clean-up."""
    CHANGE = "change"
    """Only after a change of plan, flags or environment."""
    NEVER = "never"
    """This host or build cannot run it."""


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something failed: an id from failures.yaml or of our own, and what the operator needs to know."""

    id: str
    text: str
    evidence: tuple[str, ...] = ()
    do: str = ""
    retry: Retry = Retry.CHANGE


HOST_STARTED_ANEW = "HOST-STARTED-ANEW"
"""Cause of a launch that ended with the machine it ran on: no fault of the deployment's, and not counted as one."""


STORAGE = "DISK"
"""Cause of an attempt or a launch that could not write down what it found: nothing goes on before that is mended."""


# --- cells -----------------------------------------------------------------------------------------------------


class CellPhase(StrEnum):
    """The name of a cell's state."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    SKIPPED = "skipped"
    PRUNED = "pruned"
    BLOCKED = "blocked"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Pending:
    """It waits for its turn."""

    phase: ClassVar[CellPhase] = CellPhase.PENDING
    automatic_retry_of: Cause | None = None
    """Set while it waits for a retry that the cause allows."""
    again: bool = False
    """Told to be measured once more: it may join a launch that has measured it before."""


@dataclass(frozen=True, slots=True)
class Running:
    """It is being measured."""

    phase: ClassVar[CellPhase] = CellPhase.RUNNING
    attempt: int
    launch: int
    round: int
    since: float


@dataclass(frozen=True, slots=True)
class Done:
    """Each round has a done attempt."""

    phase: ClassVar[CellPhase] = CellPhase.DONE
    at: float


@dataclass(frozen=True, slots=True)
class Failed:
    """An attempt failed and nothing tries again by itself."""

    phase: ClassVar[CellPhase] = CellPhase.FAILED
    cause: Cause
    at: float


@dataclass(frozen=True, slots=True)
class Stopped:
    """The operator ended the attempt; what was measured is kept beside the results."""

    phase: ClassVar[CellPhase] = CellPhase.STOPPED
    by: str
    at: float


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Runner, agent or host died during the attempt."""

    phase: ClassVar[CellPhase] = CellPhase.INTERRUPTED
    why: str
    at: float


@dataclass(frozen=True, slots=True)
class Skipped:
    """Left out by the plan or by the operator."""

    phase: ClassVar[CellPhase] = CellPhase.SKIPPED
    by: str
    because: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """Left out by the protocol, with the numbers that decided."""

    phase: ClassVar[CellPhase] = CellPhase.PRUNED
    because: str


@dataclass(frozen=True, slots=True)
class Blocked:
    """Its launch failed for a cause that repeats."""

    phase: ClassVar[CellPhase] = CellPhase.BLOCKED
    launch: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Unfit:
    """A lower bound of its memory is above what the GPU has."""

    phase: ClassVar[CellPhase] = CellPhase.UNFIT
    because: str


CellState = Pending | Running | Done | Failed | Stopped | Interrupted | Skipped | Pruned | Blocked | Unfit


class CellCommand(StrEnum):
    """What an operator can tell a cell."""

    START = "start"
    """Make it the next one."""
    START_NOW = "start-now"
    """As start, and stop what runs."""
    STOP = "stop"
    """End its requests, not the server."""
    RETRY = "retry"
    """Once more, as attempt n + 1."""
    TAKE_BACK = "take-back"
    """Undo a pruning: this cell and all that were pruned with it are measured after all."""
    SKIP = "skip"
    """Leave it out; a running one is stopped and not tried again."""
    EDIT = "edit"
    DUPLICATE = "duplicate"


END_PHASES = frozenset(CellPhase) - {CellPhase.PENDING, CellPhase.RUNNING}
"""Phases in which nothing will happen by itself."""

CELL_COMMANDS: dict[CellCommand, frozenset[CellPhase]] = {
    CellCommand.START: frozenset({CellPhase.PENDING}),
    CellCommand.START_NOW: frozenset({CellPhase.PENDING}),
    CellCommand.STOP: frozenset({CellPhase.RUNNING}),
    CellCommand.RETRY: END_PHASES,
    CellCommand.TAKE_BACK: frozenset({CellPhase.PRUNED}),
    CellCommand.SKIP: frozenset(CellPhase) - {CellPhase.DONE, CellPhase.SKIPPED},
    CellCommand.EDIT: frozenset(CellPhase) - {CellPhase.RUNNING},
    CellCommand.DUPLICATE: frozenset(CellPhase),
}
"""Which command is legal in which phase."""

CELL_TRANSITIONS: dict[CellPhase, frozenset[CellPhase]] = {
    CellPhase.PENDING: frozenset(
        {CellPhase.RUNNING, CellPhase.SKIPPED, CellPhase.PRUNED, CellPhase.BLOCKED, CellPhase.UNFIT}
    ),
    CellPhase.RUNNING: frozenset(
        {
            CellPhase.DONE,
            CellPhase.PENDING,
            CellPhase.FAILED,
            CellPhase.STOPPED,
            CellPhase.INTERRUPTED,
            CellPhase.SKIPPED,
        }
    ),
    **{phase: frozenset({CellPhase.PENDING, CellPhase.SKIPPED}) for phase in END_PHASES},
}
"""Which phase may follow which. From running to pending: a round is done and more are to come, or a retry is due."""


# --- launches --------------------------------------------------------------------------------------------------


class LaunchPhase(StrEnum):
    """The name of a launch's state."""

    PLANNED = "planned"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    DIRTY = "dirty"
    GONE = "gone"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Planned:
    """Written down before anything is started."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.PLANNED


@dataclass(frozen=True, slots=True)
class Starting:
    """The server loads."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.STARTING
    step: str
    """In the engine's terms: `load weights`, `capture graphs`, ..."""
    progress: float | None
    """0 to 1 within the step, where the log tells."""
    since: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The server answers, is ours, and does what was asked."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.READY
    since: float


@dataclass(frozen=True, slots=True)
class Stopping:
    """The server is being ended, step by step."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.STOPPING
    step: str
    """`asked (SIGINT)`, `killed`, `waiting for memory`, ..."""
    deadline: float
    """Wall time at which the next step is taken."""


@dataclass(frozen=True, slots=True)
class Dirty:
    """Something of it is left: the sweep waits."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.DIRTY
    holders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gone:
    """No process, no port, no memory is left of it."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.GONE
    at: float


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """The server did not become ready, or died; what is left of it has been cleared away."""

    phase: ClassVar[LaunchPhase] = LaunchPhase.FAILED
    cause: Cause
    at: float


LaunchState = Planned | Starting | Ready | Stopping | Dirty | Gone | LaunchFailed

LAUNCH_TRANSITIONS: dict[LaunchPhase, frozenset[LaunchPhase]] = {
    LaunchPhase.PLANNED: frozenset(
        {LaunchPhase.STARTING, LaunchPhase.STOPPING, LaunchPhase.FAILED, LaunchPhase.DIRTY, LaunchPhase.GONE}
    ),
    LaunchPhase.STARTING: frozenset(
        {
            LaunchPhase.STARTING,
            LaunchPhase.READY,
            LaunchPhase.STOPPING,
            LaunchPhase.FAILED,
            LaunchPhase.DIRTY,
            LaunchPhase.GONE,
        }
    ),
    LaunchPhase.READY: frozenset({LaunchPhase.STOPPING, LaunchPhase.FAILED, LaunchPhase.DIRTY, LaunchPhase.GONE}),
    LaunchPhase.STOPPING: frozenset({LaunchPhase.STOPPING, LaunchPhase.GONE, LaunchPhase.DIRTY, LaunchPhase.FAILED}),
    LaunchPhase.DIRTY: frozenset({LaunchPhase.GONE, LaunchPhase.FAILED}),
    LaunchPhase.GONE: frozenset(),
    LaunchPhase.FAILED: frozenset({LaunchPhase.GONE, LaunchPhase.DIRTY}),
}
"""Which phase may follow which."""

LIVE_LAUNCH_PHASES = frozenset({LaunchPhase.PLANNED, LaunchPhase.STARTING, LaunchPhase.READY, LaunchPhase.STOPPING})
"""Phases in which a runner should exist."""


# --- the run ---------------------------------------------------------------------------------------------------


class RunPhase(StrEnum):
    """What the sweep as a whole does."""

    RUNNING = "running"
    PAUSED = "paused"
    """After the current cell; the server stays up."""
    DRAINING = "draining"
    """No new launches: what the running server still has to do is done."""
    STOPPING = "stopping"
    """What runs is being ended."""
    ENDED = "ended"


class RunCommand(StrEnum):
    """What an operator can tell a sweep: three ways to end it, never mixed up, and going on."""

    PAUSE = "pause"
    """Take no further cell after this one."""
    RESUME = "resume"
    DRAIN = "no-new-launches"
    STOP = "stop-run"
    """Stop now."""
    SETTLE = "settle-debts"
    """Put back now what the run has stopped."""
    WAIVE = "waive-debts"
    """Leave units that are named alone from now on; the operator sees to them."""
    UNTIL = "until"
    """Be over by a time of the host's day, or have no deadline any more."""


class ControlCommand(StrEnum):
    """What an operator can say of who controls: any number of consoles watch, one controls."""

    TAKE = "take-control"


RUN_COMMANDS: dict[RunCommand, frozenset[RunPhase]] = {
    RunCommand.PAUSE: frozenset({RunPhase.RUNNING, RunPhase.DRAINING}),
    RunCommand.RESUME: frozenset({RunPhase.PAUSED, RunPhase.DRAINING, RunPhase.ENDED}),
    RunCommand.DRAIN: frozenset({RunPhase.RUNNING, RunPhase.PAUSED}),
    RunCommand.STOP: frozenset({RunPhase.RUNNING, RunPhase.PAUSED, RunPhase.DRAINING}),
    RunCommand.SETTLE: frozenset({RunPhase.PAUSED, RunPhase.ENDED}),
    RunCommand.WAIVE: frozenset(RunPhase),
    RunCommand.UNTIL: frozenset(RunPhase) - {RunPhase.STOPPING},
}
"""Which command is legal in which phase."""

ABOUT_DEBTS = frozenset({RunCommand.SETTLE, RunCommand.WAIVE})
"""Commands that mean something only to a run that owes something."""
