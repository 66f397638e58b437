"""The seam between the runner and an inference server. A new engine is one module and one line in `register.py`."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ddconsole.core.states import Cause
from ddconsole.core.sweep import Deployment, WorkloadPoint


@dataclass(frozen=True, slots=True)
class ServerStart:
    """Everything that decides how one server is started."""

    deployment: Deployment
    command: tuple[str, ...]
    """Where the engine is: the plan's `engine.command`, or its interpreter and module."""
    model: str
    draft: str | None
    served_name: str
    """Unique to this launch: readiness checks that the server answers to it."""
    port: int
    known_flags: frozenset[str] | None
    """Option strings of this build's `--help`; None when it could not be asked."""
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """What is executed, without a shell. `env` is added to the environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class EngineArgumentError(ValueError):
    """The plan's arguments cannot be turned into a command line of this build. `field` says which, `do` what helps."""

    def __init__(self, field: str, text: str, do: str) -> None:
        super().__init__(f"{field}: {text} → {do}")
        self.field = field
        self.text = text
        self.do = do


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer. `body` is the parsed JSON, or None where it is none."""

    status: int
    body: Any
    text: str


class ServerApi(Protocol):
    """HTTP to the server under test. Paths begin with `/`; errors of the connection are `OSError` or `TimeoutError`."""

    async def get(self, path: str, timeout: float = 5.0) -> Answer:
        """GET; `timeout` in seconds."""
        ...

    async def post(self, path: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> Answer:
        """POST JSON; `timeout` in seconds."""
        ...


# --- the log ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """How far the start is: a name in the engine's terms and 0 to 1 within it, where told."""

    name: str
    progress: float | None = None


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """The engine's own figures while it decodes: for watching only, never a result."""

    output_rate: float | None
    running: int | None
    queued: int | None
    acceptance_length: float | None
    cuda_graph: bool | None = None


@dataclass(frozen=True, slots=True)
class LogNotice:
    """A line worth a mark: an entry of the failure catalogue. `fatal` is False for noise that only annotates."""

    cause: Cause
    fatal: bool


LogItem = Step | DecodeLine | LogNotice


class LogReader(Protocol):
    """Reads one server's log, line by line, and keeps what readiness and classification need."""

    facts: dict[str, Any]
    """What the log has told so far: `effective` arguments, `speculation` (initialised: budget, block size), ..."""

    def feed(self, line: str) -> list[LogItem]:
        """One line without its newline; carriage returns are still in it."""
        ...


# --- readiness, counters, stopping -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the server can be measured. Not ready with a `cause` is final; without, ask again."""

    ready: bool
    why: str
    """What is still missing, for the screen."""
    cause: Cause | None = None
    effective: Mapping[str, Any] = field(default_factory=dict)
    build: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Counters:
    """The engine's own counts since its start, over all ranks. None where this build does not count it."""

    output_tokens: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    verify_steps: int | None = None
    """Steps that verified a draft, or decoded without one, where the engine counts all of them."""
    drafting_steps: int | None = None
    """Steps that drafted something, where the engine counts only those."""
    drafted: int | None = None
    accepted: int | None = None
    accepted_at: tuple[int, ...] | None = None
    """Accepted drafts by position, from the first on."""
    ttft_count: int | None = None
    """Requests in the engine's histogram of the time to the first token."""
    ttft_seconds: float | None = None
    """The sum of their times."""
    raw: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StopStep:
    """One step of ending a server: a signal to its main process or to its whole tree, and how long it may take."""

    name: str
    signal: signal.Signals
    whole_tree: bool
    grace: float
    """Seconds until the next step."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Whether the prefix cache is known to be empty."""

    done: bool
    detail: str


class Engine(Protocol):
    """An inference server's ways."""

    kind: str
    owned_flags: frozenset[str]
    """Flags that ddconsole sets itself: a plan that gives one is refused."""
    stop_steps: Sequence[StopStep]

    def default_command(self, python: str) -> tuple[str, ...]:
        """How the server is started with an interpreter, where the plan names no command."""
        ...

    def help_command(self, command: tuple[str, ...]) -> tuple[str, ...]:
        """What prints the option strings of this build."""
        ...

    def flags_of_help(self, text: str) -> frozenset[str]:
        """The option strings in a help text."""
        ...

    def build_command(self, command: tuple[str, ...]) -> tuple[str, ...] | None:
        """What prints version, path, commit and packages of this build as JSON, or its version as `version: ...`.

        None where nothing does.
        """
        ...

    def server_command(self, start: ServerStart) -> ServerCommand:
        """The command line and environment.

        Raises:
            EngineArgumentError: a flag that ddconsole owns, that this build does not have, or that has no dialect.
        """
        ...

    def log_reader(self) -> LogReader:
        """A reader for one server's log."""
        ...

    async def check_ready(self, api: ServerApi, start: ServerStart, log: LogReader) -> Readiness:
        """Ask the server, once. Connection refused is `ready=False` without a cause."""
        ...

    async def counters(self, api: ServerApi) -> Counters | None:
        """The engine's counters now; None where it has none."""
        ...

    async def running_requests(self, api: ServerApi) -> int | None:
        """Requests that the server still works on; None where it does not tell."""
        ...

    async def flush_cache(self, api: ServerApi) -> Flush:
        """Empty the prefix cache and say whether that is sure."""
        ...

    def request_body(self, start: ServerStart, point: WorkloadPoint) -> dict[str, Any]:
        """What is added to every `/v1/chat/completions` body: sampling, length, and what makes the engine tell more."""
        ...
