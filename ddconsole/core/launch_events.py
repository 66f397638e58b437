"""What happens to launches and attempts: the events that a runner writes, and what the agent notes of a launch."""

from dataclasses import dataclass, field

from ddconsole.core.event_data import Data


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
