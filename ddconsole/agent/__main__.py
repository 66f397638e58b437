"""`python -m ddconsole.agent --state FOLDER --socket PATH [--runs FOLDER]`: the host's side of ddconsole."""

import argparse
import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ddconsole.core.own_process import own_process

if TYPE_CHECKING:
    from ddconsole.agent.boot_unit import BootUnit
    from ddconsole.agent.last_life import LastLife
    from ddconsole.agent.placement import Placed
    from ddconsole.agent.service import Service

_SHORTEST_LIFE = 5.0
"""Seconds: an agent that ends sooner is not started again at once."""
_LOOK = 1.0
"""Real seconds between two looks at what is owed."""
_LOST_LOCK = 3
"""Exit status when another agent is there already."""
_IDLE_LIMIT = 3600.0
"""Real seconds without a run and without a console after which the agent leaves."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ddconsole.agent", description="the host's side of ddconsole")
    parser.add_argument("--state", type=Path, required=True, help="folder for what this agent keeps")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket, in a folder of its own")
    parser.add_argument("--runs", type=Path, help="folder of the run directories; default: STATE/runs")
    parser.add_argument("--held", help="stay in this process, which is held by what this says; default: find a place")
    parser.add_argument("--unkept", action="store_true", help="do not start again when killed")
    return parser.parse_args()


def main() -> int:
    """Find the agent a place, and keep it alive there: it is a child that is started again when something kills it."""
    arguments = _arguments()
    if arguments.unkept:
        return asyncio.run(_serve(arguments))
    more = ["--unkept"]
    if arguments.held is None:
        placed = _place(arguments)
        if placed.status is not None:
            return placed.status
        more += ["--held", placed.held]
    else:
        from ddconsole.runner.handed_environment import (  # noqa: PLC0415
            agent_environment,
            boot_environment,
            take_over,
        )

        if not take_over(agent_environment(arguments.socket)):
            take_over(boot_environment(arguments.state), keep=True)
    return _keep([*sys.argv[1:], *more])


def _place(arguments: argparse.Namespace) -> "Placed":
    from ddconsole.agent.placement import Placed, place  # noqa: PLC0415  # a keeper in a unit needs none of this
    from ddconsole.agent.socket_folder import UnsafeSocket, private_folder  # noqa: PLC0415

    try:
        arguments.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        private_folder(arguments.socket.parent)
    except (UnsafeSocket, OSError):
        # The agent itself meets it again, and says it where it is looked for.
        return Placed(None, "a session of its own")
    return place(sys.argv[1:], arguments.state, arguments.socket)


def _keep(argv: list[str]) -> int:
    child: subprocess.Popen[bytes] | None = None
    told = 0

    def pass_on(number: int, _frame: object) -> None:
        nonlocal told
        told = number
        if child is not None:
            child.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        began = time.monotonic()
        child = subprocess.Popen(own_process("ddconsole.agent", *argv))
        if told:  # while it was being started
            child.send_signal(told)
        status = child.wait()
        if status in (0, _LOST_LOCK) or status == -signal.SIGTERM:
            return max(status, 0)
        if time.monotonic() - began < _SHORTEST_LIFE:
            _wait(_SHORTEST_LIFE, lambda: bool(told))
        if told:
            return 0


def _wait(seconds: float, over: Callable[[], bool]) -> None:
    """Sleep in short pieces: a signal's handler does not end a sleep."""
    end = time.monotonic() + seconds
    while not over() and time.monotonic() < end:
        time.sleep(0.1)


async def _serve(arguments: argparse.Namespace) -> int:
    from ddconsole.agent.api import application  # noqa: PLC0415
    from ddconsole.agent.boot_unit import BootUnit  # noqa: PLC0415  # the keeper stays at a few megabytes
    from ddconsole.agent.last_life import LastLife  # noqa: PLC0415
    from ddconsole.agent.listening import Listening  # noqa: PLC0415
    from ddconsole.agent.service import Service  # noqa: PLC0415
    from ddconsole.agent.socket_folder import UnsafeSocket  # noqa: PLC0415
    from ddconsole.core.clock import clock_from_environment  # noqa: PLC0415

    state, path = arguments.state, arguments.socket
    runs = arguments.runs or state / "runs"
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    logging.basicConfig(
        filename=state / "agent.log", level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s"
    )
    listening = Listening(path)
    try:
        if not listening.begin():
            return _LOST_LOCK
    except (UnsafeSocket, OSError) as problem:
        logging.getLogger(__name__).error("%s", problem)  # noqa: TRY400  # the text says it all
        print(problem, file=sys.stderr)  # noqa: T201  # whoever starts an agent by hand should see it
        return 2
    service = Service(runs, clock_from_environment())
    service.held = arguments.held or ""
    life = LastLife(state, service.boot)
    await service.start(life.explanation())
    owing = asyncio.create_task(_keep_owed(service, BootUnit(state, path, runs)))
    living = asyncio.create_task(_keep_note(life))
    await listening.serve(application(service))
    await _until_told(service.is_idle, service.quit)
    await listening.end()
    owing.cancel()
    living.cancel()
    if service.active_run is None:
        life.end()
    await service.stop()
    listening.leave()
    return 0


async def _keep_owed(service: "Service", boot: "BootUnit") -> None:
    """Have the agent started at boot for as long as it owes something."""
    done: bool | None = None
    while True:
        owed = service.owes
        if owed is not done:
            await asyncio.to_thread(boot.owe, owed)
            service.after_reboot = boot.words
            done = owed
        await asyncio.sleep(_LOOK)


async def _keep_note(life: "LastLife") -> None:
    """For the agent after this one, should this one end without a word."""
    await asyncio.to_thread(life.begin)
    while True:
        life.touch()
        await asyncio.sleep(_LOOK)


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
