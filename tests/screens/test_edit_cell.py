import pytest
from textual.widgets import Input

from ddconsole.core import events as ev
from ddconsole.core.editing import EditProblem, editable_fields
from ddconsole.core.sweep import to_json
from screens.edit_cell import EditCellScreen, added_flag, flag_text
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, settled, sweep, toasts
from tests.screens.fake_feed import Told


def form(app: object) -> EditCellScreen:
    screen = app.screen  # type: ignore[attr-defined]  # a console
    assert isinstance(screen, EditCellScreen)
    return screen


def type_into(app: object, field: str, text: str) -> None:
    form(app).query_one(f"#{field}", Input).value = text


async def test_a_length_is_edited_and_costs_no_start() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "E")
        type_into(app, "field-max_tokens", "512")
        await settled(pilot)
        text = screen_text(app)
        assert "generate c1 512 tokens" in text
        assert "the server stays as it is" in text
        await pressed(pilot, "ctrl+s")
        assert feed.told == [Told("edit", ("c030",), {"max_tokens": "512"})]
        assert feed.state.cells["c030"].cell.point.max_tokens == 512
        assert "c030 is now" in toasts(app)


async def test_keys_typed_into_the_form_are_text() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "enter", "2", "5", "6", "ctrl+s")
        assert feed.told == [Told("edit", ("c030",), {"max_tokens": "256"})]


async def test_a_server_flag_moves_the_cell_and_says_what_that_costs() -> None:
    feed = ct200.midway()
    async with opened(feed, (120, 40)) as (app, pilot):
        sweep(app).go_to("c023")
        await pressed(pilot, "E")
        type_into(app, "flag-1", "0.7")
        await settled(pilot)
        text = screen_text(app)
        assert "a deployment of its own" in text
        assert "one more server start" in text
        assert "attempts so far do not count any more" in text
        await pressed(pilot, "ctrl+s")
        assert feed.told == [Told("edit", ("c023",), {"flag:--mem-fraction-static": "0.7"})]
        cell = feed.state.cells["c023"].cell
        assert feed.state.deployments[cell.deployment].args["mem-fraction-static"] == 0.7


async def test_flags_are_removed_and_added() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c046")
        await pressed(pilot, "E")
        type_into(app, "flag-3", "-")
        type_into(app, "add", "--cuda-graph-max-bs 4")
        await pressed(pilot, "ctrl+s")
        assert feed.told == [
            Told("edit", ("c046",), {"flag:--speculative-ddtree-budget": None, "flag:--cuda-graph-max-bs": "4"})
        ]
        args = feed.state.deployments[feed.state.cells["c046"].cell.deployment].args
        assert args["cuda-graph-max-bs"] == 4
        assert "speculative-ddtree-budget" not in args


async def test_an_edit_to_what_another_deployment_is_says_so() -> None:
    feed = ct200.midway()
    deployment = feed.state.deployments["d03"]
    other = to_json(deployment) | {"id": "d90", "args": {**deployment.args, "mem-fraction-static": 0.7}}
    feed.emit(ev.DeploymentAdded(other))
    async with opened(feed, (120, 40)) as (app, pilot):
        sweep(app).go_to("c023")
        await pressed(pilot, "E")
        type_into(app, "flag-1", "0.7")
        await settled(pilot)
        assert "(d90), which is there already" in screen_text(app)


@pytest.mark.parametrize(
    ("field", "text", "complaint"),
    [
        ("field-max_tokens", "many", "must be a whole number"),
        ("field-max_tokens", "0", "must be a whole number"),
        ("field-repetitions", "", "must be a whole number"),
        ("field-request_timeout", "soon", ""),
        ("field-temperature", "-1", "must be a number"),
        ("flag-0", "", "is empty"),
        ("add", "no dashes", "two dashes"),
        ("add", "--port 3000", ""),
        ("add", "[/red]", "two dashes"),
    ],
)
async def test_what_is_not_possible_is_said_while_typing_and_cannot_be_saved(
    field: str, text: str, complaint: str
) -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "E")
        type_into(app, field, text)
        await settled(pilot)
        assert form(app).problem is not None
        assert complaint in screen_text(app)
        assert form(app).query_one(f"#{field}").has_class("wrong")
        await pressed(pilot, "ctrl+s")
        assert isinstance(app.screen, EditCellScreen)
        assert feed.told == []


async def test_escape_leaves_the_cell_as_it_is_and_saving_nothing_sends_nothing() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "E")
        type_into(app, "field-max_tokens", "512")
        await pressed(pilot, "escape")
        await pressed(pilot, "E", "ctrl+s")
        assert feed.told == []
        assert not isinstance(app.screen, EditCellScreen)


async def test_several_cells_get_the_same_change() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "space", "space", "E")
        assert "Edit c030 and 1 more" in screen_text(app)
        type_into(app, "field-temperature", "0.7")
        await pressed(pilot, "ctrl+s")
        assert feed.told == [Told("edit", ("c030", "c031"), {"temperature": "0.7"})]


async def test_the_running_cell_cannot_be_edited() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "E")
        assert "c029 is running" in toasts(app)


async def test_all_fields_can_be_reached_at_80x24() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c031")
        await pressed(pilot, "E")
        reached = set()
        for _ in range(40):
            await pilot.press("tab")
            focused = app.focused
            assert focused is not None
            reached.add(focused.id)
        wanted = {f"field-{field.name}" for field in editable_fields(feed.state.cells["c031"].cell.point)}
        assert {*wanted, "flag-0", "flag-3", "add"} <= reached


def test_flags_as_they_are_typed() -> None:
    assert [flag_text(one) for one in (True, 0.85, "triton", (1, 2), ("a", "b"))] == [
        "true",
        "0.85",
        "triton",
        "[1, 2]",
        '["a", "b"]',
    ]
    assert added_flag("--x=1") == ("x", "1")
    assert added_flag("--x  some text") == ("x", "some text")
    assert added_flag("--bare") == ("bare", "true")
    with pytest.raises(EditProblem):
        added_flag("--")
