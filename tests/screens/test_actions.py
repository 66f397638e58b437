from collections import Counter
from dataclasses import replace

import pytest

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.actions import (
    ACTIONS,
    BY_ID,
    CANCEL_KEYS,
    CONFIRM_KEYS,
    MOST_HINTS,
    Danger,
    Place,
    actions_at,
    hints,
    key_table,
    refusal,
    targets,
)
from tests.screens import ct200

ROWS = ("`1234567890-=", " qwertyuiop[]", " asdfghjkl;'", " zxcvbnm,./")
SHIFTED = str.maketrans('~!@#$%^&*()_+{}:"<>?', "`1234567890-=[];',./")


def neighbours(key: str) -> set[str]:
    """Keys around one on a US keyboard, with the same shift."""
    if len(key) != 1:
        return set()
    plain = key.translate(SHIFTED).lower()
    shifted = plain != key
    places = {letter: (row, column) for row, letters in enumerate(ROWS) for column, letter in enumerate(letters)}
    row, column = places[plain]
    around = {
        letter for letter, (r, c) in places.items() if abs(r - row) <= 1 and abs(c - column) <= 1 and letter != plain
    }
    return {letter.upper() if shifted else letter for letter in around}


def test_every_key_means_one_thing_at_a_place() -> None:
    for place in Place:
        keys = Counter(key for action in actions_at(place) for key in action.keys)
        assert [key for key, number in keys.items() if number > 1] == [], place


@pytest.mark.parametrize("action", [one for one in ACTIONS if one.danger is Danger.DESTROY], ids=lambda one: one.id)
def test_no_key_that_looks_lies_beside_one_that_destroys(action: object) -> None:
    assert action in ACTIONS
    destroyer = next(one for one in ACTIONS if one is action)
    looking = {key for one in actions_at(destroyer.place) if one.danger is Danger.LOOK for key in one.keys}
    assert not neighbours(destroyer.key) & looking


def test_a_neighbour_would_be_found() -> None:
    assert {"z", "c", "s", "d"} <= neighbours("x")
    assert {"p", "[", "0", "="} <= neighbours("-")
    assert "M" in neighbours("N")


def test_no_answer_to_a_question_is_a_key_that_opens_one() -> None:
    openers = {key for one in ACTIONS if one.command is not None and one.id != "edit" for key in one.keys}
    assert not openers & {*CONFIRM_KEYS, *CANCEL_KEYS}
    assert not {*CONFIRM_KEYS} & {*CANCEL_KEYS}


def test_every_command_of_the_tables_has_an_action() -> None:
    commands = {one.command for one in ACTIONS if one.command is not None}
    assert commands == {*st.CellCommand, *st.RunCommand}


def test_what_is_legal_comes_from_the_tables() -> None:
    feed = ct200.midway()
    for action in ACTIONS:
        if isinstance(action.command, st.CellCommand):
            for row in feed.state.cells.values():
                legal = row.state.phase in st.CELL_COMMANDS[action.command]
                assert (refusal(action, feed.state, [row]) == "") is legal
                assert bool(targets(action, [row])) is legal


def test_a_refusal_says_what_is_possible() -> None:
    feed = ct200.midway()
    text = refusal(BY_ID["stop"], feed.state, [feed.state.cells["c001"]])
    assert "c001 is done" in text
    assert "R retry" in text


@pytest.mark.parametrize("phase", list(st.RunPhase))
def test_run_commands_are_legal_by_the_table_in_every_phase(phase: st.RunPhase) -> None:
    state = replace(ct200.midway().state, phase=phase)
    for action in (one for one in ACTIONS if isinstance(one.command, st.RunCommand)):
        assert isinstance(action.command, st.RunCommand)
        legal = phase in st.RUN_COMMANDS[action.command]
        assert (refusal(action, state, ()) == "") is legal
    assert hints(Place.SWEEP, state, ())[-1].id == "help"


def test_hints_are_few_and_fit_the_cell() -> None:
    feed = ct200.midway()
    for name in ("c001", "c023", "c029", "c030", "c046", "c100", "c161"):
        shown = hints(Place.SWEEP, feed.state, [feed.state.cells[name]])
        assert len(shown) <= MOST_HINTS
        assert shown[-1].id == "help"
    assert [one.id for one in hints(Place.SWEEP, feed.state, [feed.state.cells["c023"]])][:2] == ["edit", "retry"]
    assert [one.id for one in hints(Place.SWEEP, feed.state, [feed.state.cells["c029"]])][:2] == ["stop", "skip"]


def test_the_key_table_has_every_action_once() -> None:
    table = key_table()
    for action in ACTIONS:
        assert table.count(f"| {action.label} | {action.help} |") == 1


def test_commands_about_debts_are_offered_only_where_there_are_any() -> None:
    feed = ct200.feed(cells=4)
    feed.emit(ev.RunPaused("op", "asked"))
    assert "put back" not in refusal(BY_ID["pause"], feed.state, ())
    feed.emit(ev.DebtTaken("u", "a unit"))
    assert "B put back" in refusal(BY_ID["pause"], feed.state, ())
