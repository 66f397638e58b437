"""The states of cells, launches and runs, as the journal makes them."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from journals import cell, deployment, done, entries, failed, launched, small_run, started

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.fold import apply, fold
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import cell_from_json, deployment_from_json, to_json


def phase(state: RunState, name: str) -> st.CellPhase:
    return state.cells[name].state.phase


def test_a_cell_is_done_when_each_round_has_a_done_attempt() -> None:
    once = small_run(*launched(), started("c001"), done("c001"), rounds=2)
    assert phase(once, "c001") is st.CellPhase.PENDING
    assert once.cells["c001"].next_round() == 2
    twice = small_run(
        *launched(),
        started("c001"),
        done("c001"),
        ev.LaunchGone(1),
        *launched(2),
        started("c001", 2, 2, 2),
        done("c001", 2, 2),
        rounds=2,
    )
    assert phase(twice, "c001") is st.CellPhase.DONE


def test_applying_an_entry_twice_changes_nothing() -> None:
    state = small_run(*launched(), started("c001"), done("c001"))
    again = apply(state, ev.Entry(1, state.seq, 5.0, ev.CellsSkipped(("c002",), "me", "x")))
    assert again is state


def test_an_event_taken_over_twice_counts_once() -> None:
    state = small_run(ev.LaunchPlanned(1, "d01", 1))
    starting = ev.LaunchStarting(1, "load weights", 0.5)
    first = apply(state, ev.Entry(1, state.seq + 1, 5.0, starting, ev.Origin(1, 1)))
    ready = apply(first, ev.Entry(1, first.seq + 1, 6.0, ev.LaunchReady(1), ev.Origin(1, 2)))
    late = apply(ready, ev.Entry(1, ready.seq + 1, 7.0, starting, ev.Origin(1, 1)))
    assert late.launches[1].state.phase is st.LaunchPhase.READY
    assert late.launches[1].taken_over == 2
    assert late.impossible_events == 0


def test_an_unknown_event_changes_nothing_and_is_counted() -> None:
    state = small_run()
    event = ev.event_from_json({"type": "FromTheFuture", "cells": ["c001"]})
    after = apply(state, ev.Entry(1, state.seq + 1, 5.0, event))
    assert event is None
    assert after.unknown_events == 1
    assert after.cells == state.cells


def test_fields_of_a_newer_version_are_ignored() -> None:
    event = ev.event_from_json({"type": "RunResumed", "by": "me", "mood": "good"})
    assert event == ev.RunResumed("me")


def test_a_failure_that_may_be_retried_goes_back_to_pending_twice_at_most() -> None:
    state = small_run(*launched())
    for attempt in (1, 2, 3):
        events: list[ev.Event] = [started("c001", attempt), failed("c001", attempt, "asis")]
        state = fold(entries(events, state.seq + 1), state)
        expected = st.CellPhase.FAILED if attempt == 3 else st.CellPhase.PENDING
        assert phase(state, "c001") is expected, attempt
    assert len(state.cells["c001"].attempts) == 3


def test_a_failure_that_needs_a_change_stays_failed() -> None:
    state = small_run(*launched(), started("c001"), failed("c001"))
    row = state.cells["c001"].state
    assert isinstance(row, st.Failed)
    assert row.cause.id == "CUDA-OOM"


def test_a_failed_start_blocks_the_waiting_cells_of_its_deployment_together() -> None:
    state = small_run(ev.LaunchPlanned(1, "d01", 1), ev.LaunchFailed(1, "ARG-UNRECOGNIZED", "no such flag"))
    assert {name: phase(state, name) for name in state.cells} == {
        "c001": st.CellPhase.BLOCKED,
        "c002": st.CellPhase.BLOCKED,
        "c003": st.CellPhase.PENDING,
        "c004": st.CellPhase.PENDING,
    }


def test_a_start_that_may_be_tried_again_blocks_after_the_third_failure() -> None:
    state = small_run()
    for number in (1, 2, 3):
        events: list[ev.Event] = [
            ev.LaunchPlanned(number, "d01", 1),
            ev.LaunchFailed(number, "READY-TIMEOUT", "slow", retry="asis"),
        ]
        state = fold(entries(events, state.seq + 1), state)
        assert phase(state, "c001") is (st.CellPhase.BLOCKED if number == 3 else st.CellPhase.PENDING)


def test_a_server_that_dies_after_ready_leaves_the_other_cells_pending() -> None:
    state = small_run(*launched(), started("c001"), failed("c001"), ev.LaunchFailed(1, "CUDA-OOM", "out of memory"))
    assert phase(state, "c001") is st.CellPhase.FAILED
    assert phase(state, "c002") is st.CellPhase.PENDING


def test_skip_of_a_running_cell_ends_skipped_whatever_the_attempt_came_to() -> None:
    skip = ev.CellStopRequested("c001", 1, "me", then_skip=True)
    ends: list[ev.Event] = [ev.AttemptStopped("c001", 1, 1, "me"), done("c001"), failed("c001")]
    for end in ends:
        state = small_run(*launched(), started("c001"), skip, end)
        assert phase(state, "c001") is st.CellPhase.SKIPPED, end


def test_an_interrupted_attempt_is_measured_again_and_its_number_is_not_used_twice() -> None:
    state = small_run(*launched(), started("c001"), ev.AttemptInterrupted("c001", 1, 1, "the runner died"))
    assert phase(state, "c001") is st.CellPhase.PENDING
    assert [one.number for one in state.cells["c001"].attempts] == [1]


def test_an_attempt_of_a_cell_that_was_withdrawn_is_kept_as_void() -> None:
    state = small_run(*launched(), ev.CellsSkipped(("c001",), "me", "no"), started("c001"))
    assert phase(state, "c001") is st.CellPhase.SKIPPED
    assert state.cells["c001"].attempts[0].outcome is st.CellPhase.INTERRUPTED
    after = fold(entries([done("c001")], state.seq + 1), state)
    assert phase(after, "c001") is st.CellPhase.SKIPPED
    assert after.impossible_events == 1


def test_retry_of_a_done_cell_adds_a_round() -> None:
    state = small_run(*launched(), started("c001"), done("c001"), ev.CellsRetried(("c001",), "me"))
    assert phase(state, "c001") is st.CellPhase.PENDING
    assert state.cells["c001"].next_round() == 2


def test_an_edit_makes_a_new_revision_whose_earlier_attempts_do_not_count() -> None:
    edited = cell("c001").edited(cell(max_tokens=128).point, "d01")
    state = small_run(*launched(), started("c001"), done("c001"), ev.CellEdited(to_json(edited), "me"))
    assert phase(state, "c001") is st.CellPhase.PENDING
    assert state.cells["c001"].done_attempts() == ()
    assert len(state.cells["c001"].attempts) == 1


def test_a_duplicate_stands_behind_its_origin() -> None:
    copy = to_json(cell("c005"))
    copy["derived_from"] = "c001"
    state = small_run(ev.CellAdded(copy))
    assert list(state.cells) == ["c001", "c005", "c002", "c003", "c004"]


def test_a_dirty_launch_keeps_its_cause() -> None:
    events: tuple[ev.Event, ...] = (*launched(), ev.LaunchFailed(1, "X", "x"), ev.LaunchDirty(1, ("pid 7",)))
    state = small_run(*events)
    live = state.live_launch()
    assert live is not None
    assert live.cause is not None
    assert isinstance(live.state, st.Dirty)
    assert small_run(*events, ev.LaunchGone(1)).live_launch() is None


def test_deployments_and_cells_survive_json() -> None:
    for value in (deployment(), deployment("d02", "ngram", 4)):
        assert deployment_from_json(json.loads(json.dumps(to_json(value)))) == value
    assert cell_from_json(json.loads(json.dumps(to_json(cell())))) == cell()


_names = some.sampled_from(["c001", "c002", "c003", "c004", "c009"])
_attempts = some.integers(1, 3)
_launches = some.integers(1, 3)
_any_event: some.SearchStrategy[ev.Event] = some.one_of(
    some.builds(ev.LaunchPlanned, _launches, some.sampled_from(["d01", "d02", "d09"]), _attempts),
    some.builds(ev.LaunchStarting, _launches, some.just("load")),
    some.builds(ev.LaunchReady, _launches),
    some.builds(ev.LaunchStopping, _launches, some.just("asked"), some.just(1.0)),
    some.builds(ev.LaunchGone, _launches),
    some.builds(ev.LaunchDirty, _launches, some.just(("pid 7",))),
    some.builds(ev.LaunchFailed, _launches, some.just("X"), some.just("x"), retry=some.sampled_from(["asis", "never"])),
    some.builds(ev.AttemptStarted, _names, _attempts, _launches, _attempts, some.just(0)),
    some.builds(ev.AttemptDone, _names, _attempts, _launches, some.just(""), some.just(""), some.just({})),
    some.builds(ev.AttemptFailed, _names, _attempts, _launches, some.just("X"), some.just("x")),
    some.builds(ev.AttemptInterrupted, _names, _attempts, _launches, some.just("died")),
    some.builds(ev.CellsRetried, some.tuples(_names), some.just("me")),
    some.builds(ev.CellsSkipped, some.tuples(_names), some.just("me"), some.just("")),
    some.builds(ev.CellStopRequested, _names, _attempts, some.just("me"), some.booleans()),
    some.builds(ev.CellsMovedFirst, some.tuples(_names), some.just("me")),
    some.builds(ev.RunPaused, some.just("me"), some.just("")),
    some.builds(ev.RunResumed, some.just("me")),
)


@settings(max_examples=200, deadline=None)
@given(some.lists(_any_event, max_size=30))
def test_any_order_of_events_folds_and_obeys_the_tables(events: list[ev.Event]) -> None:
    state = small_run()
    for entry in entries(events, state.seq + 1):
        before, state = state, apply(state, entry)
        for name, row in state.cells.items():
            was = before.cells[name].state.phase
            if row.state.phase is not was:
                assert row.state.phase in st.CELL_TRANSITIONS[was], (was, row.state.phase, entry.event)
        for number, launch in state.launches.items():
            if number in before.launches:
                earlier = before.launches[number].state.phase
                if launch.state.phase is not earlier:
                    assert launch.state.phase in st.LAUNCH_TRANSITIONS[earlier]


def test_every_event_survives_the_codec() -> None:
    for name, kind in ev.EVENT_TYPES.items():
        values = {field: _value(kind, field) for field in kind.__dataclass_fields__}
        event = ev.event_from_json({"type": name, **values})
        assert event is not None, name
        assert ev.event_from_json(json.loads(json.dumps(ev.event_to_json(event)))) == event, name


def _value(kind: type[ev.Event], field: str) -> object:
    text = str(kind.__dataclass_fields__[field].type)
    if "tuple" in text:
        return ["a"]
    if "int" in text:
        return 1
    if "float" in text:
        return 1.5
    if "Mapping" in text or "Data" in text:
        return {"a": 1}
    return False if "bool" in text else "text"


@pytest.mark.parametrize("phase_", list(st.CellPhase))
def test_every_phase_has_its_row_in_both_tables(phase_: st.CellPhase) -> None:
    assert st.CELL_TRANSITIONS[phase_]
    assert any(phase_ in phases for phases in st.CELL_COMMANDS.values())
