import math
from dataclasses import replace

import pytest

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.records import CellProgress
from ddconsole.core.row_text import (
    GLYPHS,
    LiveFigures,
    RowText,
    baselines,
    cell_figures,
    clock_time,
    plain_line,
    row_text,
    seconds_in_words,
    sparkline,
    ttft_text,
)
from screens.cell_facts import CellFacts
from screens.cell_text import short_lines
from screens.spans import plain
from tests.screens import ct200
from tests.screens.fake_feed import FakeFeed


def row_of(feed: FakeFeed, cell: str, live: LiveFigures | None = None, left: float | None = None) -> RowText:
    state = feed.state
    return row_text(state.cells[cell], state, baselines(state), now=feed.now(), left=left, live=live)


def test_a_done_cell_is_compared_with_the_baseline_at_its_own_point() -> None:
    feed = ct200.midway()
    base, fast = row_of(feed, "c001"), row_of(feed, "c010")
    assert (base.word, base.speed_up, base.acceptance) == ("done", "1.00", "1.00")
    assert float(fast.speed_up) == pytest.approx(float(fast.rate) / float(base.rate), abs=0.01)
    assert (fast.acceptance, fast.ttft, fast.count, fast.time) == ("4.81", "61 ms", "5/5", "0:45")


def test_a_ttft_of_fewer_requests_than_a_report_asks_for_carries_its_mark() -> None:
    feed = ct200.midway()
    figures = cell_figures(feed.state.cells["c010"])
    assert figures is not None
    assert ttft_text(replace(figures, succeeded=11)) == "61 ms"
    assert ttft_text(replace(figures, succeeded=10)) == "61 ms†"
    assert ttft_text(replace(figures, succeeded=10, ttft=None)) == ""


def test_without_the_baseline_there_is_no_speed_up() -> None:
    feed = ct200.feed()
    ct200.launch(feed, 1, "d02")
    ct200.done(feed, "c010", 1)
    assert row_of(feed, "c010").speed_up == ""


def test_an_acceptance_that_the_engine_did_not_tell_is_not_one() -> None:
    feed = ct200.feed()
    ct200.launch(feed, 1, "d02")
    feed.emit(ev.AttemptStarted("c010", 1, 1, 1, 0))
    feed.emit(ev.AttemptDone("c010", 1, 1, "", "", ct200.figures(99.0, None)))
    assert row_of(feed, "c010").acceptance == "?"


def test_cells_whose_launch_is_held_back_say_what_the_checks_found() -> None:
    feed = ct200.feed()
    found = "dev.uvm-open: the device cgroup forbids /dev/nvidia-uvm (allow it)"
    feed.emit(ev.LaunchHeld("d02", (found, "gpu.idle: GPU 7 is wedged (reset it)")))
    held = [name for name, row in feed.state.cells.items() if row.cell.deployment == "d02"]

    assert all(row_of(feed, name).cause.startswith(f"held back: {found}; gpu.idle") for name in held)
    assert row_of(feed, "c001").cause == "", "the others wait as before"
    facts = CellFacts(feed.state.cells[held[0]], feed.state, {}, feed.now(), LiveFigures(), None, None)
    text = "\n".join(plain(one) for one in short_lines(facts, 119, 9))
    assert "dev.uvm-open: the device cgroup forbids" in text
    assert "gpu.idle: GPU 7 is wedged" in text
    assert "P goes on" in text

    ct200.launch(feed, 1, "d02")
    assert {row_of(feed, name).cause for name in held} == {""}


def test_a_disturbed_and_an_estimated_figure_are_marked() -> None:
    feed = ct200.midway()
    assert row_of(feed, "c012").rate.startswith("!")
    feed.emit(ev.CellsRetried(("c001",), "op"))
    feed = ct200.feed()
    ct200.launch(feed, 1, "d01")
    feed.emit(ev.AttemptStarted("c001", 1, 1, 1, 0))
    feed.emit(ev.AttemptDone("c001", 1, 1, "", "", {**ct200.figures(28.0, None), "estimated_tokens": True}))
    assert row_of(feed, "c001").rate == "~28.0"


def test_the_running_cell_shows_what_is_live_and_what_is_left() -> None:
    feed = ct200.midway()
    live = LiveFigures(feed.progress, tuple(feed.rates), 5.62)
    row = row_of(feed, "c029", live, left=150.0)
    assert (row.rate, row.acceptance, row.count, row.time, row.live) == ("121.7", "5.62", "3/5", "~1:59", True)
    assert len(row.spread) == 8


