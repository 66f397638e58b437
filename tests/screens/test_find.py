from ddconsole.core.actions import ACTIONS, Place
from screens.help import FindScreen, action_items, matching
from screens.host import HostScreen
from screens.logs import LogsScreen
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, sweep
from tests.screens.fake_feed import Told


def test_all_actions_are_listed_those_of_the_screen_first() -> None:
    items = action_items(Place.LOGS)
    assert {one.action for one in items} == {one.id for one in ACTIONS}
    assert items[0].note == "logs"


def test_what_is_called_so_comes_first() -> None:
    items = action_items(Place.SWEEP)
    assert matching(items, "skip")[0].action == "skip"
    assert matching(items, "stop")[0].action == "stop"
    assert matching(items, "stop n")[0].action == "stop-run"
    assert matching(items, "no such thing") == []


async def test_help_lists_every_key_and_runs_what_is_chosen() -> None:
    feed = ct200.midway()
    async with opened(feed, (120, 60)) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "question_mark")
        text = screen_text(app)
        for action in (one for one in ACTIONS if one.place in {Place.SWEEP, Place.EVERYWHERE}):
            assert action.label in text
        await pressed(pilot, *"pause", "enter")
        assert feed.told == [Told("pause", ())]


async def test_a_dangerous_action_asks_from_the_list_too() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "question_mark", *"stop now", "enter")
        assert "Stop the whole sweep now?" in screen_text(app)
        assert feed.told == []
        await pressed(pilot, "y")
        assert feed.told == [Told("stop-run", ())]


async def test_typing_and_moving_in_the_list_runs_nothing() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "question_mark", *"xSsRqy", "down", "down", "pagedown", "escape")
        assert feed.told == []
        assert not isinstance(app.screen, FindScreen)


async def test_an_action_of_another_screen_goes_there_first() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "3")
        assert isinstance(app.screen, HostScreen)
        await pressed(pilot, "question_mark", *"wrap", "enter")
        assert isinstance(app.screen, LogsScreen)
        assert app.screen.view.wrap


async def test_the_palette_finds_cells_by_id_and_by_label() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "3", "ctrl+p", *"c130", "enter")
        assert sweep(app).table.cursor == "c130"
        await pressed(pilot, "ctrl+p", *"ddtree-b16 tp8 pipeline", "enter")
        under = sweep(app).table.row_under_cursor()
        assert under is not None
        assert (under.method, under.tensor_parallel, under.workload) == ("ddtree-b16", "8", "pipeline")


async def test_the_palette_shows_a_cell_that_the_filter_hides() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "slash", *"failed", "enter", "ctrl+p", *"c130", "enter")
        assert sweep(app).table.cursor == "c130"


async def test_quit_asks_says_that_the_sweep_goes_on_and_leaves() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "q")
        assert "the sweep goes on on ct200" in screen_text(app)
        assert "ddconsole attach ddtree-ct200-0412" in screen_text(app)
        await pressed(pilot, "n")
        assert app.is_running
        await pressed(pilot, "ctrl+c")
        assert "Leave the console?" in screen_text(app)
        await pressed(pilot, "ctrl+q")
        await pilot.press("y")
        await pilot.pause()
        assert app.return_value == 0


async def test_what_enter_does_is_said_where_a_launch_is_chosen() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "2", "o")
        assert isinstance(app.screen, FindScreen)
        assert "enter opens" in screen_text(app)
        await pressed(pilot, "escape", "question_mark")
        assert "enter does it" in screen_text(app)
