"""A console that only watches says so, asks before it takes control, and never does by itself what was refused."""

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.fold import apply
from ddconsole.core.wire import CommandAnswer, Watchers
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, screen_text, settled
from tests.screens.fake_feed import FakeFeed


def watching() -> FakeFeed:
    feed = ct200.midway()
    feed.emit(ev.ControlTaken("ann@laptop", "theirs", 1, "pts/3"))
    feed.watchers = Watchers(2, "theirs", controller_here=False, controller_age=300.0)
    return feed


async def test_who_watches_is_told_who_has_control_since_when_on_every_screen() -> None:
    async with opened(watching()) as (app, pilot):
        for key in "12345":
            await pressed(pilot, key)
            header, _, alert = screen_lines(app)[:3]
            assert "control: ann@laptop (pts/3) since" in header or "only watching" in header
            assert "You watch. Control: ann@laptop (pts/3) since" in alert
            assert "T take control" in alert


async def test_the_first_steering_key_asks_and_does_nothing_else() -> None:
    feed = watching()
    told: list[str] = []
    async with opened(feed) as (app, pilot):
        app.notify = lambda message, **_: told.append(message)  # type: ignore[method-assign]
        await pressed(pilot, "p")
        text = screen_text(app)
        assert "Take control from ann@laptop?" in text
        assert "last seen 5 min ago" in text
        assert "pause is not done yet" in text
        await pilot.pause(0.4)
        await pressed(pilot, "n")
        assert not feed.has_control()
        await pressed(pilot, "p")
        await pilot.pause(0.4)
        await pressed(pilot, "y")
        assert feed.has_control()
        assert feed.told == []
        assert told == ["this console has control now: press p again for pause"]
        await pressed(pilot, "p")
        assert feed.state.phase is st.RunPhase.PAUSED


async def test_no_form_is_opened_for_who_only_watches() -> None:
    async with opened(watching()) as (app, pilot):
        await pressed(pilot, ".", "E")
        assert "Take control from" in screen_text(app)
        assert "what is asked of the server" not in screen_text(app)


async def test_the_loss_of_control_is_shown_at_once_and_stays() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "T")
        assert feed.has_control()
        await pressed(pilot, "p")
        feed.emit(ev.ControlTaken("bob@desk", "theirs", 2))
        await settled(pilot)
        assert "You lost control to bob@desk at" in screen_lines(app)[2]
        assert "T take it back" in screen_lines(app)[2]
        await pressed(pilot, "T")
        await pilot.pause(0.4)
        await pressed(pilot, "y")
        assert feed.has_control()
        assert "You lost control" not in screen_text(app)


async def test_a_question_that_was_open_when_control_went_is_not_carried_out() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "T", "r", "x")
        await pilot.pause(0.4)
        feed.emit(ev.ControlTaken("bob@desk", "theirs", 2))
        await pressed(pilot, "y")
        assert "Take control from bob@desk?" in screen_text(app)
        assert feed.told == []


async def test_a_refusal_by_the_agent_asks_again_and_names_who_took_control_last() -> None:
    feed = ct200.midway()

    async with opened(feed) as (app, pilot):
        await pressed(pilot, "T")
        entry = ev.Entry(1, feed.state.seq + 1, feed.clock, ev.ControlTaken("bob@desk", "theirs", 2))

        async def refused(*_: object, **__: object) -> CommandAnswer:
            return CommandAnswer(False, "bob@desk has control", controller=apply(feed.state, entry).controller)

        feed.command = refused  # type: ignore[method-assign]
        await pressed(pilot, "p")
        assert "Take control from bob@desk?" in screen_text(app)
        feed.emit(ev.ControlTaken("eve@x", "hers", 3))
        await settled(pilot)
        assert "Take control from eve@x?" in screen_text(app)
        await pilot.pause(0.4)
        await pressed(pilot, "y")
        assert feed.has_control()
        assert feed.state.phase is st.RunPhase.RUNNING


async def test_a_closed_console_of_the_same_operator_costs_no_question() -> None:
    feed = ct200.midway()
    feed.emit(ev.ControlTaken("op@laptop", "closed", 1))
    feed.watchers = Watchers(1, "closed", controller_here=False, controller_age=3.0)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "p")
        assert feed.state.phase is st.RunPhase.PAUSED
        assert feed.has_control()
        assert "Take control" not in screen_text(app)


async def test_who_only_looks_is_offered_nothing() -> None:
    feed = watching()
    feed.readonly = True
    async with opened(feed) as (app, _):
        assert "You watch. Control: ann@laptop" in screen_text(app)
        assert "T take" not in screen_text(app)


async def test_control_of_a_closed_console_of_ones_own_is_said_to_be_free() -> None:
    feed = ct200.midway()
    feed.emit(ev.ControlTaken("op@laptop", "closed", 1, "pts/9"))
    feed.watchers = Watchers(1, "closed", controller_here=False, controller_age=130.0)
    async with opened(feed) as (app, pilot):
        header, _, alert = screen_lines(app)[:3]
        assert "Your console at pts/9, which has control, is gone, last seen 2 min ago" in alert
        assert "your next command takes control" in screen_text(app) or alert.endswith("…")
        assert "control:" not in header
        assert "p pause" in screen_lines(app)[-1]
        feed.watchers = Watchers(1, "closed", controller_here=True, controller_age=1.0)
        feed.changed("state")
        await settled(pilot)
        assert "You watch. Control: op@laptop (pts/9) since" in screen_lines(app)[2]
        assert "p pause" not in screen_lines(app)[-1]