def test_a_cell_that_takes_longer_than_foretold_says_by_how_much() -> None:
    feed = ct200.midway()
    running = feed.state.cells["c029"].state
    assert isinstance(running, st.Running)
    feed.clock = running.since + 130.0
    assert row_of(feed, "c029", left=150.0).time == "~0:20"
    assert row_of(feed, "c029", left=130.0).time == "+0:00"
    assert row_of(feed, "c029", left=123.0).time == "+0:07"


def test_progress_of_another_attempt_is_not_shown() -> None:
    feed = ct200.midway()
    other = LiveFigures(CellProgress("c029", 9, 1, 25, 0, 1, 50.0, feed.now()), (50.0,))
    assert row_of(feed, "c029", other).rate == ""


def test_values_of_a_lost_link_are_stale_not_live() -> None:
    feed = ct200.midway()
    row = row_of(feed, "c029", LiveFigures(feed.progress, (), None, current=False))
    assert (row.live, row.stale) == (False, True)


@pytest.mark.parametrize(
    ("cell", "glyph", "words"),
    [
        ("c023", "✗", ["CUDA out of memory while capturing graphs", "E edit", "R retry"]),
        ("c046", "⊘", ["launch 4 failed", "E edit"]),
        ("c161", "◇", ["74.6 GiB", "R try it anyway"]),
        ("c100", "–", ["recurrent-state leakage seen at TP1"]),
    ],
)
def test_a_cell_without_figures_says_why_and_what_to_do(cell: str, glyph: str, words: list[str]) -> None:
    row = row_of(ct200.midway(), cell)
    assert row.glyph == glyph
    assert all(word in row.cause for word in words)


def test_several_rounds_give_the_median_and_half_the_range() -> None:
    feed = ct200.feed(cells=1)
    cell = feed.state.cells["c001"].cell
    assert cell_figures(feed.state.cells["c001"]) is None
    for launch, rate in ((1, 28.0), (2, 30.0)):
        ct200.launch(feed, launch, "d01")
        if launch == 2:
            feed.emit(ev.CellsRetried((cell.id,), "op"))
        feed.emit(ev.AttemptStarted(cell.id, launch, launch, launch, 0))
        feed.emit(ev.AttemptDone(cell.id, launch, launch, "", "", ct200.figures(rate, None)))
        feed.emit(ev.LaunchGone(launch))
    figures = cell_figures(feed.state.cells["c001"])
    assert figures is not None
    assert (figures.output_rate, figures.spread, figures.attempts) == (29.0, 1.0, 2)


def test_figures_that_are_no_numbers_do_no_harm() -> None:
    feed = ct200.feed()
    ct200.launch(feed, 1, "d01")
    feed.emit(ev.AttemptStarted("c001", 1, 1, 1, 0))
    wrong = {"output_rate": "fast", "ttft": None, "acceptance": [1], "requests": math.inf, "estimated_tokens": False}
    feed.emit(ev.AttemptDone("c001", 1, 1, "", "", wrong))
    row = row_of(feed, "c001")
    assert (row.word, row.rate, row.ttft) == ("done", "", "")


def test_every_phase_has_a_glyph_of_its_own() -> None:
    assert set(GLYPHS) == set(st.CellPhase)
    assert len(set(GLYPHS.values())) == len(GLYPHS)


def test_a_sparkline_stands_on_a_fixed_scale_with_gaps() -> None:
    assert sparkline([0, None, 50, 100, math.nan, 200], 6, 100) == "▁ ▅█ █"
    assert sparkline([5, 5, 5], 3) == "███"
    assert sparkline([0, 0], 8) == "▁▁"
    assert sparkline(range(20), 4, 19) == "▇▇██"


@pytest.mark.parametrize(
    ("seconds", "clock", "words"),
    [(0, "0:00", "0 s"), (75, "1:15", "75 s"), (600, "10:00", "10 min"), (7265, "2:01:05", "2 h 01 min")],
)
def test_times(seconds: float, clock: str, words: str) -> None:
    assert (clock_time(seconds), seconds_in_words(seconds)) == (clock, words)


def test_nothing_from_outside_reaches_the_terminal_as_it_is() -> None:
    assert plain_line("\x1b[31mred\ud800\u202e\n") == r"^[[31mred\ud800<U+202E>⏎"
