"""The agent over HTTP on a unix socket: thin handlers around `Service`; see `ddconsole.core.wire` for the paths."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from ddconsole.agent.file_pieces import FileHashes, files_of, piece_of
from ddconsole.agent.journal import JournalDamaged, JournalHeld, JournalNewer
from ddconsole.agent.packed_stream import PackedStream, open_stream
from ddconsole.agent.preflight import PreflightOrder, PreflightRefused, preflight_findings
from ddconsole.agent.run_store import BadSubmission, RunExists
from ddconsole.agent.service import Busy, Service
from ddconsole.agent.stage_copy import StageProblem
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.journal_line import checksum_of, read_lines
from ddconsole.core.submission_json import submission_from_json
from ddconsole.core.wire import CONSOLE_HEADER, Command, LogPiece, Watchers
from ddconsole.preflight.check import Tier
from ddconsole.runner.durable import in_words
from ddconsole.runner.log_tail import LogTail
from ddconsole.runner.run_directory import RunDirectory

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
HASHES: web.AppKey[FileHashes] = web.AppKey("hashes", FileHashes)
_LARGEST_BODY = 32 * 1024 * 1024
_BEAT = 5.0
"""Real seconds between two heartbeats of a stream."""
_LIVE_INTERVAL = 0.25
_LOG_LINES = 500
"""Lines of a log sent at most at a time; what is left out is counted."""
_LONGEST_ID = 64

_COMMAND = TypeAdapter(Command)


class Refusal(Exception):
    """An answer that is not 200: what is wrong, and what helps."""

    def __init__(self, status: int, text: str, do: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.do = do


def application(service: Service) -> web.Application:
    """The agent's web application."""
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_refusals])
    app[SERVICE] = service
    app[HASHES] = FileHashes()
    app.add_routes(
        [
            web.get("/v1/hello", _hello),
            web.get("/v1/host", _host),
            web.get("/v1/runs", _runs),
            web.post("/v1/runs", _submit),
            web.get("/v1/runs/{run}/journal", _journal),
            web.get("/v1/runs/{run}/live", _live),
            web.get("/v1/runs/{run}/log/{launch}", _log),
            web.get("/v1/runs/{run}/file", _file),
            web.get("/v1/runs/{run}/files", _files),
            web.get("/v1/runs/{run}/piece", _piece),
            web.post("/v1/runs/{run}/commands", _command),
            web.post("/v1/preflight", _preflight),
            web.get("/v1/stage", _staged),
            web.post("/v1/stage", _stage),
            web.post("/v1/stage/stop", _stop_staging),
            web.post("/v1/quit", _quit),
        ]
    )
    return app


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    request.app[SERVICE].presence.heard(_console(request))
    try:
        return await handler(request)
    except Refusal as refusal:
        return web.json_response({"error": refusal.text, "do": refusal.do}, status=refusal.status)
    except ValidationError as problem:
        first = problem.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        return web.json_response({"error": f"{field}: {first['msg']}", "do": ""}, status=400)
    except Busy as busy:
        text = f"run {busy} is active on this host"
        return web.json_response({"error": text, "do": f"ddconsole attach {busy}, or stop it first"}, status=409)
    except (JournalHeld, JournalDamaged, JournalNewer) as problem:
        return web.json_response({"error": str(problem), "do": "nothing was done"}, status=409)
    except OSError as problem:
        return web.json_response({"error": in_words(problem), "do": "nothing was done"}, status=507)


def _console(request: web.Request) -> str:
    """Which console asks; empty for one that does not say, or says nonsense."""
    name = request.headers.get(CONSOLE_HEADER, "")
    return name if len(name) <= _LONGEST_ID else ""


async def _hello(request: web.Request) -> web.Response:
    return web.json_response(asdict(request.app[SERVICE].hello()))


async def _host(request: web.Request) -> web.Response:
    telemetry = request.app[SERVICE].telemetry
    telemetry.watch()
    deadline = asyncio.get_running_loop().time() + 20
    while telemetry.host is None and telemetry.problem is None:
        if asyncio.get_running_loop().time() > deadline:
            break
        await asyncio.sleep(0.1)
    if telemetry.host is None:
        raise Refusal(503, f"no sample of the machine: {telemetry.problem or 'none came'}", "look at the driver")
    return web.json_response(host_state_to_json(telemetry.host))


async def _runs(request: web.Request) -> web.Response:
    return web.json_response([asdict(one) for one in request.app[SERVICE].runs()])


