"""HTTP to one agent, over whatever connection the session brings: a unix socket, an SSH channel, a bridge."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias
from urllib.parse import quote

import aiohttp

from ddconsole.core.events import Entry
from ddconsole.core.host_state import HostState
from ddconsole.core.host_state_json import host_state_from_json
from ddconsole.core.journal_line import DamagedLine, decode_line
from ddconsole.core.sweep import to_json
from ddconsole.core.wire import CONSOLE_HEADER, Command, CommandAnswer, Hello, RunSummary, StageStatus, Submission
from ddconsole.link.answers import (
    command_answer_from_json,
    hello_from_json,
    live_item_from_json,
    parse,
    refusal,
    run_summary_from_json,
    value_from_json,
)
from ddconsole.link.client import AgentError, AgentRoute, FilePiece, LinkLost, LiveItem, NotInControl, Silence
from ddconsole.link.console_identity import ConsoleIdentity
from ddconsole.link.line_splitter import LineSplitter
from ddconsole.link.prompting import Prompts
from ddconsole.link.stages import StageError, Stages

SessionFactory: TypeAlias = Callable[[], Awaitable[aiohttp.ClientSession]]
"""Reaches the agent, anew when the last session's link is gone, and gives a session whose base is the agent."""

SILENCE = 15.0
"""Seconds without a line of the journal after which the link counts as lost: three heartbeats."""
ANSWER_TIME = 30.0
"""Seconds for an answer that is not a stream."""
PREFLIGHT_TIME = 600.0
"""Seconds for the checks: the slowest tier starts CUDA on each GPU."""

BASE_URL = "http://agent/"
"""The host name means nothing: the connector knows the way."""


