"""An agent for tests of the link: the same HTTP API over a journal in memory, with faults on demand.

Runs inside a test (`FakeAgent.listening`), or as a process of its own: `fake_agent.py --state FOLDER --socket PATH`
takes the lock, binds, and writes a warning into the journal of run `r` many times a second.
"""

import argparse
import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import sys
import time
import zlib
from collections.abc import AsyncIterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web

from ddconsole import __version__
from ddconsole.core.events import CellAdded, CommandTaken, DeploymentAdded, Entry, EpochBegan, Event, RunCreated, Warned
from ddconsole.core.journal_line import checksum_of, encode_line
from ddconsole.core.sweep import Cell, Deployment, Placement, Sampling, WorkloadPoint, to_json
from ddconsole.core.wire import PROTOCOL, CommandAnswer, Hello, RunSummary

RUN = "r"


def first_events() -> list[Event]:
    """A run with one deployment and two cells."""
    point = WorkloadPoint("generate", "single", "five", 1, 64, 1, 5, Sampling())
    deployment = Deployment("d01", "ar", 1, size=4, args={}, env={}, placement=Placement())
    return [
        EpochBegan("created", "boot", os.getpid(), "0.1"),
        RunCreated(RUN, "p", "0" * 64, "fake", "ar", False, "0.1", "llamacpp"),
        DeploymentAdded(to_json(deployment)),
        *(CellAdded(to_json(Cell(name, "d01", point))) for name in ("c001", "c002")),
    ]


