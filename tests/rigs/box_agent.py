"""An agent in a box, as root: started, killed at a step of its work with debts, told things, and asked.

Run as a program it is that agent: impatient, and ended by SIGKILL the first time that it comes to the step that
DDTEST_KILL_AT names (`before` or `after`, and a method of `_STEPS`).
"""

import asyncio
import os
import runpy
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ALIVE = 1.5
"""Seconds that a unit must live after its start, here."""
_STEPS = {
    "take": ("ddconsole.agent.journal", "Journal", "append", "DebtTaken"),
    "write": ("ddconsole.agent.debt_record", "DebtFile", "write", ""),
    "guard": ("ddconsole.agent.systemd_units", "Systemd", "guard", ""),
    "stop": ("ddconsole.agent.systemd_units", "Systemd", "stop", ""),
    "unguard": ("ddconsole.agent.systemd_units", "Systemd", "unguard", ""),
    "start": ("ddconsole.agent.systemd_units", "Systemd", "start", ""),
    "settle": ("ddconsole.agent.journal", "Journal", "append", "DebtSettled"),
    "remove": ("ddconsole.agent.debt_record", "DebtFile", "remove", ""),
}
KILL_POINTS = tuple(f"{when} {step}" for step in _STEPS for when in ("before", "after"))


class BoxAgent:
    """The agent of a state folder in a box's shared folder."""

    def __init__(self, box: "SystemdBox") -> None:
        self.box = box
        self.folder = box.folder / f"agent-{secrets.token_hex(3)}"
        self.folder.mkdir(mode=0o700)
        self.runs = self.folder / "runs"
        self._socket = self.folder / "s" / "agent"
        self._unit = ""

    def start(self, kill_at: str = "", user: str | None = None) -> None:
        """Start it as a unit of the box and wait until it answers."""
        self._unit = f"box-agent-{secrets.token_hex(3)}.service"
        program = [sys.executable, __file__, "--state", str(self.folder / "state"), "--socket", str(self._socket)]
        settings = [f"--setenv=DDTEST_KILL_AT={kill_at}", "--setenv=HOME=/root", "--property=KillMode=process"]
        settings += [f"--uid={user}"] if user else []
        self._socket.unlink(missing_ok=True)
        argv = ["--quiet", f"--unit={self._unit}", *settings, "--", *program, "--runs", str(self.runs), "--unkept"]
        self.box.run("systemd-run", *argv)
        end = time.monotonic() + 20
        while not self._socket.exists() and self.alive():
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def alive(self) -> bool:
        """Whether its process lives."""
        return self.box.show(self._unit, "ActiveState") == "active"

    def kill(self) -> None:
        """SIGKILL; runners go on."""
        self.box.run("systemctl", "kill", "--signal=KILL", "--kill-who=main", self._unit, check=False)

    def log(self) -> str:
        """The last of its log, and how its unit is."""
        path = self.folder / "state" / "agent.log"
        status = self.box.run("systemctl", "status", self._unit, check=False).stdout
        return (path.read_text()[-3000:] if path.exists() else "no log") + status

    async def submit(self, submission: "Submission") -> None:
        """Begin a run."""
        from dataclasses import asdict  # noqa: PLC0415

        await self._post("/v1/runs", asdict(submission))

    async def tell(self, run: str, name: str, **changes: Any) -> str:
        """Give a command; the text of the answer."""
        body = {"id": secrets.token_hex(8), "name": name, "by": "op@test", "changes": changes}
        return str((await self._post(f"/v1/runs/{run}/commands", body))["text"])

    async def _post(self, path: str, body: Any) -> Any:
        import aiohttp  # noqa: PLC0415

        connector = aiohttp.UnixConnector(str(self._socket))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"http://agent{path}", json=body) as answer,
        ):
            told = await answer.json()
            assert answer.status < 300, told
            return told

    def entries(self, run: str) -> "Sequence[Entry]":
        """The run's journal."""
        from ddconsole.core.journal_line import read_lines  # noqa: PLC0415

        path = self.runs / run / "journal.jsonl"
        return read_lines(path.read_bytes())[0] if path.exists() else []

    def state(self, run: str) -> "RunState":
        """What the journal says."""
        from ddconsole.core.fold import fold  # noqa: PLC0415

        return fold(self.entries(run))

    async def until(self, run: str, done: "Callable[[RunState], object]", seconds: float = 30.0) -> "RunState":
        """Wait until the journal says so."""
        end = time.monotonic() + seconds
        while True:
            state = self.state(run)
            if done(state):
                return state
            assert time.monotonic() < end, (state.phase, state.paused_because, state.debts, state.warnings, self.log())
            await asyncio.sleep(0.1)


def _end_at(point: str, once: Path) -> None:
    """Have this process killed at a step, the first time that any agent of this folder comes to it."""
    when, _, step = point.partition(" ")
    module, owner, method, only = _STEPS[step]
    target = getattr(__import__(module, fromlist=[owner]), owner)
    real = getattr(target, method)

    def end() -> None:
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def concerns(arguments: tuple[Any, ...]) -> bool:
        return not only or any(type(event).__name__ == only for event in arguments[1])

    def plain(*arguments: Any) -> Any:
        if when == "before" and concerns(arguments):
            end()
        given = real(*arguments)
        if when == "after" and concerns(arguments):
            end()
        return given

    async def awaited(*arguments: Any) -> Any:
        if when == "before":
            end()
        given = await real(*arguments)
        if when == "after":
            end()
        return given

    setattr(target, method, awaited if asyncio.iscoroutinefunction(real) else plain)


def main() -> None:
    """Be the agent."""
    from failing_disk import install  # noqa: PLC0415

    install()
    sys.path[0:1] = [str(Path(__file__).parents[2])]
    from ddconsole.agent import debts  # noqa: PLC0415

    debts.Patience.__init__.__defaults__ = (ALIVE, 60.0)
    point = os.environ.pop("DDTEST_KILL_AT", "")
    if point:
        state = Path(sys.argv[sys.argv.index("--state") + 1])
        _end_at(point, state.with_name("killed"))
    runpy.run_module("ddconsole.agent", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
else:
    from systemd_box import SystemdBox

    from ddconsole.core.events import Entry
    from ddconsole.core.run_state import RunState
    from ddconsole.core.wire import Submission
