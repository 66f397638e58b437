import os
from pathlib import Path

import pytest

from ddconsole.core.wire import LogPiece
from ddconsole.link.client import LinkLost
from screens.clipboard import copy_text, save_text
from screens.logs import LogsScreen, whole_lines
from screens.widgets.log_view import LogView
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_lines, screen_text, settled, toasts
from tests.screens.fake_feed import FakeFeed


def logs(app: object) -> LogsScreen:
    screen = app.screen  # type: ignore[attr-defined]  # a console
    assert isinstance(screen, LogsScreen)
    return screen


def long_log(lines: int = 3000) -> FakeFeed:
    feed = ct200.midway()
    feed.logs.clear()
    feed.log(5, *(f"line {number}" for number in range(1, lines + 1)))
    return feed


async def test_it_shows_the_newest_launch_and_follows() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        assert "launch 5 of 5  ddtree-b15 TP1 ready" in screen_text(app)
        feed.log(5, "hello from the server")
        await pilot.pause(0.25)
        assert screen_lines(app)[-2].strip() == "hello from the server"


async def test_a_reader_is_not_moved_by_what_comes_or_by_what_is_forgotten() -> None:
    feed = long_log(400)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2", "f", "pageup", "pageup")
        view = logs(app).view
        before = screen_lines(app)[3:20]
        view.buffer._most_lines = 500
        feed.log(5, *(f"new {number}" for number in range(260)))
        await pilot.pause(0.25)
        assert view.buffer.pruned > 0
        assert screen_lines(app)[3:20] == before
        assert "▼ 260 new" in screen_text(app)
        await pressed(pilot, "f")
        assert "new 259" in screen_text(app)
        assert "▼" not in screen_text(app)


async def test_a_reader_whose_lines_are_forgotten_is_put_on_the_oldest() -> None:
    feed = long_log(400)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2", "g")
        view = logs(app).view
        view.buffer._most_lines = 100
        feed.log(5, *(f"new {number}" for number in range(600)))
        await pilot.pause(0.25)
        assert view.cursor == view.buffer.first
        assert view.buffer.text(view.buffer.first) in screen_text(app)


async def test_search_marks_and_steps() -> None:
    feed = long_log(400)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2", "slash", *"line 37", "enter")
        view = logs(app).view
        assert view.buffer.text(view.cursor or 0) == "line 379"
        await pressed(pilot, "N")
        assert view.buffer.text(view.cursor or 0) == "line 378"
        await pressed(pilot, "n")
        assert view.buffer.text(view.cursor or 0) == "line 379"
        await pressed(pilot, "slash", *"zzz", "enter")
        assert "'zzz' is not found" in toasts(app)
        await pressed(pilot, "escape")
        assert view.search == ""


async def test_typing_into_the_search_runs_no_action() -> None:
    feed = long_log(50)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2", "slash", *"wsvyL12q")
        assert isinstance(app.screen, LogsScreen)
        assert not logs(app).view.wrap
        assert logs(app).view.search == "wsvyL12q"


async def test_the_first_error_is_found_in_the_whole_log() -> None:
    feed = ct200.midway()
    feed.log(5, "Traceback (most recent call last):", *(f"line {number}" for number in range(900)), "ERROR late")
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        view = logs(app).view
        assert view.buffer.last == 500
        await pressed(pilot, "e")
        assert view.buffer.text(view.cursor or 0) == "Traceback (most recent call last):"
        await pressed(pilot, "e")
        assert view.buffer.text(view.cursor or 0) == "ERROR late"


async def test_reading_the_whole_log_repeats_and_loses_no_line_that_streams_in_meanwhile() -> None:
    feed = long_log(2000)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        logs(app).perform("load-log")
        feed.log(5, "meanwhile 1", "meanwhile 2")
        await pilot.pause(0.3)
        buffer = logs(app).view.buffer
        texts = [buffer.text(number) for number in range(buffer.first, buffer.last + 1)]
        assert texts == [*(f"line {number}" for number in range(1, 2001)), "meanwhile 1", "meanwhile 2"]


async def test_a_log_that_cannot_be_read_is_told() -> None:
    feed = long_log(600)

    async def lost(launch: int, offset: int, limit: int) -> bytes:
        raise LinkLost("the link ended")

    feed.read_log = lost  # type: ignore[method-assign]  # the link ends now
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2", "L")
        assert "the log was not read: the link ended" in toasts(app)
        assert logs(app).view.buffer.last == 500


