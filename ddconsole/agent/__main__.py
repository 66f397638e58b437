"""`python -m ddconsole.agent --state FOLDER --socket PATH [--runs FOLDER]`: the host's side of ddconsole."""

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from ddconsole.core.own_process import own_process

_SHORTEST_LIFE = 5.0
"""Seconds: an agent that ends sooner is not started again at once."""
_LOST_LOCK = 3
"""Exit status when another agent is there already."""
_IDLE_LIMIT = 3600.0
"""Real seconds without a run and without a console after which the agent leaves."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ddconsole.agent", description="the host's side of ddconsole")
    parser.add_argument("--state", type=Path, required=True, help="folder for what this agent keeps")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket, in a folder of its own")
    parser.add_argument("--runs", type=Path, help="folder of the run directories; default: STATE/runs")
    parser.add_argument("--unkept", action="store_true", help="do not start again when killed")
    return parser.parse_args()


def main() -> int:
    """Keep an agent alive: it is a child that is started again when something kills it."""
    arguments = _arguments()
    if arguments.unkept:
        return asyncio.run(_serve(arguments.state, arguments.socket, arguments.runs or arguments.state / "runs"))
    child: subprocess.Popen[bytes] | None = None

    def pass_on(number: int, _frame: object) -> None:
        if child is not None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        began = time.monotonic()
        child = subprocess.Popen(own_process("ddconsole.agent", *sys.argv[1:], "--unkept"))
        status = child.wait()
        if status in (0, _LOST_LOCK) or status == -signal.SIGTERM:
            return max(status, 0)
        if time.monotonic() - began < _SHORTEST_LIFE:
            time.sleep(_SHORTEST_LIFE)


async def _serve(state: Path, path: Path, runs: Path) -> int:
    from aiohttp import web  # noqa: PLC0415  # the keeper needs none of this: it stays at a few megabytes

    from ddconsole.agent.api import application  # noqa: PLC0415
    from ddconsole.agent.service import Service  # noqa: PLC0415
    from ddconsole.agent.socket_folder import UnsafeSocket, listen, lock, private_folder  # noqa: PLC0415
    from ddconsole.core.clock import clock_from_environment  # noqa: PLC0415

    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    logging.basicConfig(
        filename=state / "agent.log", level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    try:
        private_folder(path.parent)
        held = lock(path)
        if held is None:
            return _LOST_LOCK
        listener = listen(path)
    except (UnsafeSocket, OSError) as problem:
        logging.getLogger(__name__).error("%s", problem)  # noqa: TRY400  # the text says it all
        print(problem, file=sys.stderr)  # noqa: T201  # whoever starts an agent by hand should see it
        return 2
    service = Service(runs, clock_from_environment())
    await service.start()
    runner = web.AppRunner(application(service), access_log=None, handler_cancellation=True)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    await _until_told(service.is_idle, service.quit)
    await runner.cleanup()
    await service.stop()
    os.close(held)
    return 0


async def _until_told(is_idle: Callable[[], bool], told: asyncio.Event) -> None:
    """Until a signal or a console says so, or nobody has needed the agent for an hour."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    needed = loop.time()
    while not told.is_set():
        if not is_idle():
            needed = loop.time()
        if loop.time() - needed > _IDLE_LIMIT:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(told.wait(), 10.0)


if __name__ == "__main__":
    sys.exit(main())
