"""A run read from its directory: finished, or lost with its host. The same screens show it."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ddconsole.core.ages import age_in_words
from ddconsole.core.coming_back import come_back
from ddconsole.core.fold import fold
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.journal_line import Damage, read_lines
from ddconsole.core.records import CellProgress
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import CommandAnswer, DecodeFigures, LogPiece, Seen, Watchers
from ddconsole.link.client import AgentError, LinkPhase, LinkState
from ddconsole.link.console_identity import ConsoleIdentity
from ddconsole.link.file_copy import PART
from ddconsole.link.journal_copy import last_heard

LOG_LINES = 500
"""Lines of a log that are shown first."""
_LOG_END = 256 * 1024
"""Bytes of a log's end in which those lines are looked for."""
_HOST_SAMPLES = 150
_TELEMETRY_END = 8 * 1024 * 1024


class OfflineRunFeed:
    """Implements `RunFeed` from a run directory; nothing of it changes, and every command is refused.

    Args:
        directory: the run directory, or a mirror of one.
        lost: why the host of a run that may still go on there is not asked; empty for one that is read from choice.

    Raises:
        AgentError: there is no journal, or it cannot be read.
    """

    def __init__(self, directory: Path, lost: str = "") -> None:
        journal = directory / "journal.jsonl"
        try:
            entries, damage = read_lines(journal.read_bytes())
        except OSError as problem:
            raise AgentError(f"{journal}: {problem.strerror}", "name a run directory, such as logs/<run>") from problem
        self._directory = directory
        self.state: RunState = fold(entries)
        created = self.state.created
        self.run = created.run if created else directory.name
        self.host = created.host if created else ""
        heard = last_heard(directory) or self.state.at or None
        detail = _detail(directory, damage)
        if lost:
            detail = f"{lost_text(self.host, self.state, heard, time.time())}; {lost}; {detail}"
        self.link = LinkState(LinkPhase.OFFLINE, time.time(), detail, heard=heard, lost=lost)
        self.progress: CellProgress | None = None
        self.rates: Sequence[float] = ()
        self.decode: DecodeFigures | None = None
        self.host_history: Sequence[HostState] = _host_samples(_whole_or_part(directory / "telemetry.jsonl"))
        self.host_state: HostState | None = self.host_history[-1] if self.host_history else None
        self.simulated = bool(created and created.simulated)
        self.identity = ConsoleIdentity()
        self.readonly = True
        self.watchers: Watchers | None = None
        self.watchers_at = 0.0

    def subscribe(self, changed: Callable[[frozenset[str]], None]) -> Callable[[], None]:  # noqa: ARG002  # a feed's signature
        """Nothing will change, so nobody will be told."""
        return lambda: None

    def now(self) -> float:
        """When the journal ended: time stands still in a run that is over."""
        return self.state.at

    def has_control(self) -> bool:
        """Nobody controls a run that is read from disk."""
        return False

    async def take_control(self, shown: int | None) -> CommandAnswer:  # noqa: ARG002  # a feed's signature
        """Refused: no agent is asked."""
        return CommandAnswer(False, f"this run is read from disk; {come_back(self.run, self.host)} asks its host")

    async def command(
        self,
        name: str,
        cells: Sequence[str] = (),  # noqa: ARG002  # a feed's signature
        changes: dict[str, str | None] | None = None,  # noqa: ARG002
        because: str = "",  # noqa: ARG002
        expected: Mapping[str, Seen] | None = None,  # noqa: ARG002
    ) -> CommandAnswer:
        """Refused: no agent is asked."""
        return CommandAnswer(
            False, f"{name}: this run is read from disk; {come_back(self.run, self.host)} asks its host"
        )

    def follow_log(self, launch: int | None, on_piece: Callable[[LogPiece], None]) -> None:
        """Give the log's last lines, once."""
        if launch is None:
            return
        log = self._log(launch)
        data, size = _end_of(log, _LOG_END)
        lines = data.decode(errors="replace").splitlines()
        if len(data) < size:
            lines = lines[1:]
        if log.name.endswith(PART):
            lines.append(f"··· the copy of this log ends here, after {size:,} bytes: the host has the rest ···")
        shown = tuple(lines[-LOG_LINES:])
        piece = LogPiece(launch, size, shown, dropped=len(lines) - len(shown))
        asyncio.get_running_loop().call_soon(on_piece, piece)

    async def read_log(self, launch: int, offset: int, limit: int) -> bytes:
        """A piece of a log.

        Raises:
            AgentError: the launch has no log here.
        """
        try:
            with self._log(launch).open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except OSError as problem:
            raise AgentError(f"{self._log(launch)}: {problem.strerror}", "its log was not copied") from problem

    def retry_now(self) -> None:
        """There is no link."""

    async def close(self) -> None:
        """Leave."""

    def _log(self, launch: int) -> Path:
        return _whole_or_part(self._directory / "launches" / str(launch) / "server.log")


def lost_text(host: str, state: RunState, heard: float | None, now: float) -> str:
    """What a run whose host cannot be reached is known by, in few words: they stand on one line of a terminal."""
    if heard is None:
        return f"{host} was never reached; the copy here ends with entry {state.seq}"
    return f"{host} lost; the copy here is {age_in_words(now - heard)} old ({moment(heard)}, entry {state.seq})"


def moment(at: float) -> str:
    """`12 Mar 14:02`, in this machine's time."""
    return time.strftime("%d %b %H:%M", time.localtime(at))


def _whole_or_part(path: Path) -> Path:
    """A file, or as much of it as was copied."""
    part = path.with_name(path.name + PART)
    return part if part.is_file() and not path.is_file() else path


def _detail(directory: Path, damage: Damage | None) -> str:
    if damage is None:
        return f"read from {directory}"
    what = "ends in the middle of" if damage.torn_tail else "is damaged at"
    return f"read from {directory}; the journal {what} line {damage.line}, what follows it is not shown"


def _end_of(path: Path, limit: int) -> tuple[bytes, int]:
    """The last bytes of a file, and its size; nothing where there is no file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit))
            return file.read(limit), size
    except OSError:
        return b"", 0


def _host_samples(path: Path) -> Sequence[HostState]:
    data, _ = _end_of(path, _TELEMETRY_END)
    samples: list[HostState] = []
    for line in data.split(b"\n")[-_HOST_SAMPLES - 1 :]:
        try:
            samples.append(host_state_from_json(json.loads(line)))
        except (ValueError, TypeError):
            # The first line may be cut by the limit, the last by the end of the host: neither is worth a word.
            continue
    return tuple(samples)
