"""A deadline that comes while a real engine is measured."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.deadline_watch import DeadlineWatch
from ddconsole.agent.journal import Journal
from ddconsole.agent.run_store import first_events
from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.clock import ScaledClock, SystemClock
from ddconsole.core.events import DeadlineSet
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command
from ddconsole.runner.boot import Boot

MODELS = Path(__file__).parents[1] / "fixtures" / "models"


def set_deadline(service: Service, seconds: float) -> float:
    """A deadline so many seconds from now, as the host would have resolved a time of day."""
    at = time.time() + seconds
    journal = service.journal("test-run")
    assert journal is not None
    journal.append([DeadlineSet(at, "07:00 CET", "test")])
    return at


@pytest.mark.engine
async def test_a_real_sweep_is_over_before_its_deadline_and_goes_on_with_a_later_one(service: Service) -> None:
    order = submission([deployment("d01"), deployment("d02", "other")], cells("d01", 300) + cells("d02", 300, 301))
    order = replace(
        order,
        engine={**order.engine, "command": [sys.executable, "-m", "ddconsole.engines.xllamacpp_server"]},
        model={"path": str(MODELS / "tinypy.gguf"), "draft": None, "source": None},
    )
    service.submit(order)
    at = set_deadline(service, 30.0)
    state = await until(service, "test-run", ended, 120.0)

    assert state.at <= at + 1.0
    assert state.outcome == "deadline"
    assert survivors(directory(service), state) == []
    dropped = [row for row in state.cells.values() if isinstance(row.state, st.Skipped)]
    assert dropped, phases(state)
    assert {row.state.by for row in dropped if isinstance(row.state, st.Skipped)} == {"deadline"}
    assert any("does not fit before 07:00 CET: it needs about" in str(row.state) for row in dropped)
    assert state.cells["c600"] in dropped

    answer = service.command(directory(service), Command("later", "until", "test", (), {"until": "none"}))
    assert answer.taken, answer.text
    state = await until(
        service, "test-run", lambda state: not any(_is_dropped(row.state) for row in state.cells.values())
    )
    assert state.phase is st.RunPhase.RUNNING


def nothing_is_dropped(state: RunState) -> bool:
    return not any(_is_dropped(row.state) for row in state.cells.values())


def _is_dropped(state: st.CellState) -> bool:
    return isinstance(state, st.Skipped)


@pytest.mark.engine
async def test_a_running_cell_is_stopped_in_time_and_a_paused_sweep_ends(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=1.0)], cells("d01", 2)))
    await until(service, "test-run", lambda state: state.running_cell() is not None)
    answer = service.command(directory(service), Command("p", "pause", "test"))
    assert answer.taken
    set_deadline(service, 8.0)
    state = await until(service, "test-run", ended)
    assert state.outcome == "deadline"
    first = state.cells["c001"].state
    assert first == st.Skipped("deadline", "stopped while it ran: the deadline had come")
    assert _is_dropped(state.cells["c002"].state)


class HandClock(SystemClock):
    """Wall and monotonic time that a test moves apart."""

    wall = 0.0
    passed = 0.0

    def now(self) -> float:
        return 1_000_000.0 + HandClock.wall

    def monotonic(self) -> float:
        return 500.0 + HandClock.passed


def test_a_wall_clock_that_is_set_moves_no_deadline(tmp_path: Path) -> None:
    clock = HandClock()
    journal = Journal.open(tmp_path / "journal.jsonl", clock, boot=Boot("b", 0.0, 0.0), pid=1, version="t")
    journal.append(first_events(submission([deployment("d01")], cells("d01", 1))))
    journal.append([DeadlineSet(clock.now() + 3600.0, "later", "test")])
    watch = DeadlineWatch(journal, clock)
    watch.look(0.0)
    assert isinstance(journal.state.cells["c001"].state, st.Pending)
    HandClock.wall = 7200.0
    watch.look(100.0)
    assert isinstance(journal.state.cells["c001"].state, st.Pending)
    HandClock.passed = 3590.0
    watch.look(200.0)
    assert _is_dropped(journal.state.cells["c001"].state)
    journal.close()


async def test_a_time_that_is_none_is_refused_by_the_host_too(service: Service) -> None:
    service.submit(submission([deployment("d01", pace=1.0)], cells("d01", 1)))
    refused = service.command(directory(service), Command("bad", "until", "test", (), {"until": "25:00"}))
    assert (refused.taken, refused.text) == (False, "until: no time of day: write one like 07:00, or none")
    taken = service.command(directory(service), Command("good", "until", "test", (), {"until": "none"}))
    assert (taken.taken, taken.text) == (True, "no deadline any more")


def test_in_a_rehearsal_the_deadline_comes_by_its_faster_clock(tmp_path: Path) -> None:
    clock = ScaledClock(600.0, time.time())
    journal = Journal.open(tmp_path / "journal.jsonl", clock, boot=Boot("b", 0.0, 0.0), pid=1, version="t")
    journal.append(first_events(submission([deployment("d01")], cells("d01", 1))))
    journal.append([DeadlineSet(clock.now() + 300.0, "soon", "test")])
    watch = DeadlineWatch(journal, clock)
    watch.look(0.0)
    assert isinstance(journal.state.cells["c001"].state, st.Pending)
    # Five minutes of it are half a second.
    time.sleep(0.6)
    watch.look(100.0)
    assert _is_dropped(journal.state.cells["c001"].state)
    journal.close()
