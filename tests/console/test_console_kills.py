"""Consoles killed with -9 during a sweep: the sweep does not notice, the next console is soon there."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kept_agent import end_agents, on_disk
from sweeps import TREE_SERVER
from tmux_shell import ROOT, TmuxShell, require_tmux

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.runner.run_directory import RunDirectory

pytestmark = [pytest.mark.tmux, pytest.mark.engine]

PLAN = """
name: kills
host: local
model: {{path: {model}}}
engine: {{kind: llamacpp, command: ["{python}", {server}], args: {{pace: {pace}}}}}
methods: {{ar: {{}}, other: {{args: {{ctx-size: 2048}}}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: {lengths}, repetitions: 1}}
placement: none
sampling: {{temperature: 0, seed: 7, ignore_eos: true}}
protocol: {{warmup: 0, ready_timeout: 60s, stall_timeout: 60s}}
"""


class Sweep:
    """A sweep of the command line in folders of its own."""

    def __init__(self, folder: Path, name: str, pace: float, lengths: Sequence[int]) -> None:
        self.folder = folder / name
        (self.folder / "runs").mkdir(parents=True)
        self.run = RunDirectory(self.folder / "runs" / "kills")
        self._model = ROOT / "tests" / "fixtures" / "models" / "tinypy.gguf"
        self._plan = self.folder / "plan.yaml"
        text = PLAN.format(
            model=self._model, python=sys.executable, server=TREE_SERVER, pace=pace, lengths=list(lengths)
        )
        self._plan.write_text(text)
        self.environment = {
            "XDG_STATE_HOME": str(self.folder / "state"),
            "DDCONSOLE_RUNS": str(self.folder / "runs"),
            "TERM": "xterm-256color",
        }

    def begin(self) -> "subprocess.Popen[bytes]":
        return self.headless("run", str(self._plan), "--name", "kills", "--headless")

    def headless(self, *arguments: str) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "ddconsole", *arguments]
        nothing = subprocess.DEVNULL
        return subprocess.Popen(
            argv, cwd=ROOT, env={**os.environ, **self.environment}, stdin=nothing, stdout=nothing, stderr=nothing
        )

    def state(self) -> RunState:
        return on_disk(self.run)

    def finished(self) -> int:
        return sum(1 for row in self.state().cells.values() if row.state.phase in st.END_PHASES)

    def over(self) -> bool:
        state = self.state()
        return state.phase is st.RunPhase.ENDED and state.live_launch() is None

    def until(self, what: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not (self.over() if what == "over" else self.state().running_cell() is not None):
            assert time.monotonic() < end, (what, self.state())
            time.sleep(0.1)

    def end(self) -> None:
        asyncio.run(end_agents(self.folder / "state" / "ddconsole" / "local"))


def normal_form(run: RunDirectory) -> list[tuple[Any, ...]]:
    """A journal without times, pids, ports, figures and steps of a start or stop, and without what consoles asked.

    What is left says which cells there are, and which launches and attempts there were, in order, with their ends.
    """
    entries, damage = read_lines(run.journal.read_bytes())
    assert damage is None
    found: list[tuple[Any, ...]] = []
    for entry in entries:
        match entry.event:
            case ev.CellAdded(cell):
                found.append(("cell", cell["id"], cell["deployment"], cell["point"]["max_tokens"]))
            case ev.LaunchPlanned(launch, deployment, number):
                found.append(("planned", launch, deployment, number))
            case ev.LaunchReady(launch) | ev.LaunchGone(launch) | ev.LaunchFailed(launch):
                found.append((type(entry.event).__name__, launch))
            case ev.AttemptStarted(cell, attempt, launch, number, revision):
                found.append(("started", cell, attempt, launch, number, revision))
            case ev.AttemptDone() | ev.AttemptFailed() | ev.AttemptStopped() | ev.AttemptInterrupted():
                one = entry.event
                found.append((type(one).__name__, one.cell, one.attempt, one.launch))
            case ev.EpochBegan(reason):
                found.append(("epoch", reason))
            case ev.RunEnded(outcome):
                found.append(("ended", outcome))
            case _:
                continue
    return found


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_tmux()
    return tmp_path_factory.mktemp("k")


def kill_consoles(sweep: Sweep, shell: TmuxShell, kills: int, seed: int) -> list[float]:
    """Attach and kill, by turns in the app and headless; the seconds until each app showed the state of now."""
    chooser = random.Random(seed)
    shown: list[float] = []
    for number in range(kills):
        if number % 5 == 4:
            headless = sweep.headless("attach", "kills", "--headless")
            time.sleep(chooser.uniform(0.2, 3.0))
            headless.kill()
            headless.wait()
            continue
        pid, began = shell.start("attach", "kills")
        if number % 5 == 3:
            time.sleep(chooser.uniform(0.1, 1.5))
        else:
            shell.until(lambda: f"{sweep.finished()}/{len(sweep.state().cells)}" in shell.screen())
            shown.append(time.monotonic() - began)
        if number % 5 == 1:
            # A command in flight: pausing costs nothing, and each pause that was taken is undone.
            shell.press("p")
            time.sleep(chooser.uniform(0, 0.15))
        elif number % 5 == 2:
            time.sleep(chooser.uniform(0, 1.0))
        shell.kill(pid)
        if number % 5 == 1:
            time.sleep(0.3)
            if sweep.state().phase is st.RunPhase.PAUSED:
                assert sweep.headless("resume", "kills").wait() == 0
    return shown


def survive(folder: Path, kills: int, lengths: Sequence[int], pace: float) -> list[float]:
    undisturbed = Sweep(folder, "u", 0.001, lengths)
    assert undisturbed.begin().wait(timeout=400) == 0
    undisturbed.end()
    sweep = Sweep(folder, "d", pace, lengths)
    shell = TmuxShell(folder, sweep.environment)
    try:
        first = sweep.begin()
        sweep.until("running", 150)
        first.kill()
        first.wait()
        shown = kill_consoles(sweep, shell, kills - 1, seed=3)
        assert not sweep.over(), "the sweep was too short for so many kills"
        sweep.until("over", 600)
        assert normal_form(sweep.run) == normal_form(undisturbed.run)
        entries, _ = read_lines(sweep.run.journal.read_bytes())
        commands = [entry.event.id for entry in entries if isinstance(entry.event, ev.CommandTaken)]
        assert len(commands) == len(set(commands))
        assert sweep.state().impossible_events == 0
        usable_again(shell)
    finally:
        shell.end()
        sweep.end()
    return shown


def usable_again(shell: TmuxShell) -> None:
    """The next ddconsole of any kind puts the terminal right."""
    shell.type(f"{sys.executable} -m ddconsole status; echo SAID")
    shell.until(lambda: "SAID" in shell.screen().splitlines())
    assert shell.modes() == "0 0 1"
    assert {"icanon", "echo", "icrnl", "opost"} <= shell.line_discipline()


@pytest.mark.timeout(400)
def test_three_kills_of_the_console_are_not_noticed(folder: Path) -> None:
    shown = survive(folder, 4, [20, 21, 22], 0.05)
    assert len(shown) == 3


@pytest.mark.trial
@pytest.mark.timeout(2400)
def test_fifty_kills_of_the_console_are_not_noticed(folder: Path) -> None:
    shown = sorted(survive(folder, 50, range(40, 70), 0.03))
    print(f"re-attach: {len(shown)} times, median {shown[len(shown) // 2]:.2f} s, p95 {_p95(shown):.2f} s")
    assert _p95(shown) < 3.0


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[int(0.95 * (len(values) - 1) + 0.5)]


@pytest.mark.timeout(400)
def test_a_killed_console_spoils_the_terminal_and_the_next_one_mends_it(folder: Path) -> None:
    sweep = Sweep(folder, "d", 0.05, [20, 21])
    shell = TmuxShell(folder, sweep.environment)
    try:
        first = sweep.begin()
        sweep.until("running", 150)
        pid, _ = shell.start("attach", "kills")
        shell.until(lambda: "1 Sweep" in shell.screen())
        shell.kill(pid)
        assert shell.modes() == "1 1 0"
        assert {"-icanon", "-echo"} <= shell.line_discipline()
        shell.start("attach", "kills")
        shell.until(lambda: "1 Sweep" in shell.screen())
        first.wait(timeout=200)
        shell.until(lambda: "complete" in shell.screen())
        shell.press("q")
        shell.until(lambda: "Leave the console?" in shell.screen())
        time.sleep(0.6)  # keys typed ahead answer nothing
        shell.press("y")
        shell.until(lambda: "1 Sweep" not in shell.screen())
        assert shell.modes() == "0 0 1"
        assert {"icanon", "echo", "icrnl", "opost"} <= shell.line_discipline()
        assert not list((sweep.folder / "state").rglob("terminals/*"))
    finally:
        shell.end()
        sweep.end()
