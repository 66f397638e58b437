import re

import pytest

from ddconsole.core import events as ev
from ddconsole.core.host_state import HostState
from ddconsole.core.records import CellProgress
from ddconsole.core.sweep import Cell, to_json
from ddconsole.link.client import LinkPhase
from screens.app import ConsoleApp
from screens.confirm import ConfirmScreen
from screens.row_book import RowBook
from screens.sweep import matches
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, screen_text, settled, sweep, toasts
from tests.screens.fake_feed import FakeFeed, Told


@pytest.mark.parametrize(
    ("cell", "keys", "told"),
    [
        ("c030", ["s"], Told("start", ("c030",))),
        ("c037", ["s", "y"], Told("start", ("c037",))),
        ("c030", ["S", "y"], Told("start-now", ("c030",))),
        ("c029", ["x", "y"], Told("stop", ("c029",))),
        ("c023", ["R", "y"], Told("retry", ("c023",))),
        ("c030", ["-", "y"], Told("skip", ("c030",))),
        ("c029", ["-", "y"], Told("skip", ("c029",))),
        ("c030", ["D"], Told("duplicate", ("c030",))),
        ("c030", ["p"], Told("pause", ())),
        ("c030", ["N", "y"], Told("no-new-launches", ())),
        ("c030", ["ctrl+x", "y"], Told("stop-run", ())),
    ],
)
async def test_a_key_becomes_the_command(cell: str, keys: list[str], told: Told) -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to(cell)
        await pressed(pilot, *keys)
        assert feed.told == [told]


def phase_of(feed: FakeFeed) -> str:
    return feed.state.phase.value


async def test_pause_then_resume() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "p")
        assert phase_of(feed) == "paused"
        assert "‖ paused" in screen_lines(app)[0]
        assert "P resume" in screen_text(app)
        await pressed(pilot, "P")
        assert phase_of(feed) == "running"
        assert "‖ paused" not in screen_text(app)


def asks(app: ConsoleApp) -> bool:
    return isinstance(app.screen, ConfirmScreen)


@pytest.mark.parametrize("answer", ["n", "escape", "enter", "q"])
async def test_anything_but_yes_leaves_it(answer: str) -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "x")
        assert asks(app)
        await pressed(pilot, answer)
        assert not asks(app)
        assert feed.told == []


async def test_the_key_that_opened_the_question_does_not_answer_it() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "x", "x", "x")
        assert isinstance(app.screen, ConfirmScreen)
        assert feed.told == []


async def test_a_question_names_host_cell_and_cost() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "x")
        text = screen_text(app)
        assert "ct200, run ddtree-ct200-0412" in text
        assert "c029  ddtree-b15 TP1 generate c1 1024 tokens" in text
        assert "31 s" in text


async def test_a_cell_that_moved_on_while_it_was_asked_about_is_not_commanded() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await pressed(pilot, "x")
        feed.emit(ev.AttemptDone("c029", 1, 5, "", "", ct200.figures(120.0, 5.6)))
        await settled(pilot)
        assert "it has moved on" in screen_text(app)
        await pressed(pilot, "y")
        assert feed.told == []
        assert "c029 is done" in toasts(app)


async def test_a_command_that_means_nothing_says_what_is_possible() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c001")
        await pressed(pilot, "x")
        assert "c001 is done: stop means nothing now" in toasts(app)
        assert "R retry" in toasts(app)
        assert feed.told == []


async def test_marks_send_a_command_to_all_of_them_and_say_how_many_are_out_of_sight() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "space", "space", "space")
        assert app.session.marked == {"c030", "c031", "c032"}
        assert "3 marked" in screen_text(app)
        await pressed(pilot, "slash", *"b32", "enter")
        assert "3 out of sight" in screen_text(app)
        await pressed(pilot, "-")
        assert "(3 cells)" in screen_text(app)
        assert "3 of them the filter keeps out of sight" in screen_text(app)
        await pressed(pilot, "y")
        assert feed.told == [Told("skip", ("c030", "c031", "c032"))]


async def test_a_range_and_all_shown() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c030")
        await pressed(pilot, "v", "down", "down", "v")
        assert app.session.marked == {"c030", "c031", "c032"}
        await pressed(pilot, "escape")
        assert app.session.marked == frozenset()
        await pressed(pilot, "slash", *"blocked", "enter", "V")
        assert app.session.marked == {f"c{number:03}" for number in range(46, 55)}


