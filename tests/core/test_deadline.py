"""What fits before a deadline, what is dropped, and what a time of day means on a host's clock."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from journals import cell, created, deployment, entries, launched, small_run

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.commands import decide
from ddconsole.core.deadline import (
    deadline_in_words,
    dropped_cells,
    fit,
    next_time_of_day,
    reserve,
    until_problem,
)
from ddconsole.core.duration import Defaults, Estimates
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import to_json
from ddconsole.core.wire import Command

# A start and a stop are 20 s together, a cell of 5 x 64 tokens is 32 s.
ESTIMATES = Estimates(Defaults(start_seconds=15.0, stop_seconds=5.0, stream_rate=10.0, speculative_gain=1.0))
WHOLE = 2 * 20.0 + 4 * 32.0 + 5.0
"""Seconds of the small run, with what is kept for the last stop."""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Central European time, with its changes."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(*when: int) -> float:
    return datetime(*when, tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("text", "now", "then"),
    [
        ("07:00", at(2026, 11, 30, 22, 10), at(2026, 12, 1, 6, 0)),
        ("23:30", at(2026, 11, 30, 22, 10), at(2026, 11, 30, 22, 30)),
        ("23:10", at(2026, 11, 30, 22, 10), at(2026, 12, 1, 22, 10)),
        # The clock is put forward in the night: one hour less.
        ("07:00", at(2027, 3, 27, 21, 0), at(2027, 3, 28, 5, 0)),
        ("02:30", at(2027, 3, 27, 21, 0), at(2027, 3, 28, 1, 30)),
        # It is put back: one hour more, and 02:30 comes twice.
        ("07:00", at(2026, 10, 24, 20, 0), at(2026, 10, 25, 6, 0)),
        ("02:30", at(2026, 10, 24, 20, 0), at(2026, 10, 25, 0, 30)),
        ("02:30", at(2026, 10, 25, 0, 45), at(2026, 10, 25, 1, 30)),
    ],
)
def test_a_time_of_day_is_the_next_one_of_the_hosts_clock(text: str, now: float, then: float) -> None:
    assert next_time_of_day(text, now) == then


@pytest.mark.usefixtures("berlin")
def test_a_deadline_is_shown_with_its_zone_and_with_the_day_where_it_is_far() -> None:
    now = at(2026, 11, 30, 22, 10)
    assert deadline_in_words(at(2026, 12, 1, 6, 0), now) == "07:00 CET"
    assert deadline_in_words(at(2026, 12, 2, 6, 0), now) == "2 Dec 07:00 CET"


@pytest.mark.parametrize("text", ["25:00", "7", "", "none", "07:00:00"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"time data|unconverted data"):
        next_time_of_day(text, 0.0)


def test_all_fits_exactly_and_one_second_less_drops_the_last_cell() -> None:
    state = small_run()
    assert fit(state, ESTIMATES, WHOLE, state.at).dropped == {}
    found = fit(state, ESTIMATES, WHOLE - 1, state.at)
    assert found.kept == ("c001", "c002", "c003")
    assert found.dropped == {"c004": (32.0, 31.0)}


def test_the_baseline_stays_longest_and_what_the_operator_told_goes_before_it() -> None:
    state = small_run()
    assert fit(state, ESTIMATES, 5 + 20 + 64, state.at).kept == ("c001", "c002")
    told = small_run(ev.CellsMovedFirst(("c004",), "me"))
    assert fit(told, ESTIMATES, 5 + 20 + 32, told.at).kept == ("c004",)


def test_a_cell_whose_baseline_does_not_fit_is_dropped_with_it() -> None:
    long, short = cell("c001", "d01", max_tokens=640), cell("c003", "d02", max_tokens=640)
    other = cell("c002", "d02", max_tokens=32)
    events: list[ev.Event] = [
        created(),
        *(ev.DeploymentAdded(to_json(deployment(f"d0{n}", m))) for n, m in ((1, "ar"), (2, "ngram"))),
    ]
    events += [ev.CellAdded(to_json(one)) for one in (long, other, short)]
    state = fold(entries(events))
    assert fit(state, ESTIMATES, 100, state.at).kept == ("c002",)


def test_rounds_that_are_left_and_each_of_their_starts_are_counted() -> None:
    state = small_run(rounds=3)
    assert fit(state, ESTIMATES, 5 + 3 * 52, state.at).kept == ("c001",)
    assert fit(state, ESTIMATES, 5 + 3 * 52 - 1, state.at).kept == ()


def test_what_runs_and_a_server_that_is_up_are_not_paid_twice() -> None:
    state = small_run(*launched(1), ev.AttemptStarted("c001", 1, 1, 1, 0))
    left = 32 + 5 + 32 + 5
    assert "c002" in fit(state, ESTIMATES, left, state.at).kept
    assert "c002" not in fit(state, ESTIMATES, left - 1, state.at).kept


def test_debts_get_their_time_before_the_deadline() -> None:
    state = small_run(ev.DebtTaken("u", "a unit"))
    assert reserve(state, ESTIMATES) == reserve(small_run(), ESTIMATES) + 15.0


def skipped_by_deadline() -> RunState:
    return small_run(
        ev.DeadlineSet(5000.0, "07:00 CET", "plan"),
        ev.CellsSkipped(("c004",), "deadline", "does not fit"),
        ev.CellsSkipped(("c003",), "me", "not wanted"),
        ev.RunEnded("deadline"),
    )


def test_a_dropped_cell_comes_back_only_with_time_to_spare_and_others_do_not() -> None:
    state = skipped_by_deadline()
    assert [row.cell.id for row in dropped_cells(state)] == ["c004"]
    needed = 5 + 20 + 64 + 20 + 32
    assert "c004" not in fit(state, ESTIMATES, needed, state.at).kept
    assert "c004" in fit(state, ESTIMATES, needed + 6, state.at).kept
    back = fold(entries([ev.CellsPutBack(("c004",), "fits")], first_seq=state.seq + 1), state)
    assert isinstance(back.cells["c004"].state, st.Pending)


def test_another_deadline_takes_an_ended_run_up_again() -> None:
    state = skipped_by_deadline()
    command = Command("1", "until", "me", (), {"at": "9000.0", "text": "09:00 CET"})
    decision = decide(state, command)
    assert [type(event).__name__ for event in decision.events] == ["CommandTaken", "DeadlineSet", "RunResumed"]
    assert decision.answer.text == "until 09:00 CET"
    refused = decide(state, Command("2", "until", "me", (), {}))
    assert not refused.answer.taken
    assert "07:00" in refused.answer.text


def test_a_cell_that_the_deadline_stopped_says_so() -> None:
    state = small_run(
        *launched(1),
        ev.AttemptStarted("c001", 1, 1, 1, 0),
        ev.CellStopRequested("c001", 1, "deadline", then_skip=True),
        ev.AttemptStopped("c001", 1, 1, "deadline"),
    )
    assert state.cells["c001"].state == st.Skipped("deadline", "stopped while it ran: the deadline had come")


def sized(*lengths: tuple[str, str, int]) -> RunState:
    """Cells of so many tokens: name, deployment, tokens. The first deployment is the baseline's."""
    events: list[ev.Event] = [
        created(),
        *(ev.DeploymentAdded(to_json(deployment(f"d0{n}", m))) for n, m in ((1, "ar"), (2, "ngram"))),
    ]
    events += [ev.CellAdded(to_json(cell(name, of, max_tokens=tokens))) for name, of, tokens in lengths]
    return fold(entries(events))