async def _body(request: web.Request) -> Any:
    try:
        return await request.json()
    except ValueError as problem:
        raise Refusal(400, f"the body is not JSON: {problem}") from problem


async def _submit(request: web.Request) -> web.Response:
    submission = submission_from_json(await _body(request))
    try:
        run = request.app[SERVICE].submit(submission)
    except BadSubmission as problem:
        raise Refusal(400, str(problem)) from problem
    except RunExists as problem:
        raise Refusal(409, f"there is a run {problem} already", "give the new one another name") from problem
    return web.json_response({"run": run}, status=201)


def _run_of(request: web.Request) -> RunDirectory:
    name = request.match_info["run"]
    run = request.app[SERVICE].store.directory(name)
    if run is None:
        raise Refusal(404, f"there is no run {name!r} on this host", "ddconsole runs")
    return run


def _number(value: str | None, what: str, default: int) -> int:
    if value is None:
        return default
    if not value.isdigit():
        raise Refusal(400, f"{what}: {value!r} is not a whole number")
    return int(value)


async def _command(request: web.Request) -> web.Response:
    command = _COMMAND.validate_python(await _body(request))
    answer = request.app[SERVICE].command(_run_of(request), command)
    if answer.controller is not None:
        return web.json_response({"error": answer.text, "do": "take control first", **asdict(answer)}, status=409)
    return web.json_response(asdict(answer))


async def _journal(request: web.Request) -> web.StreamResponse:
    """A beat, then lines as they are on disk, gap-free; a run that nobody conducts is sent whole, then only beats."""
    service = request.app[SERVICE]
    run = _run_of(request)
    after = _number(request.query.get("after"), "after", 0)
    checksum = request.query.get("crc", "")
    if checksum and checksum != _checksum_at(service, run, after):
        raise Refusal(409, f"E303 entry {after} of {run.path.name} is another one on this host", "it is another run")
    response, stream = await open_stream(request)
    with service.console(), service.presence.watching(run.path.name, _console(request)):
        await _send_journal(service, run, after, stream)
    return response


def _checksum_at(service: Service, run: RunDirectory, seq: int) -> str:
    journal = service.journal(run.path.name)
    lines = journal.after(seq - 1) if journal is not None else _lines_on_disk(run, seq - 1)
    return checksum_of(lines[0]) if lines and seq else ""


async def _send_journal(service: Service, run: RunDirectory, after: int, stream: PackedStream) -> None:
    first = True
    while True:
        journal = service.journal(run.path.name)
        lines = journal.after(after) if journal is not None else _lines_on_disk(run, after)
        if first:
            await stream.write(_beat(service, after + len(lines)))
            first = False
        if lines:
            await stream.write(b"".join(lines))
            after += len(lines)
        if journal is None:
            changed = False
            await asyncio.sleep(1.0)
        else:
            changed = await journal.changed(_BEAT)
        if not changed:
            await stream.write(_beat(service, after))


def _beat(service: Service, seq: int) -> bytes:
    return json.dumps({"beat": service.clock.now(), "seq": seq}).encode() + b"\n"


def _lines_on_disk(run: RunDirectory, after: int) -> list[bytes]:
    data = run.journal.read_bytes()
    _, damage = read_lines(data)
    whole = data[: damage.offset] if damage is not None and damage.torn_tail else data
    return whole.splitlines(keepends=True)[after:]


async def _live(request: web.Request) -> web.StreamResponse:
    """Progress, decode figures, host samples and a log, whatever changed, four times a second at most."""
    service = request.app[SERVICE]
    run = _run_of(request)
    launch = _number(request.query.get("launch"), "launch", 0)
    tail = _tail(run, launch, request.query.get("from")) if launch else None
    response, stream = await open_stream(request)
    service.telemetry.watch()
    with service.console():
        await _send_live(service, run, launch, tail, stream)
    return response


async def _send_live(
    service: Service, run: RunDirectory, launch: int, tail: LogTail | None, stream: PackedStream
) -> None:
    sent: dict[str, Any] = {}
    told: Watchers | None = None
    while True:
        state = service.state(run)
        row = state.live_launch()
        service.telemetry.look(run.launch(row.number) if row else None)
        now: dict[str, Any] = {
            "progress": service.telemetry.progress,
            "decode": service.telemetry.decode,
            "host": service.telemetry.host,
        }
        out = [
            {name: host_state_to_json(value) if name == "host" else asdict(value)}
            for name, value in now.items()
            if value is not None and value is not sent.get(name)
        ]
        sent = now
        watchers = service.presence.watchers(run.path.name, state.controller)
        if told is None or not told.same_as(watchers):
            told = watchers
            out.append({"watchers": asdict(watchers)})
        if tail is not None:
            out += _log_items(tail, launch)
        if out:
            await stream.write(b"".join(json.dumps(one).encode() + b"\n" for one in out))
        await asyncio.sleep(_LIVE_INTERVAL)