async def test_launches_are_chosen_by_key_and_by_name() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2", "left_square_bracket")
        assert "launch 4 of 5" in screen_text(app)
        assert "unrecognized" in screen_text(app) or "failed" in screen_text(app)
        await pressed(pilot, "o", *"launch 2", "enter")
        assert "launch 2 of 5  dflash TP1 gone" in screen_text(app)
        ct200.launch(feed, 6, "d05")
        await settled(pilot)
        assert "launch 2 of 6" in screen_text(app)
        await pressed(pilot, "1")


async def test_the_log_of_a_failed_cell_is_one_key_away() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "full_stop", "full_stop")
        await pressed(pilot, "l")
        assert isinstance(app.screen, LogsScreen)
        assert feed.followed == 4


async def test_lines_of_another_launch_are_not_mixed_in() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        logs(app)._piece_came(LogPiece(3, 10, ("of launch 3",)))
        await pilot.pause(0.2)
        assert "of launch 3" not in screen_text(app)


async def test_wrapping_shows_all_of_a_line() -> None:
    feed = long_log(3)
    feed.log(5, "start " + "x" * 200 + " end")
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        assert " end" not in screen_text(app)
        assert screen_lines(app)[6].endswith("…")
        await pressed(pilot, "w")
        assert screen_text(app).count("x" * 60) >= 2
        assert " end" in screen_text(app)


async def test_selected_lines_are_copied_by_the_terminal_and_into_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    feed = long_log(30)
    async with opened(feed) as (app, pilot):
        sent: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", sent.append)
        await pressed(pilot, "2", "f", "v", "up", "up", "y")
        assert sent == ["line 28\nline 29\nline 30"]
        assert "3 lines sent to the terminal's clipboard (OSC 52" in toasts(app)
        assert (tmp_path / "state/ddconsole/last-copy.txt").read_text() == sent[0]
        await pressed(pilot, "s")
        saved = tmp_path / "state/ddconsole/ddtree-ct200-0412-launch5.log"
        assert saved.read_text() == sent[0] + "\n"
        assert "3 lines saved to" in toasts(app)


async def test_hostile_lines_are_shown_and_never_obeyed() -> None:
    feed = long_log(2)
    hostile = ["\x1b]0;title\x07", "[bold red]x[/]", "[/foo] x", "n" * 90_000, "\udcff\udcfe"]
    hostile += ["a\rb\rc", "模型" * 99, "\x9b31m"]
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        feed.log(5, *hostile)
        await pilot.pause(0.25)
        text = screen_text(app)
        for wanted in ("^[]0;title^G", "[bold red]x[/]", "[/foo] x", r"\udcff\udcfe", "模型模型", "<9B>31m"):
            assert wanted in text
        assert "\x1b" not in text
        assert any(line.strip() == "c" for line in screen_lines(app))
        await pressed(pilot, "w", "f", "up", "up", "up")
        assert app.is_running


async def test_painting_is_bounded_while_lines_pour_in(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = long_log(2)
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "2")
        view = logs(app).view
        await pilot.pause(0.2)
        painted: list[int] = []
        original = LogView._changed

        def counted(self: LogView) -> None:
            painted.append(1)
            original(self)

        monkeypatch.setattr(LogView, "_changed", counted)
        for number in range(300):
            feed.log(5, f"more {number}")
        await pilot.pause(0.15)
        assert len(painted) <= 2
        assert view.buffer.last == 302


async def test_copying_names_the_way_it_went(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "bin/tmux"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\ncat > "$COPIED"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("COPIED", str(tmp_path / "copied"))
    sent: list[str] = []
    assert "tmux's buffer" in await copy_text("text", {"TMUX": "x"}, sent.append)
    assert (tmp_path / "copied").read_text() == "text"
    assert sent == []
    assert "OSC 52" in await copy_text("text", {}, sent.append)
    assert "too long" in await copy_text("x" * 80_000, {}, sent.append)
    assert sent == ["text"]
    fake.write_text("#!/bin/sh\nexit 1\n")
    assert "OSC 52" in await copy_text("text", {"TMUX": "x"}, sent.append)


def test_a_file_name_from_outside_stays_in_the_folder(tmp_path: Path) -> None:
    path = save_text("x", "../../../etc/passwd")
    assert path.parent == tmp_path / "state/ddconsole"


def test_a_log_that_is_no_utf8_is_read() -> None:
    assert whole_lines(b"ok\n\xff\xfe\n") == ["ok", r"\xff\xfe"]
    assert whole_lines(b"") == []
