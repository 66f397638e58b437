"""Which launches need a displaced unit stopped, when it is due back, and what an operator can say about it."""

from dataclasses import replace

from journals import cell, created, deployment, entries

from ddconsole.core import events as ev
from ddconsole.core.commands import decide
from ddconsole.core.displacing import Displaced, displaced_of, due_back, still_needed, to_clear_away
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Placement, to_json
from ddconsole.core.wire import Command

UNIT = Displaced("x.service", 0)
TAKEN = ev.DebtTaken("x.service", "x.service", {}, "boot")


def run(*events: ev.Event) -> RunState:
    """One cell on GPU 0, then one on GPU 1."""
    plan = [replace(deployment(f"d0{n}"), placement=Placement(gpus=(n - 1,))) for n in (1, 2)]
    start: list[ev.Event] = [
        created(),
        ev.EpochBegan("created", "boot", 1, "0.1"),
        *(ev.DeploymentAdded(to_json(one)) for one in plan),
    ]
    cells = [ev.CellAdded(to_json(cell(f"c00{n}", f"d0{n}"))) for n in (1, 2)]
    return fold(entries([*start, *cells, *events]))


def told(state: RunState, name: str, *units: str) -> tuple[bool, str, RunState]:
    decision = decide(state, Command(f"id{state.seq}", name, "me", changes=dict.fromkeys(units)))
    after = fold(entries(decision.events, state.seq + 1), state)
    return decision.answer.taken, decision.answer.text, after


FIRST_DONE = (
    ev.LaunchPlanned(1, "d01", 1),
    ev.LaunchStarting(1, "process started"),
    ev.LaunchReady(1),
    ev.AttemptStarted("c001", 1, 1, 1, 0),
    ev.AttemptDone("c001", 1, 1, "ab", "f", {}),
)


def test_only_launches_on_its_gpu_need_it_stopped_and_without_a_gpu_every_one() -> None:
    state = run()
    anywhere = Displaced("y.service")
    assert displaced_of([{"unit": "x.service", "needs_gpu": 0}, {"unit": "y.service"}]) == (UNIT, anywhere)
    assert to_clear_away(state, (UNIT, anywhere), state.deployments["d01"]) == [UNIT, anywhere]
    assert to_clear_away(state, (UNIT, anywhere), state.deployments["d02"]) == [anywhere]


def test_it_is_due_after_the_last_launch_that_needs_it_and_not_while_one_lives() -> None:
    assert due_back(run(TAKEN), (UNIT,), "boot") == []
    measured = run(TAKEN, *FIRST_DONE)
    assert still_needed(measured, UNIT)
    assert due_back(measured, (UNIT,), "boot") == []
    gone = run(TAKEN, *FIRST_DONE, ev.LaunchStopping(1, "asked", 0.0), ev.LaunchGone(1))
    assert not still_needed(gone, UNIT)
    assert due_back(gone, (UNIT,), "boot") == ["x.service"]
    assert due_back(run(TAKEN, ev.CellsRetried(("c001",), "me")), (UNIT,), "boot") == []


def test_it_is_due_when_the_run_stops_drains_or_ends_and_kept_while_it_is_paused() -> None:
    assert due_back(run(TAKEN, ev.RunPaused("me", "asked")), (UNIT,), "boot") == []
    for over in (ev.RunStopping("me"), ev.RunDraining("me"), ev.RunEnded("stopped")):
        assert due_back(run(TAKEN, over), (UNIT,), "boot") == ["x.service"]


def test_after_another_boot_a_run_that_rests_gives_it_back_and_one_that_goes_on_keeps_it() -> None:
    assert due_back(run(TAKEN, ev.RunPaused("ddconsole", "host rebooted")), (UNIT,), "next boot") == ["x.service"]
    assert due_back(run(TAKEN), (UNIT,), "next boot") == []


def test_a_paused_run_gives_it_back_when_asked_and_says_that_it_keeps_it() -> None:
    taken, text, paused = told(run(TAKEN), "pause")
    assert taken
    assert text.endswith("x.service stays stopped")
    taken, _, asked = told(paused, "settle-debts")
    assert taken
    assert due_back(asked, (UNIT,), "boot") == ["x.service"]
    kept = fold(entries([ev.DebtKept("x.service", "it ended")], asked.seq + 1), asked)
    assert kept.debts["x.service"].problem == "it ended"
    assert due_back(kept, (UNIT,), "boot") == []
    assert not told(run(TAKEN), "settle-debts")[0]
    assert told(fold(entries([ev.RunPaused("me", "")], 99), run()), "settle-debts")[1] == "the run owes nothing"


def test_a_debt_is_waived_by_name_alone_and_then_left_alone() -> None:
    taken, text, _ = told(run(TAKEN), "waive-debts")
    assert not taken
    assert text == "which one? The run owes: x.service"
    taken, _, after = told(run(TAKEN), "waive-debts", "x.service")
    assert taken
    assert not after.debts
    assert to_clear_away(after, (UNIT,), after.deployments["d01"]) == []


def test_a_debt_of_an_older_journal_is_read() -> None:
    old = ev.event_from_json({"type": "DebtTaken", "debt": "x.service", "what": "x.service"})
    assert old is not None
    assert due_back(run(old, ev.RunEnded("stopped")), (UNIT,), "boot") == ["x.service"]
