"""A server for tests of the runner: it takes llama-server's flags and speaks its protocol, and behaves badly on demand.

It loads slowly, starts workers that retitle themselves and leave the session, and does what its flags say:
`--load-seconds`, `--workers`, `--strays`, `--mark` (in the names of both), `--on-term drain|ignore|exit`,
`--hang-after CHUNKS`, `--die-after CHUNKS`, `--die-loading`, `--hang-loading`, `--error-in-stream`, `--no-tokens`,
`--pace SECONDS`, `--shared NAME` (a file in /dev/shm that its first worker maps and nobody removes).
"""

import argparse
import asyncio
import ctypes
import json
import mmap
import os
import signal
import sys
import time
from pathlib import Path

from aiohttp import web


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tree-server", add_help=True)
    parser.add_argument("-m", "--model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-a", "--alias", default="model")
    parser.add_argument("-c", "--ctx-size", type=int, default=0)
    parser.add_argument("-np", "--parallel", type=int, default=1)
    parser.add_argument("-t", "--threads", type=int, default=1)
    parser.add_argument("--metrics", action="store_true")
    parser.add_argument("--slots", action="store_true")
    parser.add_argument("--load-seconds", type=float, default=0.2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--strays", type=int, default=0)
    parser.add_argument("--mark", default="")
    parser.add_argument("--shared", default="")
    parser.add_argument("--on-term", default="exit", choices=("exit", "drain", "ignore"))
    parser.add_argument("--hang-after", type=int, default=0)
    parser.add_argument("--die-after", type=int, default=0)
    parser.add_argument("--die-loading", action="store_true")
    parser.add_argument("--hang-loading", action="store_true")
    parser.add_argument("--error-in-stream", action="store_true")
    parser.add_argument("--no-tokens", action="store_true")
    parser.add_argument("--pace", type=float, default=0.005)
    return parser.parse_args()


OPTIONS = _arguments()
TOTALS = {"tokens": 0, "prompt": 0, "running": 0}


def spawn_worker(number: int) -> int:
    """A worker in a session of its own, under another name: only its folder and its log tell whose it is."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        ctypes.CDLL(None).prctl(15, f"{OPTIONS.mark or 'stub::'}worker_{number}".encode(), 0, 0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if OPTIONS.shared and number == 0:
            with Path("/dev/shm", OPTIONS.shared).open("w+b") as file:
                file.truncate(4096)
                shared = mmap.mmap(file.fileno(), 4096)
            shared[0] = 1
        while True:
            time.sleep(3600)
    return pid


def spawn_stray(number: int) -> None:
    """A daemon by the book: in a session and a folder of its own, no file of the server's open."""
    if os.fork() != 0:
        return
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    ctypes.CDLL(None).prctl(15, f"{OPTIONS.mark}stray_{number}".encode(), 0, 0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        time.sleep(3600)


async def health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})


async def models(_request: web.Request) -> web.Response:
    one = {"id": OPTIONS.alias, "object": "model"}
    return web.json_response({"object": "list", "data": [one], "models": [{"name": OPTIONS.alias}]})


async def props(_request: web.Request) -> web.Response:
    return web.json_response({"model_alias": OPTIONS.alias, "build_info": "tree-1", "total_slots": OPTIONS.parallel})


async def metrics(_request: web.Request) -> web.Response:
    lines = [
        f"llamacpp:tokens_predicted_total {TOTALS['tokens']}",
        f"llamacpp:prompt_tokens_total {TOTALS['prompt']}",
        f"llamacpp:requests_processing {TOTALS['running']}",
        "llamacpp:requests_deferred 0",
    ]
    return web.Response(text="\n".join(lines) + "\n")


async def slots(_request: web.Request) -> web.Response:
    busy = [{"id": n, "is_processing": n < TOTALS["running"]} for n in range(OPTIONS.parallel)]
    return web.json_response(busy)


def _event(choices: list[object], **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": choices, **more}).encode() + b"\n\n"


async def chat(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    limit = int(body.get("max_tokens", 16))
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    TOTALS["running"] += 1
    TOTALS["prompt"] += 10
    try:
        await _stream(response, limit)
    finally:
        TOTALS["running"] -= 1
    return response


async def _stream(response: web.StreamResponse, limit: int) -> None:
    await response.write(_event([{"index": 0, "delta": {"role": "assistant", "content": None}, "finish_reason": None}]))
    if OPTIONS.error_in_stream and limit > 16:
        await response.write(b'data: {"error": {"message": "the engine fell over", "code": 500}}\n\ndata: [DONE]\n\n')
        return
    sent = 0
    for number in range(0 if OPTIONS.no_tokens and limit > 16 else limit):
        if limit > 16:
            await _misbehave(number)
        await response.write(_event([{"index": 0, "delta": {"content": f" w{number}"}, "finish_reason": None}]))
        sent += 1
        TOTALS["tokens"] += 1
        await asyncio.sleep(OPTIONS.pace)
    await response.write(_event([{"index": 0, "delta": {}, "finish_reason": "length"}]))
    usage = {"completion_tokens": sent, "prompt_tokens": 10, "total_tokens": sent + 10}
    await response.write(_event([], usage=usage) + b"data: [DONE]\n\n")


async def _misbehave(number: int) -> None:
    if OPTIONS.die_after and number == OPTIONS.die_after:
        print("GGML_ASSERT(stub) failed: it was told to", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    if OPTIONS.hang_after and number == OPTIONS.hang_after:
        await asyncio.sleep(3600)


def main() -> None:
    workers = [spawn_worker(number) for number in range(OPTIONS.workers)]
    for number in range(OPTIONS.strays):
        spawn_stray(number)
    print(f"srv load_model: loading model '{OPTIONS.model}' with workers {workers}", flush=True)
    if OPTIONS.hang_loading:
        time.sleep(3600)
    time.sleep(OPTIONS.load_seconds)
    if OPTIONS.die_loading:
        print("failed to allocate buffer for kv cache", flush=True)
        sys.exit(1)
    app = web.Application()
    app.add_routes(
        [
            web.get("/health", health),
            web.get("/v1/models", models),
            web.get("/props", props),
            web.get("/metrics", metrics),
            web.get("/slots", slots),
            web.post("/v1/chat/completions", chat),
        ]
    )
    print(f"srv init: listening on http://{OPTIONS.host}:{OPTIONS.port}", flush=True)
    web.run_app(app, host=OPTIONS.host, port=OPTIONS.port, print=None, handle_signals=False, access_log=None)


def on_term(_number: int, _frame: object) -> None:
    if OPTIONS.on_term == "exit":
        os._exit(0)
    print("terminating: draining", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGINT, on_term)
    main()
