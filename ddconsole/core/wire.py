"""What agent and console say to each other over HTTP, as plain values.

The paths:

    GET  /v1/hello                                  Hello
    GET  /v1/host                                   HostState (`ddconsole.core.host_state`)
    GET  /v1/runs                                   list of RunSummary
    POST /v1/runs                                   Submission -> {"run": id}
    GET  /v1/runs/RUN/journal?after=SEQ&crc=C       `{"beat": wall time, "seq": last entry}` at once and every five
                                                    seconds, and journal lines as they are on disk, then new ones as
                                                    they come: gap-free; 409 E303 if the line of SEQ has another
                                                    checksum than C
    GET  /v1/runs/RUN/live?launch=N&from=BYTE       LiveItem lines, droppable: progress, decode figures, host, log
                                                    lines, who watches
    GET  /v1/runs/RUN/log/LAUNCH?offset=B&limit=B   bytes of server.log, raw
    GET  /v1/runs/RUN/file?path=cells/c001/1.json   a file of the run directory
    GET  /v1/runs/RUN/files?under=launches/3/       [{"path", "size", "sha256"}]; no hash: the file still grows
    GET  /v1/runs/RUN/piece?path=P&offset=B&limit=B bytes of a file, packed on the way; `X-Size` is the file's size
    POST /v1/runs/RUN/commands                      Command -> CommandAnswer; 409 with one where another console
                                                    has control
    POST /v1/preflight                              {"submission": ..., "tier": ..., and if wanted "accept": id,
                                                    "because": text, "by": who, "revoke": id, "record": true,
                                                    "seen": what the console saw of the host: "round_trip" and
                                                    "clock_offset" in seconds}
                                                    -> list of findings
    POST /v1/stage                                  {"submission": ..., "forget": bool} -> StageStatus; it goes on alone
    GET  /v1/stage                                  StageStatus
    POST /v1/stage/stop                             StageStatus, once it has stopped
    POST /v1/quit                                   the agent leaves if no run is active

Streams, logs and pieces are packed (`deflate`) for a client that takes that.
Answers that are not 200 carry `{"error": text, "do": text}`. A console names itself in each request's
`CONSOLE_HEADER`: by that the agent knows who watches, and when each was last heard.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddconsole.core.run_state import Controller

CONSOLE_HEADER = "DDConsole-Console"
"""A console's random id."""

PROTOCOL = 1
"""Changes when an old console and a new agent could misunderstand each other."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Who answers."""

    protocol: int
    version: str
    agent: str
    """Random id of this agent process."""
    pid: int
    boot: str
    started: float
    hostname: str
    run: str | None
    """The active run."""
    simulated: bool = False
    now: float = 0.0
    """The agent's wall time, for showing ages across clocks."""
    clock_scale: float = 1.0
    """How many times faster than real time the agent's clock runs: 1 but in a rehearsal."""
    problems: tuple[str, ...] = ()
    """Runs that could not be taken over when the agent started, and why."""
    one_controls: bool = False
    """The agent knows who controls a run. An older one lets every console steer."""
    held: str = ""
    """Who holds the agent's process, and why: `systemd user unit ...`, or a session of its own."""
    after_reboot: str = ""
    """While a run is unfinished: whether the agent starts again by itself after a reboot."""


@dataclass(frozen=True, slots=True)
class RunSummary:
    """One run of the host."""

    run: str
    plan_name: str
    phase: str
    outcome: str
    began: float
    at: float
    counts: Mapping[str, int]
    simulated: bool
    active: bool


@dataclass(frozen=True, slots=True)
class Submission:
    """A plan with everything that the host needs to run it; the host never reads a file of the operator's machine."""

    run: str
    plan_text: str
    plan_name: str
    plan_sha256: str
    host: str
    baseline: str
    engine: Mapping[str, Any]
    """kind, command (argv), env, cwd."""
    model: Mapping[str, Any]
    """path, draft, source."""
    protocol: Mapping[str, Any]
    deployments: tuple[Mapping[str, Any], ...]
    cells: tuple[Mapping[str, Any], ...]
    skipped: tuple[tuple[str, str], ...]
    """(cell, because)."""
    unfit: tuple[tuple[str, str], ...]
    texts: Mapping[str, Any]
    """Prompt sets and scripts (`ddconsole.load.prompts.WorkloadTexts`)."""
    expect: Mapping[str, Any] = field(default_factory=dict)
    displace: tuple[Mapping[str, Any], ...] = ()
    notify: tuple[str, ...] = ()
    rehearsal: Mapping[str, Any] | None = None
    """`{"scale": ..., "faults": [...]}`: the host is simulated."""
    version: str = ""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """How far the staging of a model is."""

    phase: str = "idle"
    """`idle`, `looking`, `copying`, `checking`, `done`, `failed` or `stopped`."""
    what: str = ""
    """The model's path."""
    file: str = ""
    done: int = 0
    """Bytes."""
    total: int = 0
    """Bytes; 0 where it is not known beforehand."""
    began: float = 0.0
    ended: float = 0.0
    problem: str = ""
    do: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A cell as the operator saw it: the number of its latest attempt (0 before the first), and its revision."""

    phase: str
    attempt: int
    revision: int


@dataclass(frozen=True, slots=True)
class Command:
    """One command of an operator. Its id takes effect at most once."""

    id: str
    name: str
    """A `CellCommand`, `RunCommand` or `ControlCommand` value."""
    by: str
    """user@machine."""
    cells: tuple[str, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    """For `edit`: field -> text, and `flag:--name` -> text or None (removed). For `waive-debts`:
    unit -> None."""
    because: str = ""
    console: str = ""
    """Random id of the console's process; empty from a console that is older than control."""
    where: str = ""
    """The console's terminal, or `command line`."""
    epoch: int = 0
    """The control epoch that the console holds; for `take-control`, the one that it was shown (0: nobody's)."""
    once: bool = False
    """From a command line that does not stay: see `ddconsole.core.steering`."""
    take: bool = False
    """The operator wants control from whoever has it."""
    expected: Mapping[str, Seen] = field(default_factory=dict)
    """The cells as the operator saw them; a cell that has moved on since is left as it is."""
    expected_phase: int = 0
    """`RunState.phase_seq` as the operator saw it: a pause is ended only by who saw it. 0: not said."""


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What became of a command."""

    taken: bool
    text: str
    """What was done, or why it was refused and what is possible instead."""
    cells: tuple[str, ...] = ()
    """The cells it took effect on; for `duplicate`, the new ones."""
    epoch: int = 0
    """The control epoch that `take-control` gave."""
    controller: Controller | None = None
    """Refused because this console has control."""


@dataclass(frozen=True, slots=True)
class Watchers:
    """Who is there, as far as the agent hears: droppable, never in the journal."""

    consoles: int
    """Consoles on the run."""
    controller: str
    """Id of the console that has control; empty where nobody has it."""
    controller_here: bool
    controller_age: float | None
    """Real seconds since the console that has control was heard; None where nobody has it."""

    def same_as(self, other: "Watchers") -> bool:
        """Whether nothing but time has passed between the two."""
        return replace(self, controller_age=None) == replace(other, controller_age=None)


@dataclass(frozen=True, slots=True)
class DecodeFigures:
    """The engine's own figures while it decodes, for watching only."""

    launch: int
    at: float
    output_rate: float | None
    running: int | None
    queued: int | None
    acceptance_length: float | None


@dataclass(frozen=True, slots=True)
class LogPiece:
    """Lines of a server's log. `offset` is the byte after the last line; `dropped` counts lines left out before."""

    launch: int
    offset: int
    lines: tuple[str, ...]
    dropped: int = 0