def test_as_time_goes_cells_are_dropped_from_the_end_one_after_the_other() -> None:
    # 20, 16, 32, 8 and 64 seconds after a start of 20.
    state = sized(*((f"c00{n}", "d01", tokens) for n, tokens in enumerate((40, 32, 64, 16, 128), start=1)))
    seen: list[tuple[str, ...]] = []
    for seconds in range(170, 39, -1):
        kept = fit(state, ESTIMATES, 5 + seconds, state.at).kept
        if kept not in seen:
            seen.append(kept)
    whole = tuple(state.cells)
    assert seen == [whole[:number] for number in range(5, 0, -1)]


def test_a_short_cell_does_not_overtake_one_before_it() -> None:
    state = sized(("c001", "d01", 64), ("c002", "d01", 128), ("c003", "d01", 16))
    found = fit(state, ESTIMATES, 5 + 20 + 32 + 60, state.at)
    assert found.kept == ("c001",)
    assert found.dropped == {"c002": (64.0, 60.0), "c003": (8.0, 60.0)}


def test_one_that_no_time_is_long_enough_for_makes_way() -> None:
    state = sized(("c001", "d01", 1000), ("c002", "d01", 64))
    assert fit(state, ESTIMATES, 5 + 20 + 32, state.at).kept == ("c002",)


def test_a_run_that_its_deadline_ended_is_not_said_to_go_on() -> None:
    state = skipped_by_deadline()
    resumed = decide(state, Command("1", "resume", "me"))
    assert not resumed.answer.taken
    assert resumed.answer.text == (
        "the sweep ended by its deadline, 07:00 CET, with 1 cell left out: it would end again at once; "
        "set another one (until HH:MM) or none (until none), and it goes on"
    )
    again = decide(state, Command("2", "retry", "me", ("c004",)))
    assert again.answer.taken
    assert again.answer.text == "c004 once more; the deadline 07:00 CET still holds: until none lifts it"
    lifted = decide(state, Command("3", "until", "me", (), {"at": "0", "text": "none"}))
    assert (lifted.answer.taken, lifted.answer.text) == (True, "no deadline any more")
    ended = small_run(ev.RunEnded("complete"))
    assert decide(ended, Command("4", "resume", "me")).answer.text == "going on"


@pytest.mark.parametrize(("text", "problem"), [("07:00", ""), ("none", ""), ("7 am", "no time of day")])
def test_what_is_wrong_with_a_deadline_is_said(text: str, problem: str) -> None:
    assert until_problem(text).startswith(problem)
    assert bool(until_problem(text)) is bool(problem)
