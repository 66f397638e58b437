import re

import pytest

from ddconsole.core import states as st
from ddconsole.core.command_cost import cost as cost_of
from screens import confirm
from screens.confirm import ConfirmScreen, Question, question_lines
from screens.spans import plain
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, settled, shown, sweep


async def test_keys_typed_ahead_answer_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        monkeypatch.setattr(confirm, "KEYS_IGNORED_FOR", 30.0)
        await pressed(pilot, "x", "y", "y")
        assert isinstance(app.screen, confirm.ConfirmScreen)
        assert feed.told == []
        monkeypatch.setattr(confirm, "KEYS_IGNORED_FOR", 0.0)
        await pressed(pilot, "y")
        assert [told.name for told in feed.told] == ["stop"]


def test_the_delay_is_what_the_rules_say() -> None:
    question = Question("Skip?", "ct200, run r")
    text = [plain(one) for one in question_lines(question, 60)]
    assert text[0] == " Skip?"
    assert "ct200, run r" in text[2]
    assert " y " in text[-1]


def test_many_targets_are_counted_not_listed_without_end() -> None:
    question = Question("Skip?", "h", targets=[f"c{n:03}" for n in range(30)], hidden=4, costs=["one", "two"])
    text = "\n".join(plain(one) for one in question_lines(question, 60))
    assert "c007" in text
    assert "c008" not in text
    assert "and 22 more" in text
    assert "4 of them the filter keeps out of sight" in text


async def test_the_same_question_is_not_asked_twice_at_once() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "q")
        app.perform("quit")
        await settled(pilot)
        assert sum(isinstance(screen, confirm.ConfirmScreen) for screen in app.screen_stack) == 1


async def test_nothing_of_a_question_is_cut_at_80_columns() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "ctrl+x")
        await shown(app, pilot, ConfirmScreen)
        text = " ".join(" ".join(re.findall(r"│(.*)│", screen_text(app))).split())
        for cost in cost_of(feed.state, st.RunCommand.STOP, (), feed.now()):
            assert cost in text