class FakeAgent:
    """The API, and what a test changes about it."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.live_lines: list[bytes] = []
        self.commands: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.hashes: dict[str, str] = {}
        """What is said of files instead of the truth."""
        self.logs: dict[int, bytes] = {}
        self.refuse_commands = ""
        self.beat = 0.2
        self.protocol = PROTOCOL
        self.version = __version__
        self.active: str | None = RUN
        self.skip_seq = 0
        """Left out of the journal stream the first time it would be sent."""
        self.break_answers = 0
        """Commands that are taken, but whose answers are lost."""
        self.once = False
        """Write each command into the journal, the first time its id comes."""
        self.journal_requests: list[int] = []
        self.piece_requests: list[tuple[str, int]] = []
        """Path and offset."""
        self.growing: set[str] = set()
        """Files that have no hash yet."""
        self.piece_time = 0.0
        """Seconds that an answer to a piece takes."""
        self.live_requests: list[dict[str, str]] = []
        self.left = asyncio.Event()
        self._changed = asyncio.Event()
        for event in first_events():
            self.append(event)

    def append(self, *events: Event) -> None:
        """Write into the journal."""
        for event in events:
            seq = len(self.lines) + 1
            self.lines.append(encode_line(Entry(1, seq, 1000.0 + seq, event)))
        self._changed.set()
        self._changed = asyncio.Event()

    def send_live(self, name: str, value: Any) -> None:
        """Put an item on the live stream."""
        self.live_lines.append(json.dumps({name: value}).encode() + b"\n")
        self._changed.set()
        self._changed = asyncio.Event()

    def application(self) -> web.Application:
        """The API."""
        app = web.Application(client_max_size=1 << 26)
        run = f"/v1/runs/{RUN}"
        app.add_routes(
            [
                web.get("/v1/hello", self._hello),
                web.get("/v1/runs", self._runs),
                web.get(f"{run}/journal", self._journal),
                web.get(f"{run}/live", self._live),
                web.get(f"{run}/log/{{launch}}", self._log),
                web.get(f"{run}/file", self._file),
                web.get(f"{run}/files", self._files),
                web.get(f"{run}/piece", self._piece),
                web.post(f"{run}/commands", self._command),
                web.post("/v1/quit", self._quit),
            ]
        )
        return app

    @contextlib.asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        """Serve at a unix socket."""
        runner = web.AppRunner(self.application(), access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        await web.UnixSite(runner, str(path)).start()
        try:
            yield
        finally:
            await runner.cleanup()
            path.unlink(missing_ok=True)

    async def _hello(self, _: web.Request) -> web.Response:
        hello = Hello(
            self.protocol, self.version, "fake", os.getpid(), "boot", 1.0, "fake-host", self.active, now=5000.0
        )
        return web.json_response({**asdict(hello), "field_of_a_later_version": 1})

    async def _runs(self, _: web.Request) -> web.Response:
        summary = RunSummary(RUN, "p", "running", "", 1.0, 2.0, {"pending": 2}, simulated=False, active=True)
        return web.json_response([asdict(summary)])

    async def _journal(self, request: web.Request) -> web.StreamResponse:
        after = int(request.query["after"])
        self.journal_requests.append(after)
        if request.query.get("crc") and checksum_of(self.lines[after - 1]) != request.query["crc"]:
            return web.json_response({"error": "E303 entry is another one", "do": ""}, status=409)
        response = web.StreamResponse(headers={"Content-Encoding": "deflate"})
        await response.prepare(request)
        packer = zlib.compressobj()

        async def send(data: bytes) -> None:
            await response.write(packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH))

        await send(json.dumps({"beat": 5000.0, "seq": len(self.lines)}).encode() + b"\n")
        while True:
            lines, first = self.lines[after:], after
            after += len(lines)
            if lines and first < self.skip_seq <= after:
                del lines[self.skip_seq - first - 1]
                self.skip_seq = 0
            if lines:
                await send(b"".join(lines))
            try:
                await asyncio.wait_for(self._changed.wait(), self.beat)
            except TimeoutError:
                await send(json.dumps({"beat": 5000.0}).encode() + b"\n")

    async def _live(self, request: web.Request) -> web.StreamResponse:
        self.live_requests.append(dict(request.query))
        response = web.StreamResponse()
        await response.prepare(request)
        sent = 0
        while True:
            for line in self.live_lines[sent:]:
                await response.write(line)
            sent = len(self.live_lines)
            await self._changed.wait()

    async def _log(self, request: web.Request) -> web.Response:
        log = self.logs.get(int(request.match_info["launch"]))
        if log is None:
            return web.json_response({"error": "launch has no log yet", "do": "wait"}, status=404)
        offset, limit = int(request.query["offset"]), int(request.query["limit"])
        return web.Response(body=log[offset : offset + limit])

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=self.files[request.query["path"]])

    async def _files(self, request: web.Request) -> web.Response:
        under = request.query.get("under", "")
        found = [
            {"path": path, "size": len(data), "sha256": "" if path in self.growing else self._hash(path)}
            for path, data in self.all_files().items()
            if path.startswith(under)
        ]
        return web.json_response(found)

    def all_files(self) -> dict[str, bytes]:
        """Files and logs by their path."""
        return {**self.files, **{f"launches/{number}/server.log": data for number, data in self.logs.items()}}

    def _hash(self, path: str) -> str:
        return self.hashes.get(path) or hashlib.sha256(self.all_files()[path]).hexdigest()

    async def _piece(self, request: web.Request) -> web.Response:
        path, offset, limit = (request.query[name] for name in ("path", "offset", "limit"))
        self.piece_requests.append((path, int(offset)))
        await asyncio.sleep(self.piece_time)
        data = self.all_files().get(path)
        if data is None:
            return web.json_response({"error": f"there is no file {path!r}", "do": ""}, status=404)
        packed = zlib.compress(data[int(offset) : int(offset) + int(limit)], 1)
        return web.Response(body=packed, headers={"X-Size": str(len(data)), "Content-Encoding": "deflate"})

    async def _command(self, request: web.Request) -> web.Response:
        command = await request.json()
        if self.refuse_commands:
            return web.json_response({"error": self.refuse_commands, "do": "something else"}, status=409)
        if self.once and command["id"] not in [one["id"] for one in self.commands]:
            self.append(CommandTaken(command["id"], command["name"], tuple(command["cells"]), command["by"]))
        self.commands.append(command)
        if self.break_answers:
            self.break_answers -= 1
            assert request.transport is not None
            request.transport.abort()
        return web.json_response(asdict(CommandAnswer(True, "taken", tuple(command["cells"]))))

    async def _quit(self, _: web.Request) -> web.Response:
        if self.active is not None:
            return web.json_response({"error": f"run {self.active} is active", "do": "wait"}, status=409)
        self.left.set()
        return web.json_response({"left": True})


async def serve(state: Path, path: Path, options: argparse.Namespace) -> int:
    """As a process: exactly one to a socket."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "started").open("a") as starts:
        starts.write(f"{os.getpid()}\n")
    held = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 3
    path.unlink(missing_ok=True)
    agent = FakeAgent()
    agent.protocol, agent.version, agent.active = options.protocol, options.version, options.run
    agent.once = True
    if options.file_bytes:
        agent.files["plan.yaml"] = os.urandom(options.file_bytes)
    (state / "served").write_text(str(os.getpid()))
    async with agent.listening(path):
        until = time.monotonic() + 300
        while not agent.left.is_set() and time.monotonic() < until:
            agent.append(Warned(f"tick {len(agent.lines)}"))
            await asyncio.sleep(options.interval)
    return 0


def main() -> int:
    """Serve until told to leave, five minutes at most."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--interval", type=float, default=0.02)
    parser.add_argument("--protocol", type=int, default=PROTOCOL)
    parser.add_argument("--file-bytes", type=int, default=0)
    parser.add_argument("--version", default=__version__)
    parser.add_argument("--run", help="a run that it says is active")
    arguments = parser.parse_args()
    return asyncio.run(serve(arguments.state, arguments.socket, arguments))


if __name__ == "__main__":
    sys.exit(main())
