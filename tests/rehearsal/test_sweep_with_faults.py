"""The CT200 sweep with everything going wrong: what becomes of every cell is written down before it runs."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState
from ddconsole.link.client import AgentError
from ddconsole.link.connect import connect
from ddconsole.runner.belonging import members_of
from ddconsole.runner.run_directory import RunDirectory

TESTS = Path(__file__).parents[1]
FAULTS = TESTS / "fixtures" / "rehearsal" / "ct200-faults.json"

EXPECTED = {
    "ar TP1": "done",
    "ar TP4": "done",
    "ar TP8": "done",
    # crash while loading, for no known reason: it would repeat, so the cells say so once, together
    "dflash TP1": "blocked",
    # hang while loading: ended at the ready timeout, tried again
    "dflash TP4": "done",
    # does not fit: a change is needed
    "dflash TP8": "blocked",
    # crash in mid-stream: the cell is measured again on another launch
    "ddtree-b8 TP1": "done",
    # detokenizer dead: the same
    "ddtree-b8 TP4": "done",
    # port taken by somebody in between: tried again on another port
    "ddtree-b8 TP8": "done",
    # a stop that drains for ever ends by SIGKILL and costs no cell
    "ddtree-b12 TP1": "done",
    # the draft is silently not used: refused before anything is measured
    "ddtree-b12 TP4": "blocked",
    # out of memory while capturing graphs: a change is needed
    "ddtree-b12 TP8": "blocked",
    # the same driver fault on every launch: three starts of one deployment, one of the next, then the sweep pauses
    "ddtree-b15 TP1": "blocked",
    "ddtree-b15 TP4": "pending",
    "ddtree-b15 TP8": "pending",
    "ddtree-b16 TP1": "pending",
    "ddtree-b16 TP4": "pending",
    "ddtree-b16 TP8": "pending",
    # beyond what the short plan has
    "ddtree-b32 TP1": "pending",
    "ddtree-b64 TP1": "pending",
    "ddtree-b32 TP4": "skipped",
    "ddtree-b32 TP8": "skipped",
    "ddtree-b64 TP4": "skipped",
    "ddtree-b64 TP8": "skipped",
}
CAUSES = {
    "dflash TP8": "SG-KV-NONE",
    "ddtree-b12 TP4": "SPECULATION-OFF",
    "ddtree-b12 TP8": "SG-GRAPH-OOM",
    "ddtree-b15 TP1": "CUDA-ILLEGAL",
}


@dataclass(frozen=True)
class Rehearsed:
    """A rehearsal that has come to its end."""

    status: int
    output: str
    run: RunDirectory
    state: RunState


def rehearse(plan: str, folder: Path, seconds: float) -> Rehearsed:
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "DDCONSOLE_RUNS": str(folder / "runs")}
    argv = [sys.executable, "-m", "ddconsole", "rehearse", plan, "--headless", "--name", "faulty", "--scale", "60"]
    done = subprocess.run(
        [*argv, "--faults", str(FAULTS)], env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
    run = RunDirectory(folder / "runs" / "faulty")
    entries, damage = read_lines(run.journal.read_bytes())
    assert damage is None
    return Rehearsed(done.returncode, done.stdout + done.stderr, run, fold(entries))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "runs").mkdir()
    yield tmp_path
    asyncio.run(_end_agent(tmp_path))


async def _end_agent(folder: Path) -> None:
    try:
        client = await connect(
            "local", state_directory=str(folder / "state" / "ddconsole" / "rehearsal" / "hosts" / "faulty" / "agent")
        )
    except AgentError:
        return
    hello = await client.hello()
    keeper = int(Path(f"/proc/{hello.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(keeper, signal.SIGTERM)
    await client.close()


def verify(rehearsed: Rehearsed) -> None:
    state = rehearsed.state
    found: dict[str, set[str]] = {}
    causes: dict[str, set[str]] = {}
    for row in state.cells.values():
        label = state.deployments[row.cell.deployment].label
        found.setdefault(label, set()).add(row.state.phase.value)
        if isinstance(row.state, st.Blocked | st.Failed):
            causes.setdefault(label, set()).add(row.state.cause.id)
    expected = {label: {phase} for label, phase in EXPECTED.items() if label in found}
    unfit = {label for label, phases in found.items() if "unfit" in phases}
    assert {label: phases - {"unfit"} for label, phases in found.items()} == expected, rehearsed.output[-3000:]
    assert unfit <= {"ddtree-b32 TP1", "ddtree-b64 TP1"}
    assert {label: causes[label] for label in CAUSES} == {label: {cause} for label, cause in CAUSES.items()}
    assert rehearsed.status == 3
    assert state.phase is st.RunPhase.PAUSED
    assert state.paused_by == "ddconsole"
    assert "ddtree-b15 TP1 and ddtree-b15 TP4" in state.paused_because
    assert [one.deployment for one in state.launches.values() if one.cause and one.cause.id == "CUDA-ILLEGAL"] == [
        *[_id(state, "ddtree-b15 TP1")] * 3,
        _id(state, "ddtree-b15 TP4"),
    ]
    for number in state.launches:
        place = rehearsed.run.launch(number)
        assert members_of(place) == set()
    assert json.loads(rehearsed.run.attempt("c001", 1).read_bytes())["simulated"] is True
    assert state.impossible_events == 0


def _id(state: RunState, label: str) -> str:
    return next(name for name, one in state.deployments.items() if one.label == label)


@pytest.mark.timeout(400)
def test_faults_end_as_written_down_before(folder: Path) -> None:
    verify(rehearse(str(TESTS / "fixtures" / "plans" / "ct200-short.yaml"), folder, 380))


@pytest.mark.trial
@pytest.mark.timeout(1500)
def test_the_whole_ct200_plan_with_faults(folder: Path) -> None:
    verify(rehearse("ct200-ddtree", folder, 1400))


@pytest.mark.trial
@pytest.mark.timeout(240)
def test_a_rehearsed_sweep_is_over_by_its_deadline_and_marked_simulated(folder: Path) -> None:
    """The time of day that was asked for is one of the simulated host's clock, which runs sixty times faster."""
    until = time.strftime("%H:%M", time.localtime(time.time() + 45 * 60))
    plan = TESTS / "fixtures" / "plans" / "ct200-short.yaml"
    environment = {**os.environ, "XDG_STATE_HOME": str(folder / "state"), "DDCONSOLE_RUNS": str(folder / "runs")}
    argv = [sys.executable, "-m", "ddconsole", "rehearse", str(plan), "--headless", "--name", "due", "--until", until]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=200, check=False)
    entries, _ = read_lines((folder / "runs" / "due" / "journal.jsonl").read_bytes())
    state = fold(entries)
    assert "run ended: deadline" in done.stdout, done.stdout[-2000:] + done.stderr
    assert state.created is not None
    assert state.created.simulated
    assert state.deadline is not None
    # What a stop costs this machine is not faster there: five seconds are five minutes.
    assert state.at <= state.deadline.at + 5 * 60
    assert any(isinstance(row.state, st.Done) for row in state.cells.values())
    assert any(isinstance(row.state, st.Skipped) and row.state.by == "deadline" for row in state.cells.values())