def _tail(run: RunDirectory, launch: int, start: str | None) -> LogTail:
    path = run.launch(launch).server_log
    if start is not None:
        return LogTail(path, _number(start, "from", 0))
    size = path.stat().st_size if path.exists() else 0
    tail = LogTail(path, max(size - 64 * 1024, 0))
    if tail.offset:
        tail.read_partial_line()
    return tail


def _log_items(tail: LogTail, launch: int) -> list[dict[str, Any]]:
    lines = tail.read()
    if not lines:
        return []
    dropped = max(len(lines) - _LOG_LINES, 0)
    piece = LogPiece(launch, tail.offset, tuple(lines[dropped:]), dropped)
    return [{"log": asdict(piece)}]


async def _log(request: web.Request) -> web.Response:
    launch = _number(request.match_info["launch"], "launch", 0)
    path = _run_of(request).launch(launch).server_log
    offset = _number(request.query.get("offset"), "offset", 0)
    limit = _number(request.query.get("limit"), "limit", 65536)
    if not path.is_file():
        raise Refusal(404, f"launch {launch} has no log yet")
    return await piece_of(request, path, offset, limit)


def _inside(run: RunDirectory, name: str) -> Path:
    """A file of the run directory by its relative name; links and ways out are refused."""
    path = run.path / name
    root = run.path.resolve()
    if path.is_symlink() or not path.resolve().is_relative_to(root):
        raise Refusal(400, f"{name!r} leaves the run directory")
    if not path.is_file():
        raise Refusal(404, f"there is no file {name!r} in the run directory")
    return path


async def _file(request: web.Request) -> web.StreamResponse:
    name = request.query.get("path", "")
    return web.FileResponse(_inside(_run_of(request), name))


async def _piece(request: web.Request) -> web.Response:
    path = _inside(_run_of(request), request.query.get("path", ""))
    offset = _number(request.query.get("offset"), "offset", 0)
    return await piece_of(request, path, offset, _number(request.query.get("limit"), "limit", 65536))


async def _files(request: web.Request) -> web.Response:
    run = _run_of(request)
    state = request.app[SERVICE].state(run)
    return web.json_response(await files_of(run, state, request.app[HASHES], request.query.get("under", "")))


async def _preflight(request: web.Request) -> web.Response:
    body = await _body(request)
    submission = submission_from_json(body.get("submission"))
    service = request.app[SERVICE]
    tier = str(body.get("tier", Tier.STANDARD))
    tiers = [one for one in Tier if one is not Tier.PROXMOX]
    if tier not in tiers:
        raise Refusal(400, f"there is no tier {tier!r} here", f"one of {', '.join(tiers)}")
    if tier == Tier.LOAD and service.active_run is not None:
        raise Busy(service.active_run)
    words = {name: str(body.get(name) or "") for name in ("accept", "because", "by", "revoke")}
    order = PreflightOrder(Tier(tier), record=bool(body.get("record")), seen=_seen(body.get("seen")), **words)
    try:
        return web.json_response(await preflight_findings(submission, order, service.store.folder, service.clock))
    except PreflightRefused as problem:
        raise Refusal(409, problem.text, problem.do) from problem


def _seen(value: Any) -> Mapping[str, float]:
    """What a console saw of this host; an older one says nothing."""
    values = value if isinstance(value, dict) else {}
    return {str(name): float(one) for name, one in values.items() if isinstance(one, int | float)}


async def _stage(request: web.Request) -> web.Response:
    body = await _body(request)
    submission = submission_from_json(body.get("submission"))
    try:
        status = request.app[SERVICE].staging.begin(submission, forget=bool(body.get("forget")))
    except StageProblem as problem:
        raise Refusal(400, problem.text, problem.do) from problem
    return web.json_response(asdict(status))


async def _staged(request: web.Request) -> web.Response:
    return web.json_response(asdict(request.app[SERVICE].staging.status))


async def _stop_staging(request: web.Request) -> web.Response:
    staging = request.app[SERVICE].staging
    await staging.stop()
    return web.json_response(asdict(staging.status))


async def _quit(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    if service.active_run is not None:
        raise Busy(service.active_run)
    service.quit.set()
    return web.json_response({"left": True})
