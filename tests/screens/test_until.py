"""Asking for a deadline, and how it stands in the header and in the cells that it drops."""

import pytest
from textual.widgets import Input

from ddconsole.core import events as ev
from ddconsole.core.wire import Watchers
from screens.until import UntilScreen
from screens.widgets.status_header import HeaderFacts, header_line
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, shown, sweep
from tests.screens.fake_feed import FakeFeed, Told


@pytest.mark.parametrize("typed", ["25:00", "7", "[/red]", ""])
async def test_what_is_no_time_is_told_and_may_be_corrected(typed: str) -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "u")
        await shown(app, pilot, UntilScreen)
        app.screen.query_one(Input).value = typed
        await pressed(pilot, "enter")
        assert "no time of day: write one like 07:00, or none" in screen_text(app)
        assert feed.told == []
        app.screen.query_one(Input).value = " 07:00 "
        await pressed(pilot, "enter")
        assert not any(isinstance(screen, UntilScreen) for screen in app.screen_stack)
        assert feed.told == [Told("until", (), {"until": "07:00"})]


async def test_none_lifts_a_deadline_and_escape_leaves_it() -> None:
    feed = ct200.midway()
    feed.emit(ev.DeadlineSet(feed.clock + 3600, "07:00 CET", "plan"), ev.CellsSkipped(("c100",), "deadline", "no time"))
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "u")
        await shown(app, pilot, UntilScreen)
        assert "now until 07:00 CET: 1 cell does not fit" in screen_text(app)
        await pressed(pilot, "escape")
        assert feed.told == []
        await pressed(pilot, "u", "N", "o", "n", "e", "enter")
        assert feed.told == [Told("until", (), {"until": "none"})]


async def test_who_only_watches_is_asked_about_control_and_not_for_a_time() -> None:
    feed = ct200.midway()
    feed.emit(ev.ControlTaken("ann@laptop", "theirs", 1, "pts/3"))
    feed.watchers = Watchers(2, "theirs", controller_here=True, controller_age=1.0)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "u")
        assert "Take control from ann@laptop?" in screen_text(app)
        assert not any(isinstance(screen, UntilScreen) for screen in app.screen_stack)


def header(feed: FakeFeed) -> str:
    facts = HeaderFacts("demo", "ct200", feed.state, feed.link, feed.clock, feed.clock, left=60.0, simulated=False)
    return "".join(text for text, _ in header_line(facts, 200))


def test_the_header_says_the_deadline_and_what_it_costs() -> None:
    feed = ct200.midway()
    assert "until" not in header(feed)
    feed.emit(ev.DeadlineSet(feed.clock + 3600, "07:00 CET", "plan"))
    assert "until 07:00 CET" in header(feed)
    assert "not fit" not in header(feed)
    feed.emit(ev.CellsSkipped(("c100",), "deadline", "no time"))
    assert "until 07:00 CET, 1 cell will not fit" in header(feed)
    feed.emit(ev.CellsSkipped(("c101",), "deadline", "no time"), ev.RunEnded("deadline"))
    assert "until 07:00 CET, 2 cells did not fit" in header(feed)
    feed.emit(ev.DeadlineSet(0.0, "none", "op"))
    assert "until" not in header(feed)


async def test_a_dropped_cell_says_why() -> None:
    feed = ct200.midway()
    because = "does not fit before 07:00 CET: it needs about 5 min, 40 s are left for it"
    feed.emit(ev.CellsSkipped(("c100",), "deadline", because))
    async with opened(feed, (160, 45)) as (app, pilot):
        sweep(app).go_to("c100")
        await pressed(pilot)
        assert "left out by deadline: does not fit" in screen_text(app)
        assert "it needs about 5 min" in screen_text(app)
