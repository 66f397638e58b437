"""Dialogs answer once, however fast the keys come."""

import pytest
from textual.events import Key

from screens.confirm import ConfirmScreen
from screens.dialog import Dialog
from screens.edit_cell import EditCellScreen
from screens.help import FindScreen
from screens.login_prompt import LoginPromptScreen
from screens.page import PageScreen
from screens.until import UntilScreen
from tests.screens import ct200
from tests.screens.driving import opened, pressed, settled


@pytest.mark.parametrize(
    ("keys", "answer"),
    [(("minus",), "y"), (("minus",), "n"), (("q",), "n"), (("q",), "escape")],
)
async def test_keys_that_come_with_the_answer_do_not_reach_what_lies_below(keys: tuple[str, ...], answer: str) -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, *keys)
        dialog = app.screen
        assert isinstance(dialog, Dialog)
        below = len(app.screen_stack) - 1
        for _ in range(4):
            dialog.post_message(Key(answer, answer if len(answer) == 1 else None))
        await settled(pilot)
        assert app.is_running
        assert len(app.screen_stack) == below


async def test_the_first_answer_counts() -> None:
    answers: list[bool | None] = []
    async with opened(ct200.midway()) as (app, pilot):
        dialog: Dialog[bool] = Dialog()
        app.push_screen(dialog, answers.append)
        await settled(pilot)
        dialog.dismiss(True)
        dialog.dismiss(False)
        await settled(pilot)
    assert answers == [True]


def test_every_dialog_answers_once() -> None:
    kinds = (ConfirmScreen, EditCellScreen, FindScreen, LoginPromptScreen, PageScreen, UntilScreen)
    assert all(issubclass(kind, Dialog) for kind in kinds)
    assert {kind.__module__ for kind in Dialog.__subclasses__()} >= {kind.__module__ for kind in kinds}
