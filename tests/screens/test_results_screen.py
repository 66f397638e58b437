import asyncio
from collections.abc import Callable

import pytest

from ddconsole.core import events as ev
from ddconsole.core.row_text import baselines
from screens.results import ResultsScreen, chart_choices
from screens.results_text import FIGURES, grids, table_lines
from screens.spans import plain
from screens.widgets.chart import ChartData, chart_text
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, settled


def table(figure: int = 0, width: int = 79) -> str:
    state = ct200.midway().state
    return "\n".join(plain(one) for one in table_lines(state, baselines(state), figure, width))


def test_methods_stand_against_points_for_each_size() -> None:
    text = table()
    assert text.startswith(" TP1  tok/s")
    assert {grid.tensor_parallel for grid in grids(ct200.midway().state)} == {1, 4, 8}
    ar = next(line for line in text.splitlines() if line.startswith(" ar"))
    assert ar.split()[1] == "28.9"
    b8 = next(line for line in text.splitlines() if line.startswith(" ddtree-b8"))
    assert "failed" in b8
    assert max(len(line) for line in text.splitlines()) <= 79


def test_a_disturbed_figure_is_marked_and_an_unmeasured_one_is_not_a_number() -> None:
    text = table()
    assert "!99.0" in text
    b15 = next(line for line in text.splitlines() if line.startswith(" ddtree-b15"))
    assert b15.split()[2] == "running"


def test_three_figures_stand_together_where_there_is_room() -> None:
    lines = table(width=199).splitlines()
    assert "tok/s · speed-up · acceptance" in lines[0]
    assert next(line for line in lines if line.startswith(" dflash")).split()[1:4] == ["99.0", "3.43", "4.81"]


@pytest.mark.parametrize(("figure", "first"), [(1, "3.43"), (2, "4.81"), (3, "61")])
def test_other_figures(figure: int, first: str) -> None:
    lines = table(figure).splitlines()
    assert FIGURES[figure].name in lines[0]
    assert next(line for line in lines if line.startswith(" dflash")).split()[1] == first


def test_charts_are_made_of_what_is_measured() -> None:
    charts = chart_choices(ct200.midway().state)
    assert charts[0].title == "tok/s at TP1, generate c1 256"
    assert charts[0].labels == ("ar", "dflash", "ddtree-b8", "ddtree-b15")
    assert charts[1].lines is not None
    assert set(charts[1].lines) == {"ar", "dflash", "ddtree-b8"}
    assert chart_choices(ct200.feed().state) == []


def test_a_chart_is_cleared_before_the_next_one() -> None:
    bars = ChartData("bars", ("ar",), (28.0,))
    curves = ChartData("curves", lines={"dflash": ((1.0, 100.0), (4.0, 200.0))}, across="requests")
    first = chart_text(curves, 60, 12)
    assert "dflash" in first
    assert "dflash" not in chart_text(bars, 60, 12)
    assert chart_text(curves, 60, 12) == first


async def test_figures_and_charts_go_round_by_key() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "5")
        assert "tok/s at TP1, generate c1 256" in screen_text(app)
        await pressed(pilot, "t")
        assert "TP1  speed-up" in screen_text(app)
        await pressed(pilot, "c")
        assert "server tok/s at TP1 against concurrency" in screen_text(app)
        await pressed(pilot, "c")
        assert "tok/s at TP1, generate c1 256" in screen_text(app)


async def test_results_grow_as_cells_are_done() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "5")
        feed.emit(ev.AttemptDone("c029", 1, 5, "", "", ct200.figures(131.3, 5.6)))
        await settled(pilot)
        assert "131.3" in screen_text(app)


async def test_the_export_shows_how_far_it_is_and_where_it_went() -> None:
    going = asyncio.Event()

    async def export(say: Callable[[str], None]) -> str:
        say("figures 2 of 5")
        await going.wait()
        return "/home/op/report[1]"

    async with opened(ct200.midway(), export=export) as (app, pilot):
        await pressed(pilot, "5", "w")
        assert "figures 2 of 5" in screen_text(app)
        going.set()
        await settled(pilot)
        assert "written to /home/op/report[1]" in screen_text(app)


async def test_an_export_that_fails_says_why_and_can_be_tried_again() -> None:
    tries: list[int] = []

    async def export(_say: Callable[[str], None]) -> str:
        tries.append(1)
        raise OSError(28, "No space left on device")

    async with opened(ct200.midway(), export=export) as (app, pilot):
        await pressed(pilot, "5", "w")
        assert "not written" in screen_text(app)
        assert "No space left on device" in screen_text(app)
        await pressed(pilot, "w")
        assert len(tries) == 2
        assert isinstance(app.screen, ResultsScreen)
