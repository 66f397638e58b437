"""What comes next."""

from journals import done, entries, failed, launched, small_run, started

from ddconsole.core import events as ev
from ddconsole.core.control import Ending, control_from_json, control_to_json
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.schedule import control_for, next_launch, pause_reason


def wanted(state: RunState) -> tuple[list[tuple[str, int]], Ending]:
    live = state.live_launch()
    assert live is not None
    control = control_for(state, live, 1, 1)
    assert control_from_json(control_to_json(control)) == control
    return [(one.cell.id, one.attempt) for one in control.cells], control.ending


def test_one_launch_serves_all_cells_of_its_deployment_in_the_tables_order() -> None:
    state = small_run()
    due = next_launch(state)
    assert due is not None
    assert (due.deployment, due.round, due.number) == ("d01", 1, 1)
    assert wanted(small_run(*launched())) == ([("c001", 1), ("c002", 1)], Ending.FINISH)


def test_the_running_cell_stays_wanted_and_comes_first() -> None:
    assert wanted(small_run(*launched(), started("c002"))) == ([("c002", 1), ("c001", 1)], Ending.FINISH)


def test_a_stopped_cell_is_not_wanted_any_more() -> None:
    state = small_run(*launched(), started("c001"), ev.CellStopRequested("c001", 1, "me"))
    assert wanted(state) == ([("c002", 1)], Ending.FINISH)


def test_start_moves_a_cell_of_the_same_server_first() -> None:
    state = small_run(*launched(), ev.CellsMovedFirst(("c002",), "me"))
    assert wanted(state) == ([("c002", 1), ("c001", 1)], Ending.FINISH)


def test_start_of_a_cell_of_another_server_ends_this_launch_after_its_cell() -> None:
    state = small_run(*launched(), started("c001"), ev.CellsMovedFirst(("c004",), "me"))
    assert wanted(state) == ([("c001", 1)], Ending.FINISH)
    after = fold(entries([done("c001"), ev.LaunchGone(1)], state.seq + 1), state)
    due = next_launch(after)
    assert due is not None
    assert due.deployment == "d02"
    begun = fold(entries(launched(2, "d02"), after.seq + 1), after)
    assert wanted(begun) == ([("c004", 1), ("c003", 1)], Ending.FINISH)


def test_pause_keeps_the_server_and_takes_no_cell() -> None:
    state = small_run(*launched(), started("c001"), ev.RunPaused("me", ""))
    assert wanted(state) == ([("c001", 1)], Ending.WAIT)
    assert wanted(small_run(*launched(), ev.RunPaused("me", ""))) == ([], Ending.WAIT)


def test_stop_ends_at_once() -> None:
    assert wanted(small_run(*launched(), started("c001"), ev.RunStopping("me"))) == ([], Ending.NOW)


def test_rounds_are_measured_on_launches_of_their_own() -> None:
    state = small_run(*launched(), started("c001"), done("c001"), started("c002"), done("c002"), rounds=2)
    assert wanted(state) == ([], Ending.FINISH)
    over = fold(entries([ev.LaunchGone(1)], state.seq + 1), state)
    due = next_launch(over)
    assert due is not None
    assert (due.deployment, due.round) == ("d02", 1)


def test_retry_of_a_done_cell_joins_the_running_server() -> None:
    state = small_run(*launched(), started("c001"), done("c001"), ev.CellsRetried(("c001",), "me"))
    assert wanted(state) == ([("c001", 2), ("c002", 1)], Ending.FINISH)


def test_an_automatic_retry_is_the_next_attempt() -> None:
    state = small_run(*launched(), started("c001"), failed("c001", 1, "asis"))
    assert wanted(state) == ([("c001", 2), ("c002", 1)], Ending.FINISH)


def test_nothing_pending_is_nothing_next() -> None:
    state = small_run(ev.CellsSkipped(("c001", "c002", "c003", "c004"), "me", ""))
    assert next_launch(state) is None


def dead(number: int, deployment: str, cause: str = "DRIVER") -> tuple[ev.Event, ...]:
    return ev.LaunchPlanned(number, deployment, 1), ev.LaunchFailed(number, cause, "the driver is gone", retry="never")


def test_the_same_cause_on_two_deployments_pauses() -> None:
    assert pause_reason(small_run(*dead(1, "d01"))) is None
    reason = pause_reason(small_run(*dead(1, "d01"), *dead(2, "d02")))
    assert reason is not None
    assert "the driver is gone" in reason


def test_different_causes_do_not_pause() -> None:
    assert pause_reason(small_run(*dead(1, "d01"), *dead(2, "d02", "OTHER"))) is None


def test_after_resume_the_old_failures_do_not_pause_again() -> None:
    assert pause_reason(small_run(*dead(1, "d01"), *dead(2, "d02"), ev.RunResumed("me"))) is None