class HttpAgentClient:
    """Implements `AgentClient`. A lost link is known by `LinkLost`; the next call makes a new one.

    Args:
        session_factory: reaches the agent. Called again after the link was lost, never twice at a time.
        host: as the operator calls it.
        silence: seconds without a journal line after which the link counts as lost.
        answer_time: seconds for an answer that is not a stream.
        on_close: what else to end with the link, such as the SSH connection.
        stages: where the session factory tells its stages.
        prompts: where the session factory asks a person.
        identity: who this console is; a new one of this process unless it is given.
    """

    def __init__(
        self,
        session_factory: SessionFactory,
        host: str,
        *,
        silence: float = SILENCE,
        answer_time: float = ANSWER_TIME,
        on_close: Callable[[], Awaitable[None]] | None = None,
        stages: Stages | None = None,
        prompts: Prompts | None = None,
        identity: ConsoleIdentity | None = None,
    ) -> None:
        self.host = host
        self.identity = identity or ConsoleIdentity()
        self.route: AgentRoute | None = None
        """The way beneath, which knows who is at fault for a silence."""
        self.stages = stages or Stages()
        self.prompts = prompts or Prompts()
        self._headers = {CONSOLE_HEADER: self.identity.console}
        self._session_factory = session_factory
        self._silence = silence
        self._answer_time = answer_time
        self._on_close = on_close
        self._session: aiohttp.ClientSession | None = None
        self._reaching = asyncio.Lock()
        self._closed = asyncio.Event()
        self._refused: StageError | None = None

    async def hello(self) -> Hello:
        """Who answers."""
        return hello_from_json(await self._get("v1/hello"))

    async def runs(self) -> list[RunSummary]:
        """The host's runs, newest first."""
        return [run_summary_from_json(one) for one in await self._get("v1/runs")]

    async def submit(self, submission: Submission) -> str:
        """Begin a run; its id."""
        answer = await self._post("v1/runs", to_json(submission))
        return str(answer["run"])

    async def journal(self, run: str, after: int) -> AsyncGenerator[Entry | float, None]:
        """Entries with a higher seq, gap-free, for ever; a number is a heartbeat with the agent's wall time."""
        async for line in self.journal_lines(run, after):
            yield entry_or_beat(line)

    async def journal_lines(self, run: str, after: int, checksum: str = "") -> AsyncGenerator[bytes, None]:
        """As `journal`, the lines as they are on the host's disk, without their newlines.

        Args:
            run: its id.
            after: the seq that is known already.
            checksum: of that entry's line, if the agent is to look whether it has the same; E303 if not.
        """
        query = {"after": str(after), **({"crc": checksum} if checksum else {})}
        async for line in self._lines(f"v1/runs/{_part(run)}/journal", query, self._silence):
            yield line

    async def live(self, run: str, log_of_launch: int | None, from_byte: int | None) -> AsyncGenerator[LiveItem, None]:
        """Progress, decode figures, host samples, and the log of one launch from a byte on (None: its end)."""
        query: dict[str, str] = {}
        if log_of_launch is not None:
            query["launch"] = str(log_of_launch)
        if from_byte is not None:
            query["from"] = str(from_byte)
        # No limit on its silence: it may have nothing to say, and the journal's heartbeat watches the link.
        async for line in self._lines(f"v1/runs/{_part(run)}/live", query, None):
            item = live_item_from_json(parse(line))
            if item is not None:
                yield item

    async def command(self, run: str, command: Command) -> CommandAnswer:
        """Tell the sweep something. That another console has control comes as an answer."""
        try:
            return command_answer_from_json(await self._post(f"v1/runs/{_part(run)}/commands", to_json(command)))
        except NotInControl as refused:
            return refused.answer

    async def log(self, run: str, launch: int, offset: int, limit: int) -> bytes:
        """A piece of a server's log."""
        query = {"offset": str(offset), "limit": str(limit)}
        return await self._request("GET", f"v1/runs/{_part(run)}/log/{launch}", query=query)

    async def file(self, run: str, path: str) -> bytes:
        """A file of the run directory."""
        return await self._request("GET", f"v1/runs/{_part(run)}/file", query={"path": path})

    async def files(self, run: str, under: str = "") -> list[Mapping[str, Any]]:
        """The files of the run directory whose path begins so: path, size, sha256 (empty for one that still grows)."""
        path = f"v1/runs/{_part(run)}/files"
        return list(parse(await self._request("GET", path, query={"under": under} if under else None)))

    async def piece(self, run: str, path: str, offset: int, limit: int) -> FilePiece:
        """A piece of a file of the run directory."""
        query = {"path": path, "offset": str(offset), "limit": str(limit)}
        headers: dict[str, str] = {}
        data = await self._request("GET", f"v1/runs/{_part(run)}/piece", query=query, into=headers)
        return FilePiece(data, int(headers.get("X-Size", "0")), int(headers.get("Content-Length", len(data))))

    async def host_state(self) -> HostState:
        """The machine, now."""
        return host_state_from_json(await self._get("v1/host"))

    async def preflight(self, submission: Submission, tier: str, **asked: str | bool) -> list[Mapping[str, Any]]:
        """The findings, as JSON. `asked`: `accept` a check `because` of something, `by` whom; `revoke`; `record`."""
        before = time.time()
        hello = await self.hello()
        after = time.time()
        seen = {"round_trip": after - before, "clock_offset": hello.now - (before + after) / 2}
        body = {"submission": to_json(submission), "tier": tier, "seen": seen, **asked}
        return list(await self._post("v1/preflight", body, timeout=PREFLIGHT_TIME))

    async def stage(self, submission: Submission, *, forget: bool = False) -> StageStatus:
        """Begin to bring model and draft to where the plan wants them, or look at what is under way."""
        body = {"submission": to_json(submission), "forget": forget}
        return value_from_json(StageStatus, await self._post("v1/stage", body))

    async def staged(self) -> StageStatus:
        """How far the staging is."""
        return value_from_json(StageStatus, await self._get("v1/stage"))

    async def stop_staging(self) -> StageStatus:
        """Stop it; what was copied is kept for the next time."""
        return value_from_json(StageStatus, await self._post("v1/stage/stop", {}))

    async def quit(self) -> None:
        """Ask the agent to leave, which it does if no run is active."""
        await self._request("POST", "v1/quit", body=b"{}")

    def try_again(self) -> None:
        """Somebody has put right what the last refusal named: the next request may try again."""
        self._refused = None

    async def close(self) -> None:
        """Let the link go; the sweep goes on."""
        self._closed.set()
        await self._drop(self._session)
        if self._on_close is not None:
            await self._on_close()

    # --- requests

    async def _get(self, path: str) -> Any:
        return parse(await self._request("GET", path))

    async def _post(self, path: str, body: Any, timeout: float | None = None) -> Any:
        data = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        return parse(await self._request("POST", path, body=data, timeout=timeout))

    async def _request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float | None = None,
        into: dict[str, str] | None = None,
    ) -> bytes:
        """The answer's body; `into` takes its headers."""
        session = await self._reach()
        seconds = timeout or self._answer_time
        headers = self._headers | ({"Content-Type": "application/json"} if body is not None else {})
        try:
            async with (
                asyncio.timeout(seconds),
                session.request(method, path, params=query, data=body, headers=headers) as response,
            ):
                answer = await response.read()
        except TimeoutError as problem:
            await self._drop(session)
            raise LinkLost(f"{self.host}: the agent did not answer {path} within {seconds:.0f} s", _AGAIN) from problem
        except (aiohttp.ClientError, OSError) as problem:
            await self._drop(session)
            raise self._lost(problem) from problem
        if not response.ok:
            raise refusal(response.status, answer)
        if into is not None:
            into.update(response.headers)
        return answer

    async def _lines(self, path: str, query: Mapping[str, str], silence: float | None) -> AsyncGenerator[bytes, None]:
        """The lines of a stream; it ends only by an error: an agent never ends one by itself."""
        session = await self._reach()
        splitter = LineSplitter()
        now = asyncio.get_running_loop().time
        deadline = None if silence is None else now() + silence
        response: aiohttp.ClientResponse | None = None
        try:
            # The time limit spans single waits, never a yield: it must not strike while the caller works.
            async with asyncio.timeout_at(deadline):
                response = await session.get(path, params=query, headers=self._headers)
                if response.status != 200:
                    raise refusal(response.status, await response.read())
            while True:
                async with asyncio.timeout_at(deadline):
                    chunk = await response.content.readany()
                if not chunk:
                    break
                lines = splitter.feed(chunk)
                if lines and silence is not None:
                    deadline = now() + silence
                for line in lines:
                    yield line
        except TimeoutError as problem:
            await self._drop(session)
            raise Silence(f"{self.host}: nothing heard for {silence or 0:.0f} s", _AGAIN) from problem
        except (aiohttp.ClientError, OSError) as problem:
            await self._drop(session)
            raise self._lost(problem) from problem
        finally:
            if response is not None:
                response.close()
        await self._drop(session)
        raise LinkLost(f"{self.host}: the agent ended the stream", _AGAIN)

    # --- the session

    async def _reach(self) -> aiohttp.ClientSession:
        async with self._reaching:
            if self._closed.is_set():
                raise LinkLost(f"{self.host}: the link was closed here")
            if self._session is None:
                session = await self._new_session()
                if self._closed.is_set():
                    await session.close()
                    raise LinkLost(f"{self.host}: the link was closed here")
                self._session = session
            return self._session

    async def _new_session(self) -> aiohttp.ClientSession:
        """A refusal is final for everybody: a second request must not try a rejected password once more."""
        if self._refused is not None:
            raise self._refused
        try:
            return await self._session_factory()
        except StageError as problem:
            if problem.final:
                self._refused = problem
            raise

    async def _drop(self, session: aiohttp.ClientSession | None) -> None:
        """Close a session whose link is gone, once, however many requests found that out."""
        if session is None:
            return
        if session is self._session:
            self._session = None
        await session.close()

    def _lost(self, problem: BaseException) -> LinkLost:
        detail = str(problem) or type(problem).__name__
        if isinstance(problem, aiohttp.ClientPayloadError):
            # Its own text is about the parser and names exceptions.
            detail = "the answer broke off in the middle"
        return LinkLost(f"{self.host}: the link was lost: {detail}", _AGAIN)


_AGAIN = "the sweep goes on; it is asked again when the link is back"


def entry_or_beat(line: bytes) -> Entry | float:
    """A journal line's entry, or the agent's wall time of a heartbeat.

    Raises:
        AgentError: it is neither; asking again would bring the same line.
    """
    if line.startswith(b'{"beat"'):
        return float(json.loads(line)["beat"])
    try:
        return decode_line(line)
    except (DamagedLine, ValueError, KeyError, TypeError) as problem:
        raise AgentError(f"a line of the journal is damaged: {problem}", "look at journal.jsonl on the host") from (
            problem
        )


def _part(text: str) -> str:
    return quote(text, safe="")