async def test_cursor_and_marks_hold_when_a_copy_comes_in_above() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c031")
        await pressed(pilot, "space")
        sweep(app).go_to("c031")
        feed.emit(ev.CellAdded(to_json(Cell("c163", "d04", ct200.points()[2], derived_from="c030"))))
        await settled(pilot)
        assert sweep(app).table.cursor == "c031"
        assert app.session.marked == {"c031"}
        await pressed(pilot, "escape", "-", "y")
        assert feed.told == [Told("skip", ("c031",))]


async def test_the_filter_is_typed_and_cleared() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "slash", *"failed")
        assert [row.id for row in sweep(app).table.rows] == ["c023"]
        assert feed.told == []
        await pressed(pilot, "enter")
        assert "/failed: 1 of 162" in screen_text(app)
        await pressed(pilot, "escape")
        assert len(sweep(app).table.rows) == 162


def test_what_a_filter_matches() -> None:
    feed = ct200.midway()
    book = RowBook(feed)
    book.update()

    def found(text: str) -> list[str]:
        return [name for name, row in book.rows.items() if matches(row, text)]

    assert found("failed") == ["c023"]
    assert found("c8 tp1 ar") == ["c007"]
    assert found("c023") == ["c023"]
    assert found("c1 512 tp4 dflash") == ["c067"]
    assert set(found("blocked !generate")) == {f"c{n:03}" for n in range(49, 55)}
    assert found("nothing-like-it") == []


async def test_problems_are_reached_by_a_key_and_come_first_on_request() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c001")
        await pressed(pilot, "full_stop")
        assert sweep(app).table.cursor == "c023"
        await pressed(pilot, "full_stop")
        assert sweep(app).table.cursor == "c046"
        await pressed(pilot, "comma")
        assert sweep(app).table.cursor == "c023"
        await pressed(pilot, "r")
        assert sweep(app).table.cursor == "c029"
        await pressed(pilot, "o")
        assert sweep(app).table.rows[0].id == "c023"
        assert sweep(app).table.cursor == "c029"


async def test_it_begins_at_the_running_cell_in_sight() -> None:
    async with opened(ct200.midway()) as (app, _):
        assert sweep(app).table.cursor == "c029"
        assert any(line.startswith("▌ ▶ running") for line in screen_lines(app))


@pytest.mark.parametrize(
    ("cell", "cause", "key"),
    [
        ("c023", "CUDA out of memory while capturing graphs", "next     E  edit"),
        ("c046", "the build does not know --speculative-ddtree-budget", "next     E  edit"),
        ("c161", "recurrent state alone needs 74.6 GiB, 35.1 GiB are left", "next     E  edit"),
        ("c100", "recurrent-state leakage seen at TP1", "next     R  retry"),
    ],
)
async def test_at_80x24_cause_and_next_key_stand_below_the_table(cell: str, cause: str, key: str) -> None:
    async with opened(ct200.midway()) as (app, pilot):
        sweep(app).go_to(cell)
        await settled(pilot)
        below = screen_lines(app)[-8:]
        assert any("cause" in line and cause in line for line in below)
        assert any(key in line for line in below)


async def test_a_cause_that_may_be_tried_again_puts_retry_first() -> None:
    feed = ct200.midway()
    feed.emit(ev.AttemptFailed("c029", 1, 5, "PORT", "port taken", (), "", "never"))
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await settled(pilot)
        assert any("next     -  skip" in line for line in screen_lines(app))


async def test_wide_layout_has_the_details_beside_the_table() -> None:
    async with opened(ct200.midway(), (160, 45)) as (app, pilot):
        sweep(app).go_to("c023")
        await settled(pilot)
        lines = screen_lines(app)
        assert "✗ c023 failed" in lines[2][100:]
        assert any("torch.OutOfMemoryError" in line[100:] for line in lines)
        assert any("TTFT" in line[:100] for line in lines)


async def test_marks_and_filter_leave_the_wide_layout_as_it_is() -> None:
    async with opened(ct200.midway(), (160, 45)) as (app, pilot):
        await pressed(pilot, "slash", *"failed", "enter", "V")
        lines = screen_lines(app)
        assert "✗ c023 failed" in lines[2][100:]
        assert "1 marked: commands go to them" in lines[-2][:100]


async def test_details_and_definitions_are_one_key_away() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        sweep(app).go_to("c010")
        await pressed(pilot, "i")
        assert "attempt 1 on launch 2" in screen_text(app)
        await pressed(pilot, "escape", "f")
        assert "output tokens of a request over the time" in screen_text(app)
        await pressed(pilot, "escape")
        assert sweep(app).table.cursor == "c010"


