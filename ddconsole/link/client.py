"""The one client of an agent, for the app and for the command line alike, and what is known of the link."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, TypeAlias

from ddconsole.core.events import Entry
from ddconsole.core.host_state import HostState
from ddconsole.core.records import CellProgress
from ddconsole.core.wire import (
    Command,
    CommandAnswer,
    DecodeFigures,
    Hello,
    LogPiece,
    RunSummary,
    Submission,
    Watchers,
)
from ddconsole.link.console_identity import ConsoleIdentity

LiveItem = CellProgress | DecodeFigures | HostState | LogPiece | Watchers
"""What may be dropped on the way."""
JournalReader: TypeAlias = Callable[[str, int], AsyncIterator[Entry | float]]
"""`AgentClient.journal`, or what stands in for it: the run and the seq that is known, to entries and heartbeats."""


class LinkPhase(StrEnum):
    """What is known of the way to the agent."""

    CONNECTING = "connecting"
    """The stage stands in `detail`."""
    UP = "up"
    SILENT = "silent"
    """No beat came when one was due; whether link or agent is at fault is not known yet."""
    STALLED = "agent stalled"
    """The host answers and its agent takes connections, but says nothing: overloaded, or stopped."""
    AGENT_GONE = "agent gone"
    """The host answers, and nobody is at the agent's socket: its keeper, or this console, starts it again."""
    RECONNECTING = "reconnecting"
    """The connection is lost."""
    DOWN = "down"
    """It will not be tried again by itself: `detail` says why and what to do."""
    OFFLINE = "offline"
    """A finished or lost run is read from disk."""


@dataclass(frozen=True, slots=True)
class LinkState:
    """The link's phase, since when, and when the agent was last heard. Times are wall seconds of the console."""

    phase: LinkPhase
    since: float
    detail: str = ""
    heard: float | None = None
    round_trip: float | None = None
    """Seconds."""
    next_try: float | None = None
    """When a lost link is tried again; None while it is tried, and while it stands."""
    trouble: str = ""
    """What the agent says keeps it from its work and may stand in no journal, such as storage that failed."""
    bridged: bool = False
    """The host forbids stream forwarding: a command there carries the bytes."""
    lost: str = ""
    """Of a copy that is read from disk: why its host is not asked; empty where that is from choice."""


class AgentError(Exception):
    """The agent, or the way to it, refused: `text` says what is wrong, `do` what helps."""

    def __init__(self, text: str, do: str = "") -> None:
        super().__init__(f"{text} → {do}" if do else text)
        self.text = text
        self.do = do


class NotInControl(AgentError):
    """Another console has control: `answer` says which."""

    def __init__(self, answer: CommandAnswer, do: str = "") -> None:
        super().__init__(answer.text, do)
        self.answer = answer


class LinkLost(AgentError):
    """The link ended: what was asked may or may not have happened. Never success, never failure of the work."""


@dataclass(frozen=True, slots=True)
class FilePiece:
    """Bytes of a file from an offset on."""

    data: bytes
    size: int
    """The whole file's, when it was read."""
    sent: int
    """Bytes that passed the link for it, headers not counted."""


class Silence(LinkLost):
    """Nothing was heard for too long; nothing says that the connection itself is gone."""


class Way(StrEnum):
    """What a look at the way to the agent found."""

    ACCEPTS = "accepts"
    """Somebody takes connections at the agent's socket."""
    NOBODY = "nobody"
    """The host answers, nobody takes connections there."""
    SILENT = "silent"
    """Not even the host answers."""
    UNKNOWN = "unknown"


class AgentRoute(Protocol):
    """The way to an agent, beneath its HTTP."""

    @property
    def stands(self) -> bool:
        """Whether the host is connected to, as far as is known."""
        ...

    @property
    def bridged(self) -> bool:
        """Whether a command on the host carries the bytes."""
        ...

    async def look(self) -> Way:
        """Find out who is at fault for a silence, within a few seconds. Raises nothing."""
        ...


class AgentClient(Protocol):
    """Requests to one agent. Every method raises `LinkLost` when the link ends and `AgentError` on a refusal."""

    host: str
    identity: ConsoleIdentity

    async def hello(self) -> Hello:
        """Who answers."""
        ...

    async def runs(self) -> list[RunSummary]:
        """The host's runs, newest first."""
        ...

    async def submit(self, submission: Submission) -> str:
        """Begin a run; its id."""
        ...

    def journal(self, run: str, after: int) -> AsyncIterator[Entry | float]:
        """Entries with a higher seq, gap-free, for ever; a number is a heartbeat with the agent's wall time."""
        ...

    def live(self, run: str, log_of_launch: int | None, from_byte: int | None) -> AsyncIterator[LiveItem]:
        """Progress, decode figures, host samples, and the log of one launch from a byte on (None: its end)."""
        ...

    async def command(self, run: str, command: Command) -> CommandAnswer:
        """Tell the sweep something. That another console has control comes as an answer."""
        ...

    async def log(self, run: str, launch: int, offset: int, limit: int) -> bytes:
        """A piece of a server's log."""
        ...

    async def file(self, run: str, path: str) -> bytes:
        """A file of the run directory."""
        ...

    async def files(self, run: str, under: str = "") -> list[Mapping[str, Any]]:
        """The files of the run directory whose path begins so: path, size, sha256 (empty for one that still grows)."""
        ...

    async def piece(self, run: str, path: str, offset: int, limit: int) -> FilePiece:
        """A piece of a file of the run directory."""
        ...

    async def host_state(self) -> HostState:
        """The machine, now."""
        ...

    async def preflight(self, submission: Submission, tier: str) -> list[Mapping[str, Any]]:
        """The findings, as JSON."""
        ...

    async def close(self) -> None:
        """Let the link go; the sweep goes on."""
        ...
