"""What the journal says at one moment: the run, its cells with their attempts, its launches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.sweep import Cell, Deployment


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a cell. Attempts are never overwritten."""

    number: int
    launch: int
    round: int
    revision: int
    started: float
    outcome: st.CellPhase = st.CellPhase.RUNNING
    """`running`, `done`, `failed`, `stopped` or `interrupted`."""
    ended: float | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    """A `Summary` as JSON."""
    flags: tuple[str, ...] = ()
    cause: st.Cause | None = None
    sha256: str = ""
    fingerprint: str = ""
    by: str = ""
    group: int = 0
    """Counts changes of engine, model or configuration: figures of two groups are never mixed."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit of a cell: the revision that it made, by whom, and what was typed."""

    revision: int
    by: str
    changes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Controller:
    """The console that controls the run, since when (wall time of the agent), and the control epoch it holds."""

    by: str
    console: str
    epoch: int
    since: float
    where: str = ""

    def who(self) -> str:
        """`ann@laptop (pts/3)`."""
        return f"{self.by} ({self.where})" if self.where else self.by


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell with its state and its attempts."""

    cell: Cell
    state: st.CellState
    attempts: tuple[Attempt, ...] = ()
    stop_requested: bool = False
    skip_after_stop: bool = False
    edits: tuple[Edit, ...] = ()
    stop_by: str = ""
    """Who asked for the stop."""
    kept: bool = False
    """The operator took it back after it was pruned: it is not pruned again."""
    sooner: bool = False
    """The protocol wants its next round before what else waits: the baseline, to see drift."""

    def done_attempts(self) -> tuple[Attempt, ...]:
        """Those of this revision that count: the first done one of each round."""
        first: dict[int, Attempt] = {}
        for attempt in self.attempts:
            if attempt.outcome is st.CellPhase.DONE and attempt.revision == self.cell.revision:
                first.setdefault(attempt.round, attempt)
        return tuple(first[number] for number in sorted(first))

    def compared_attempts(self) -> tuple[Attempt, ...]:
        """Those that make the cell's figures: of all that count, the ones of the newest engine."""
        done = self.done_attempts()
        newest = max((attempt.group for attempt in done), default=0)
        return tuple(attempt for attempt in done if attempt.group == newest)

    def next_round(self) -> int | None:
        """The first round without a done attempt, from 1; None when all have one."""
        done = {attempt.round for attempt in self.done_attempts()}
        return next((number for number in range(1, self.cell.rounds + 1) if number not in done), None)

    def latest(self) -> Attempt | None:
        """The attempt that began last."""
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One start of a deployment's server."""

    number: int
    deployment: str
    round: int
    state: st.LaunchState
    planned: float
    pid: int | None = None
    port: int | None = None
    effective: Mapping[str, Any] = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)
    start_seconds: float | None = None
    canary: Mapping[str, Any] = field(default_factory=dict)
    cause: st.Cause | None = None
    """Why it failed: kept while what is left of it is cleared away."""
    taken_over: int = 0
    """How many lines of its event file are in the journal."""


@dataclass(frozen=True, slots=True)
class Debt:
    """Something of the host's that the run took away and has to put back."""

    what: str
    taken: float
    record: Mapping[str, Any] = field(default_factory=dict)
    boot: str = ""
    """The boot in which it was taken."""
    problem: str = ""
    """Why the last attempt to put it back failed."""
    asked: bool = False
    """The operator wants it back now."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to know that changes no state."""

    at: float
    text: str
    about: str


@dataclass(frozen=True, slots=True)
class RunState:
    """Everything that the journal says."""

    created: ev.RunCreated | None = None
    phase: st.RunPhase = st.RunPhase.RUNNING
    phase_seq: int = 0
    """Of the entry that last set the phase."""
    paused_because: str = ""
    paused_by: str = ""
    outcome: str = ""
    deployments: Mapping[str, Deployment] = field(default_factory=dict)
    cells: Mapping[str, CellRow] = field(default_factory=dict)
    """In the order of the table."""
    queue: tuple[str, ...] = ()
    """Cells that were told to come next, in order."""
    launches: Mapping[int, LaunchRow] = field(default_factory=dict)
    commands: Mapping[str, ev.CommandTaken] = field(default_factory=dict)
    """Those that have taken effect, by their ids."""
    controller: Controller | None = None
    """Who controls the run; nobody before the first command of a console."""
    debts: Mapping[str, Debt] = field(default_factory=dict)
    """Unsettled ones, by id."""
    waived: frozenset[str] = frozenset()
    """Units that the operator has taken on himself: the run leaves them alone."""
    warnings: tuple[Notice, ...] = ()
    held: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What holds back the launch of a deployment, until it is launched after all."""
    epoch: int = 0
    seq: int = 0
    resumed_at_launch: int = 0
    """Launches up to this one were known when the operator last said to go on."""
    resumed_at: float = 0.0
    """Wall time at which the operator last said to go on."""
    deadline: ev.DeadlineSet | None = None
    """What was said last of when it has to be over."""
    engine: Mapping[str, Any] = field(default_factory=dict)
    """What engine, model and configuration were when they were asked last."""
    group: int = 0
    """How often they changed."""
    boot: str = ""
    booted: float = 0.0
    """Wall time of a boot after which nothing has been checked yet; 0 when nothing is to be checked."""
    boot_why: str = ""
    """`host rebooted` or `container restarted`."""
    boot_findings: tuple[str, ...] = ()
    """What the check after that boot found, as the operator has seen it."""
    began: float = 0.0
    at: float = 0.0
    """Wall time of the last entry."""
    unknown_events: int = 0
    impossible_events: int = 0
    """Events that the tables do not allow where they came: they changed nothing."""

    def live_launch(self) -> LaunchRow | None:
        """The launch for which a runner should exist, or that left something behind."""
        for launch in reversed(tuple(self.launches.values())):
            if launch.state.phase in st.LIVE_LAUNCH_PHASES or launch.state.phase is st.LaunchPhase.DIRTY:
                return launch
        return None

    def running_cell(self) -> CellRow | None:
        """The cell that is being measured."""
        return next((row for row in self.cells.values() if isinstance(row.state, st.Running)), None)

    def deployments_left(self) -> tuple[Deployment, ...]:
        """Those with a cell that waits, in the order of the plan."""
        names = {row.cell.deployment for row in self.cells.values() if isinstance(row.state, st.Pending)}
        return tuple(one for name, one in self.deployments.items() if name in names)

    def counts(self) -> dict[st.CellPhase, int]:
        """Cells by phase; phases without cells are left out."""
        numbers: dict[st.CellPhase, int] = {}
        for row in self.cells.values():
            numbers[row.state.phase] = numbers.get(row.state.phase, 0) + 1
        return numbers
