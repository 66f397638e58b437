"""An agent in a process of its own, started again whenever it dies, and a console that keeps what it was sent."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import psutil
from kept_agent import on_disk
from waiting import until

from ddconsole.core import states as st
from ddconsole.core.wire import Submission
from ddconsole.runner.run_directory import RunDirectory

_RIG = Path(__file__).with_name("failing_disk.py")


class Body(Protocol):
    """The process that an agent is, one after the other."""

    async def start(self, *arguments: str) -> None:
        """Start the next one, with the agent's arguments."""
        ...

    def alive(self) -> bool:
        """Whether the last one that was started lives."""
        ...

    async def end(self) -> None:
        """Ask it to go, if it lives, and wait until it has gone."""
        ...


class OwnProcess:
    """A child of the test's, with more in its environment."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = {**os.environ, **(environment or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, *arguments: str) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, str(_RIG), "ddconsole.agent", *arguments, env=self._environment, start_new_session=True
        )

    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def end(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
            await self._process.wait()


class MortalAgent:
    """Runs one sweep to its end, whatever kills the agent meanwhile."""

    def __init__(self, folder: Path, body: Body) -> None:
        self.folder = folder
        self.starts = 0
        self.rests_until: Callable[[], object] = lambda: True
        """It stays dead until this holds."""
        self.sent: list[bytes] = []
        """Every journal line that a console was ever sent, in order."""
        self._socket = folder / "s" / "a"
        self._body = body
        self._following: asyncio.Task[None] | None = None

    async def sweep(self, submission: Submission, seconds: float) -> RunDirectory:
        """Submit, follow, and start the agent again as often as it dies, until the run has ended and owes nothing."""
        run = RunDirectory(self.folder / "runs" / submission.run)
        async with asyncio.timeout(seconds):
            while not _over(run):
                await self._have_agent(submission)
                await asyncio.sleep(0.03)
            # The console is sent the last lines too.
            while len(self.sent) < run.journal.read_bytes().count(b"\n"):
                await self._have_agent(submission)
                await asyncio.sleep(0.03)
        return run

    async def command(self, run: str, name: str, number: str = "1") -> tuple[int, Any]:
        """Tell the sweep something: status and answer."""
        body = {"id": f"{name}-{number}", "name": name, "by": "test", "cells": [], "changes": {}, "because": ""}
        async with self.session() as session, session.post(f"http://a/v1/runs/{run}/commands", json=body) as answer:
            return answer.status, await answer.json()

    async def hello(self) -> Any:
        """Who answers."""
        async with self.session() as session, session.get("http://a/v1/hello") as answer:
            return await answer.json()

    def session(self) -> aiohttp.ClientSession:
        """To the agent of now."""
        return aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(self._socket)))

    async def _have_agent(self, submission: Submission) -> None:
        if self._body.alive():
            if self._following is None or self._following.done():
                self._following = asyncio.create_task(self._follow(submission.run))
            return
        await self.start()
        with contextlib.suppress(aiohttp.ClientError):
            async with self.session() as session:
                async with session.get("http://a/v1/runs") as answer:
                    known = [one["run"] for one in await answer.json()]
                if submission.run not in known:
                    async with session.post("http://a/v1/runs", json=asdict(submission)) as answer:
                        assert answer.status in (201, 507), await answer.text()

    async def start(self) -> None:
        """Start the agent, and wait until it answers or is dead again."""
        if self.starts:
            await until(self.rests_until, 60)
        self.starts += 1
        assert self.starts < 400, "the agent dies again and again"
        state = self.folder / "state"
        argv = ["--state", str(state), "--socket", str(self._socket), "--runs", str(self.folder / "runs"), "--unkept"]
        await self._body.start(*argv)
        while self._body.alive():
            with contextlib.suppress(aiohttp.ClientError, OSError):
                await self.hello()
                return
            await asyncio.sleep(0.02)

    async def _follow(self, run: str) -> None:
        """What a console does; it is told a line only once."""
        with contextlib.suppress(aiohttp.ClientError, OSError):
            async with self.session() as session:
                url = f"http://a/v1/runs/{run}/journal?after={len(self.sent)}"
                async with session.get(url, timeout=aiohttp.ClientTimeout(total=None)) as answer:
                    if answer.status != 200:
                        return
                    async for line in answer.content:
                        if line.startswith(b'{"crc"') and line.endswith(b"\n"):
                            self.sent.append(line)

    async def end(self) -> None:
        """Let the agent go."""
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._body.end()

    def processes(self) -> list[str]:
        """What lives of this folder: named in its arguments, or working in it."""
        mark = str(self.folder)
        found = []
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                argv = " ".join(one.cmdline())
                if one.pid != os.getpid() and (mark in argv or one.cwd().startswith(mark)):
                    found.append(f"{one.pid} {argv[-200:]}")
        return found


def _over(run: RunDirectory) -> bool:
    state = on_disk(run)
    if state.phase is st.RunPhase.PAUSED:
        raise AssertionError(json.dumps([state.paused_because, [str(one.state) for one in state.cells.values()]]))
    ended = state.created is not None and state.phase is st.RunPhase.ENDED and state.live_launch() is None
    return ended and not state.debts
