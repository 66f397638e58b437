"""Keys pressed in the real app, in a real terminal, during a real sweep; then journal, files and processes are read."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kept_agent import end_agents
from sweeps import TREE_SERVER
from tmux_shell import require_tmux

from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.editing import editable_fields
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.runner.belonging import members_of
from ddconsole.runner.identity import listening_pids
from ddconsole.runner.run_directory import RunDirectory

pytestmark = [pytest.mark.tmux, pytest.mark.engine]

ROOT = Path(__file__).parents[2]
MODEL = ROOT / "tests" / "fixtures" / "models" / "tinypy.gguf"
PLAN = """
name: keys
host: local
model: {{path: {model}}}
engine: {{kind: llamacpp, command: ["{python}", {server}], args: {{pace: 0.03}}}}
methods: {{ar: {{}}, other: {{args: {{pace: 0.02}}}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: [20, 24, 28, 32], repetitions: 1}}
placement: none
sampling: {{temperature: 0, seed: 7, ignore_eos: true}}
protocol: {{warmup: 0, ready_timeout: 30s, stall_timeout: 20s}}
"""

REAL_ENGINE = """
name: keys
host: local
model: {{path: {model}}}
engine: {{kind: llamacpp, command: ["{python}", -m, ddconsole.engines.xllamacpp_server], args: {{threads: 1}}}}
methods: {{ar: {{}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: [160, 176, 192], repetitions: 300}}
placement: none
sampling: {{temperature: 0, seed: 7, ignore_eos: true}}
protocol: {{warmup: 0, ready_timeout: 60s, stall_timeout: 20s}}
"""


class Console:
    """The app in a tmux pane, on a sweep of its own."""

    def __init__(self, folder: Path, width: int, height: int, plan_text: str = PLAN) -> None:
        self.folder = folder
        self.run = RunDirectory(folder / "runs" / "keys")
        self._tmux = ["tmux", "-S", str(folder / "t"), "-f", "/dev/null"]
        (folder / "runs").mkdir()
        plan = folder / "keys.yaml"
        plan.write_text(plan_text.format(model=MODEL, python=sys.executable, server=TREE_SERVER))
        environment = {"XDG_STATE_HOME": folder / "state", "DDCONSOLE_RUNS": folder / "runs", "TERM": "xterm-256color"}
        given = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        program = f"{sys.executable} -m ddconsole run {plan} --name keys; echo LEFT WITH $?; exec sleep 600"
        subprocess.run(
            [*self._tmux, "new-session", "-d", "-x", str(width), "-y", str(height), *given, program],
            check=True,
            cwd=ROOT,
        )

    def press(self, *keys: str) -> None:
        for key in keys:
            subprocess.run([*self._tmux, "send-keys", key], check=True)
            time.sleep(0.15)

    def type(self, text: str) -> None:
        subprocess.run([*self._tmux, "send-keys", "-l", text], check=True)
        time.sleep(0.15)

    def screen(self) -> str:
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def alternate_screen(self) -> bool:
        return self._flag("alternate_on")

    def cursor_shown(self) -> bool:
        return self._flag("cursor_flag")

    def _flag(self, name: str) -> bool:
        argv = [*self._tmux, "display-message", "-p", f"#{{{name}}}"]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip() == "1"

    def state(self) -> RunState:
        try:
            entries, _ = read_lines(self.run.journal.read_bytes())
        except FileNotFoundError:
            return RunState()
        return fold(entries)

    def until(self, condition: Callable[[RunState], bool], seconds: float = 40.0) -> RunState:
        end = time.monotonic() + seconds
        while True:
            state = self.state()
            if condition(state):
                return state
            assert time.monotonic() < end, f"{phases(state)}\n{self.screen()}"
            time.sleep(0.05)

    def until_shown(self, text: str, seconds: float = 20.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.screen():
            assert time.monotonic() < end, f"{text!r} is not shown\n{self.screen()}"
            time.sleep(0.1)

    def until_rows_shown(self, method: str, states: list[str], seconds: float = 20.0) -> None:
        """Wait until the table's rows of a method say these states."""
        end = time.monotonic() + seconds
        while True:
            rows = [line.lstrip("\u258c ").split() for line in self.screen().splitlines()]
            said = [row[1] for row in rows if len(row) > 3 and row[2] == method]
            if said == states:
                return
            assert time.monotonic() < end, f"{said}\n{self.screen()}"
            time.sleep(0.1)

    def go_to(self, cell: str) -> None:
        """Put the cursor on a cell: from the top of the table downwards."""
        place = list(self.state().cells).index(cell)
        self.press("Home", *["Down"] * place)

    def confirm(self) -> None:
        """Answer the question: keys are ignored for a moment after it opened."""
        time.sleep(0.6)
        self.press("y")

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
        asyncio.run(end_agents(self.folder / "state" / "ddconsole" / "local"))


def phases(state: RunState) -> dict[str, str]:
    return {name: row.state.phase.value for name, row in state.cells.items()}


def phase(state: RunState, cell: str) -> st.CellPhase:
    return state.cells[cell].state.phase


@pytest.fixture
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    require_tmux()
    one = Console(tmp_path_factory.mktemp("c"), 160, 45)
    yield one
    one.end()


@pytest.fixture
def small_console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    require_tmux()
    one = Console(tmp_path_factory.mktemp("s"), 80, 24, REAL_ENGINE)
    yield one
    one.end()


@pytest.mark.timeout(180)
def test_each_key_has_exactly_its_effect(console: Console) -> None:
    console.until(lambda state: bool(state.created) and state.running_cell() is not None)
    console.until_shown("c001")
    launch_pid = console.until(lambda state: state.launches[1].pid is not None).launches[1].pid

    console.go_to("c003")
    console.press("-")
    console.confirm()
    console.until(lambda state: phase(state, "c003") is st.CellPhase.SKIPPED)

    console.press("p")
    console.until(lambda state: state.phase is st.RunPhase.PAUSED)
    paused = console.until(lambda state: state.running_cell() is None)
    assert paused.launches[1].state.phase is st.LaunchPhase.READY
    measured = {name for name, row in paused.cells.items() if row.attempts}

    console.press("P")
    state = console.until(lambda state: state.running_cell() is not None)
    assert state.launches[1].pid == launch_pid
    running = next(name for name, row in state.cells.items() if isinstance(row.state, st.Running))
    assert running not in measured
    console.press("r")
    console.press("x")
    console.confirm()
    stopped = console.until(lambda state: phase(state, running) is st.CellPhase.STOPPED)
    attempt = attempt_from_json(json.loads(console.run.attempt(running, 1).read_bytes()))
    assert attempt.outcome == "stopped"
    assert {one.outcome.value for one in attempt.requests} <= {"ok", "cancelled"}
    assert stopped.launches[1].pid == launch_pid

    console.go_to(running)
    console.press("R")
    time.sleep(0.4)
    if phase(console.state(), running) is st.CellPhase.STOPPED:
        console.confirm()
    console.until(lambda state: phase(state, running) is not st.CellPhase.STOPPED)

    state = console.until(lambda state: phase(state, "c008") is st.CellPhase.PENDING)
    console.go_to("c008")
    console.press("S")
    console.confirm()
    console.until(lambda state: bool(state.cells["c008"].attempts), 60)
    after = console.until(lambda state: state.phase is st.RunPhase.ENDED and state.live_launch() is None, 120)
    order = {name: row.attempts[-1].started for name, row in after.cells.items() if row.attempts}
    assert all(order["c008"] < order[name] for name in ("c005", "c006", "c007"))
    assert after.cells["c003"].attempts == ()
    assert not console.run.attempt("c003", 1).exists()
    assert after.cells[running].attempts[0].outcome is st.CellPhase.STOPPED
    assert phase(after, running) is st.CellPhase.DONE
    assert after.impossible_events == 0
    console.until_shown("complete")
    nothing_is_left(console, after)
    leave(console)
    assert not console.alternate_screen()


@pytest.mark.timeout(180)
def test_edits_stop_now_and_leaving(console: Console) -> None:
    console.until(lambda state: bool(state.created) and state.running_cell() is not None)
    console.until_shown("c001")
    console.press("p")
    console.until(lambda state: state.phase is st.RunPhase.PAUSED)

    console.go_to("c004")
    console.press("E")
    console.until_shown("what is asked of the server", 10)
    edit_field(console, "c004", "max_tokens", "12")
    console.until(lambda state: state.cells["c004"].cell.point.max_tokens == 12)
    assert console.state().cells["c004"].cell.deployment == "d01"

    console.go_to("c006")
    console.press("E")
    console.until_shown("what is asked of the server", 10)
    edit_field(console, "c006", "--pace", "0.05")
    state = console.until(lambda state: state.cells["c006"].cell.deployment != "d02")
    moved = state.cells["c006"].cell.deployment
    assert state.deployments[moved].args["pace"] == 0.05

    console.press("P")
    console.until(lambda state: state.phase is st.RunPhase.RUNNING)
    leave(console)
    state = console.until(lambda state: bool(state.cells["c006"].attempts), 120)
    number = next(number for number, launch in state.launches.items() if launch.deployment == moved)
    order = json.loads(console.run.launch(number).order.read_bytes())
    assert order["deployment"]["args"]["pace"] == 0.05
    port = state.launches[number].port
    assert port is not None
    commands = [Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0") for pid in listening_pids(port) or ()]
    assert commands
    assert all(command[command.index(b"--pace") + 1] == b"0.05" for command in commands)
    attempt = attempt_from_json(json.loads(console.run.attempt("c004", 1).read_bytes()))
    assert [one.output_tokens for one in attempt.requests] == [12] * 5
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(console.folder / "state"),
        "DDCONSOLE_RUNS": str(console.folder / "runs"),
    }
    argv = [sys.executable, "-m", "ddconsole"]
    subprocess.run([*argv, "stop-run", "keys"], env=environment, check=True, capture_output=True)
    done = subprocess.run(
        [*argv, "attach", "keys", "--headless"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "run ended: " in done.stdout, done.stdout + done.stderr
    state = console.until(lambda state: state.phase is st.RunPhase.ENDED and state.live_launch() is None)
    nothing_is_left(console, state)


@pytest.mark.timeout(180)
def test_a_real_engine_is_steered_at_80x24(small_console: Console) -> None:
    console = small_console
    console.until(lambda state: isinstance(state.cells.get("c001") and state.cells["c001"].state, st.Running))
    console.until_rows_shown("ar", ["running", "pending", "pending"])
    launch = console.until(lambda state: state.launches[1].port is not None).launches[1]
    assert launch.port is not None
    server = listening_pids(launch.port)
    assert server is not None
    assert len(server) == 1
    time.sleep(1.0)

    console.press("r", "x")
    console.confirm()
    console.until(lambda state: phase(state, "c001") is st.CellPhase.STOPPED)
    attempt = attempt_from_json(json.loads(console.run.attempt("c001", 1).read_bytes()))
    outcomes = [one.outcome.value for one in attempt.requests]
    assert attempt.outcome == "stopped"
    assert 0 < outcomes.count("ok") < 1500
    assert set(outcomes) <= {"ok", "cancelled"}
    console.until(lambda state: phase(state, "c002") is st.CellPhase.RUNNING)

    console.go_to("c001")
    console.press("R")
    console.until(lambda state: phase(state, "c001") is st.CellPhase.PENDING)
    console.press("S")
    console.confirm()
    state = console.until(lambda state: phase(state, "c001") is st.CellPhase.RUNNING)
    assert phase(state, "c002") is st.CellPhase.STOPPED
    assert [(one.number, one.launch) for one in state.cells["c001"].attempts] == [(1, 1), (2, 1)]
    assert state.cells["c003"].attempts == ()
    assert listening_pids(launch.port) == server
    console.until_rows_shown("ar", ["running", "stopped", "pending"])

    console.press("C-x")
    console.confirm()
    state = console.until(lambda state: state.phase is st.RunPhase.ENDED and state.live_launch() is None)
    assert list(state.launches) == [1]
    assert state.cells["c003"].attempts == ()
    nothing_is_left(console, state)
    assert console.alternate_screen()
    leave(console)
    assert not console.alternate_screen()
    assert console.cursor_shown()


def nothing_is_left(console: Console, state: RunState) -> None:
    for number, launch in state.launches.items():
        place = console.run.launch(number)
        assert members_of(place) == set()
        assert launch.port is None or not listening_pids(launch.port)


def leave(console: Console) -> None:
    console.press("q")
    console.until_shown("Leave the console?")
    console.confirm()
    console.until_shown("LEFT WITH 0")


def edit_field(console: Console, cell: str, name: str, value: str) -> None:
    """Go to a field of the form, replace its value, and save."""
    state = console.state()
    row = state.cells[cell]
    flags = [f"--{flag}" for flag in state.deployments[row.cell.deployment].args]
    fields = [field.name for field in editable_fields(row.cell.point)]
    # Backwards from the first field: the form itself, the field for a new flag, then the flags from the last on.
    moves = ["Down"] * fields.index(name) if name in fields else ["BTab"] * (2 + len(flags) - flags.index(name))
    console.press(*moves)
    console.press("End", *["BSpace"] * 8)
    console.type(value)
    time.sleep(0.3)
    console.press("C-s")
    time.sleep(0.6)
