"""The agent over HTTP on a unix socket: thin handlers around `Service`; see `ddconsole.core.wire` for the paths."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from ddconsole.agent.journal import JournalDamaged, JournalHeld, JournalNewer
from ddconsole.agent.preflight import preflight_findings
from ddconsole.agent.run_store import BadSubmission, RunExists
from ddconsole.agent.service import Busy, Service
from ddconsole.core.host_state_json import host_state_to_json
from ddconsole.core.journal_line import read_lines
from ddconsole.core.submission_json import submission_from_json
from ddconsole.core.wire import Command, LogPiece
from ddconsole.runner.durable import in_words
from ddconsole.runner.log_tail import LogTail
from ddconsole.runner.run_directory import RunDirectory

SERVICE: web.AppKey[Service] = web.AppKey("service", Service)
_LARGEST_BODY = 32 * 1024 * 1024
_BEAT = 5.0
"""Real seconds between two heartbeats of a stream."""
_LIVE_INTERVAL = 0.25
_LOG_LINES = 500
"""Lines of a log sent at most at a time; what is left out is counted."""
_FILE_LIMIT = 4 * 1024 * 1024

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
            web.post("/v1/runs/{run}/commands", _command),
            web.post("/v1/preflight", _preflight),
            web.post("/v1/quit", _quit),
        ]
    )
    return app


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
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
    return web.json_response(asdict(request.app[SERVICE].command(_run_of(request), command)))


async def _stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson", "Cache-Control": "no-store"})
    await response.prepare(request)
    return response


async def _journal(request: web.Request) -> web.StreamResponse:
    """Lines as they are on disk, gap-free; a run that is not conducted is sent whole and then only beats."""
    service = request.app[SERVICE]
    run = _run_of(request)
    after = _number(request.query.get("after"), "after", 0)
    response = await _stream(request)
    with service.console():
        await _send_journal(service, run, after, response)
    return response


async def _send_journal(service: Service, run: RunDirectory, after: int, response: web.StreamResponse) -> None:
    while True:
        journal = service.journal(run.path.name)
        lines = journal.after(after) if journal is not None else _lines_on_disk(run, after)
        if lines:
            await response.write(b"".join(lines))
            after += len(lines)
        if journal is None:
            changed = False
            await asyncio.sleep(1.0)
        else:
            changed = await journal.changed(_BEAT)
        if not changed:
            await response.write(json.dumps({"beat": service.clock.now()}).encode() + b"\n")


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
    response = await _stream(request)
    service.telemetry.watch()
    with service.console():
        await _send_live(service, run, launch, tail, response)
    return response


async def _send_live(
    service: Service, run: RunDirectory, launch: int, tail: LogTail | None, response: web.StreamResponse
) -> None:
    sent: dict[str, Any] = {}
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
        if tail is not None:
            out += _log_items(tail, launch)
        if out:
            await response.write(b"".join(json.dumps(one).encode() + b"\n" for one in out))
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
    limit = min(_number(request.query.get("limit"), "limit", 65536), _FILE_LIMIT)
    if not path.is_file():
        raise Refusal(404, f"launch {launch} has no log yet")
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(limit)
    headers = {"X-Size": str(path.stat().st_size)}
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


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


async def _files(request: web.Request) -> web.Response:
    """The finished files: attempts, and what was written once."""
    run = _run_of(request)
    state = request.app[SERVICE].state(run)
    found: list[Mapping[str, Any]] = []
    for row in state.cells.values():
        for attempt in row.attempts:
            path = run.attempt(row.cell.id, attempt.number)
            if attempt.sha256 and path.is_file():
                name = str(path.relative_to(run.path))
                found.append({"path": name, "size": path.stat().st_size, "sha256": attempt.sha256})
    for path in (run.plan, run.texts, run.submission, run.environment, run.preflight):
        if path.is_file():
            data = path.read_bytes()
            digest = hashlib.sha256(data).hexdigest()
            found.append({"path": path.name, "size": len(data), "sha256": digest})
    return web.json_response(found)


async def _preflight(request: web.Request) -> web.Response:
    body = await _body(request)
    submission = submission_from_json(body.get("submission"))
    tier = str(body.get("tier", "standard"))
    run_directory = str(request.app[SERVICE].store.folder / submission.run)
    return web.json_response(await preflight_findings(submission, tier, run_directory))


async def _quit(request: web.Request) -> web.Response:
    service = request.app[SERVICE]
    if service.active_run is not None:
        raise Busy(service.active_run)
    service.quit.set()
    return web.json_response({"left": True})
