"""The details of a cell: its figures in words, its times, and the key that comes next."""

from dataclasses import replace
from typing import Any

import pytest

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.row_text import LiveFigures, baselines
from screens.cell_facts import CellFacts
from screens.cell_text import long_lines
from screens.spans import plain
from tests.screens import ct200
from tests.screens.driving import opened, screen_lines, screen_text, settled, sweep
from tests.screens.fake_feed import FakeFeed


def facts_of(feed: FakeFeed, cell: str, **changes: Any) -> CellFacts:
    state = feed.state
    facts = CellFacts(state.cells[cell], state, baselines(state), feed.now(), LiveFigures(), None, None)
    return replace(facts, **changes)


def text_of(facts: CellFacts, width: int = 120) -> str:
    return "\n".join(plain(one) for one in long_lines(facts, width))


def measured(**figures: Any) -> str:
    """The details of a cell with these figures beside the usual ones."""
    feed = ct200.feed()
    ct200.launch(feed, 1, "d02")
    feed.emit(ev.AttemptStarted("c010", 1, 1, 1, 0))
    feed.emit(ev.AttemptDone("c010", 1, 1, "", "", {**ct200.figures(100.0, 4.0), **figures}))
    return text_of(facts_of(feed, "c010"))


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        ({"end_to_end": 2.5}, "whole   2.50 s from sending to the last token"),
        ({"chunk_gap": 0.03, "tokens_per_chunk": 3.0}, "gap     30.0 ms between chunks, 3.00 tokens in each"),
        ({"chunk_gap": 0.03, "tokens_per_chunk": None}, "gap     30.0 ms between chunks\n"),
        ({"steady_rate": 400.0, "steady_seconds": 12.5}, "steady  400.0 tok/s in the 12.5 s in which every stream ran"),
        (
            {"goodput": 1.25, "good_share": 0.9},
            "good    1.25 requests/s kept the limits of protocol.slo: 90% of all",
        ),
        (
            {"rate_bias": 0.021},
            "bias    tok/s may be 2.1% too high: the tokens of the first chunk are not told",
        ),
    ],
)
def test_a_figure_that_was_measured_is_told_with_what_it_is(figures: dict[str, Any], line: str) -> None:
    assert line in measured(**figures)


def test_a_figure_that_is_not_there_takes_no_line() -> None:
    text = measured(rate_bias=0.001)
    assert not [name for name in ("whole", "steady", "good", "bias") if f"\n {name} " in text]


def test_a_running_cell_promises_nothing_once_it_takes_longer_than_foretold() -> None:
    feed = ct200.midway()
    running = feed.state.cells["c029"].state
    assert isinstance(running, st.Running)
    feed.clock = running.since + 30.0
    assert "0:30 gone, ~0:15 left" in text_of(facts_of(feed, "c029", left=45.0))
    assert "0:30 gone, 0:10 longer than foretold" in text_of(facts_of(feed, "c029", left=20.0))


def test_what_a_waiting_cell_takes_is_told_with_where_that_comes_from() -> None:
    feed = ct200.feed()
    text = text_of(facts_of(feed, "c001", left=7.0, basis="a guess: nothing was measured yet"))
    assert "takes   about 0:07, a guess: nothing was measured yet" in text


@pytest.mark.parametrize(
    ("steers", "may_take", "words"),
    [
        (True, False, "next    x stop"),
        (False, True, "next    T take control    l  its log"),
        (False, False, "next    l"),
    ],
)
def test_who_only_watches_is_offered_no_command(steers: bool, may_take: bool, words: str) -> None:
    feed = ct200.midway()
    text = " ".join(text_of(facts_of(feed, "c029", steers=steers, may_take=may_take)).split())
    assert " ".join(words.split()) in text
    assert ("- skip" in text) is steers


async def test_the_details_of_a_console_that_watches_lead_to_control() -> None:
    feed = ct200.midway()
    feed.emit(ev.ControlTaken("ann@laptop", "theirs", 1, "pts/3"))
    async with opened(feed) as (app, pilot):
        sweep(app).go_to("c029")
        await settled(pilot)
        (line,) = [one for one in screen_lines(app) if one.lstrip().startswith("next ")]
        assert "T take control" in " ".join(line.split())
        assert "stop" not in line


async def test_the_time_left_of_a_sweep_does_not_melt_while_a_cell_overruns() -> None:
    feed = ct200.midway()
    feed.progress = None
    async with opened(feed) as (app, pilot):
        await settled(pilot)
        book = app.session.book
        book.update()
        before = book.run_left()
        later = book.run_left()
        assert before is not None
        feed.clock += 7200.0
        for _ in range(3):
            later = book.run_left()
        assert later is not None
        running = feed.state.running_cell()
        assert running is not None
        assert before - book.cell_seconds(running) <= later <= before
        assert " left" in screen_text(app)