async def test_what_comes_over_the_link_is_shown_at_once() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        feed.set_progress(CellProgress("c029", 1, 20, 25, 0, 1, 333.3, feed.now()), 333.3)
        await settled(pilot)
        assert "333.3" in screen_text(app)
        feed.emit(ev.AttemptDone("c029", 1, 5, "", "", ct200.figures(120.0, 5.6)))
        await settled(pilot)
        assert "28/162" in screen_lines(app)[0]


async def test_a_server_that_starts_says_how_far_it_is() -> None:
    feed = ct200.feed()
    feed.emit(ev.LaunchPlanned(1, "d01", 1), ev.LaunchStarting(1, "capture graphs", 0.43))
    feed.clock += 35
    async with opened(feed, (100, 24)) as (app, _):
        assert "launch 1: capture graphs 43 % 0:35" in screen_lines(app)[1]


async def test_a_lost_link_is_said_ages_values_and_refuses_commands() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        feed.set_link(LinkPhase.RECONNECTING, "ct200: the connection was reset", silent=14)
        await settled(pilot)
        assert "link lost 14 s" in screen_lines(app)[0]
        assert re.search(
            r"link lost \d\d:\d\d:\d\d, trying: the connection.*; sweep goes on +ctrl\+r try now", screen_lines(app)[2]
        )
        assert "? running 27/162" in screen_lines(app)[0]
        assert sum("? running" in line for line in screen_lines(app)[3:]) == 1
        assert "? c029 running" in screen_text(app)
        assert "ctrl+r reconnect" in screen_lines(app)[-1]
        assert "stop" not in screen_lines(app)[-1]
        assert "not heard for 14 s" in screen_text(app)
        await pressed(pilot, "x")
        assert feed.told == []
        assert "is reconnecting" in toasts(app)
        await pressed(pilot, "ctrl+r")
        assert feed.retried == 1


async def test_a_link_lost_during_a_command_is_told_and_takes_nothing_down() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        feed.lost = True
        await pressed(pilot, "p")
        assert "the link ended" in toasts(app)
        assert app.is_running


async def test_a_run_from_disk_can_be_read_but_not_commanded() -> None:
    feed = ct200.midway()
    feed.set_link(LinkPhase.OFFLINE)
    async with opened(feed) as (app, pilot):
        assert "offline" in screen_lines(app)[0]
        sweep(app).go_to("c023")
        await pressed(pilot, "R")
        assert "read from disk" in toasts(app)
        assert feed.told == []


async def test_the_header_keeps_what_matters_when_it_gets_narrow() -> None:
    feed = ct200.midway(simulated=True)
    async with opened(feed, (200, 24)) as (app, pilot):
        head = screen_lines(app)[0]
        for text in ("27/162", "1 failed", "9 blocked", "9 skipped", "28 min gone", "left", "ddtree-gpu0", "SIMULATED"):
            assert text in head
        await pilot.resize_terminal(80, 24)
        await settled(pilot)
        head = screen_lines(app)[0]
        for text in ("ddtree-ct200", "up 12 ms", "27/162", "SIMULATED"):
            assert text in head


@pytest.mark.parametrize("size", [(40, 10), (80, 24), (120, 40), (160, 45), (300, 80)])
async def test_every_screen_is_drawn_at_every_size(size: tuple[int, int]) -> None:
    feed = ct200.midway()
    async with opened(feed, size) as (app, pilot):
        for key in "12345":
            await pressed(pilot, key)
            assert len(screen_lines(app)) == size[1]
            assert any("▶" in line or "running" in line or "ct200" in line for line in screen_lines(app))


async def test_without_colour_state_cursor_and_marks_are_still_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with opened(ct200.midway()) as (app, pilot):
        sweep(app).go_to("c022")
        await pressed(pilot, "space")
        text = screen_text(app)
        assert app.no_color
        assert "●✓ done" in text
        assert "▌ ✗ failed" in text


async def test_an_empty_run_is_no_error() -> None:
    async with opened(FakeFeed()) as (app, pilot):
        assert "no cell yet" in screen_text(app)
        await pressed(pilot, "x", "E", "space", "v", "i", "escape", "full_stop", "r", "l")
        assert app.is_running
        machine: HostState | None = app.session.feed.host_state
        assert machine is None


async def test_the_bell_rings_once_when_the_sweep_pauses_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        rung: list[int] = []
        monkeypatch.setattr(app, "bell", lambda: rung.append(1))
        feed.emit(ev.RunPaused("op@laptop", "asked"))
        await settled(pilot)
        assert rung == []
        feed.emit(ev.RunResumed("op@laptop"))
        await settled(pilot)
        feed.emit(ev.RunPaused("ddconsole", "the same cause ended two"))
        await settled(pilot)
        feed.emit(ev.Warned("x"))
        await settled(pilot)
        assert rung == [1]
