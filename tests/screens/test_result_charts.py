import pytest
from rich.text import Text

from ddconsole.core.row_text import baselines
from ddconsole.core.run_state import RunState
from screens.result_charts import charts_of, conversations_done
from screens.results_text import Source
from screens.shown_figures import SHOWN_FIGURES, MeasuredCells
from screens.widgets.chart import ChartData, chart_text, legend_text, round_ticks
from tests.screens import ct200

RATE = SHOWN_FIGURES[0]


def source(state: RunState) -> Source:
    return Source(state, baselines(state), MeasuredCells())


def test_charts_are_made_of_what_is_measured() -> None:
    state = ct200.midway().state
    kinds = charts_of(source(state), RATE)
    assert set(kinds) == {"by method", "over budget", "over length", "over concurrency"}
    bars = kinds["by method"][0]
    assert bars.title == "tok/s at TP1, generate c1 256"
    assert bars.labels == ("ar", "dflash", "ddtree-b8", "ddtree-b15")
    loads = kinds["over concurrency"][0]
    assert loads.lines is not None
    assert set(loads.lines) == {"ar", "dflash", "ddtree-b8"}
    assert [x for x, _ in loads.lines["ar"]] == [1.0, 2.0, 4.0, 8.0]
    assert charts_of(source(ct200.feed().state), RATE) == {}


def test_budgets_are_a_line_and_methods_without_one_go_straight_across() -> None:
    feed = ct200.midway()
    ct200.done(feed, "c037", 5)
    kinds = charts_of(source(feed.state), RATE)
    chart = kinds["over budget"][0]
    assert chart.lines is not None
    assert [x for x, _ in chart.lines["ddtree"]] == [8.0, 15.0, 16.0]
    assert [x for x, _ in chart.lines["dflash"]] == [8.0, 16.0]
    assert len({y for _, y in chart.lines["ar"]}) == 1


def test_turns_are_drawn_where_they_have_been_read() -> None:
    state = ct200.midway().state
    assert conversations_done(state) == 6
    assert conversations_done(ct200.feed().state) == 0
    kinds = charts_of(source(state), RATE, {"c008": ((1, 28.0), (2, 27.5)), "gone": ((1, 1.0), (2, 2.0))})
    (chart,) = kinds["by turn"]
    assert chart.title == "tok/s at TP1, calculator c1, turn by turn"
    assert chart.lines == {"ar": ((1.0, 28.0), (2.0, 27.5))}


def test_a_chart_begins_from_nothing_each_time() -> None:
    bars = ChartData("bars", ("ar",), (28.0,))
    curves = ChartData("curves", lines={"dflash": ((1.0, 100.0), (4.0, 200.0))}, logarithmic=True)
    first = chart_text(curves, 60, 12)
    assert "x" not in Text.from_ansi(chart_text(bars, 60, 12)).plain
    assert Text.from_ansi(first).plain.count("o") == 2
    assert chart_text(curves, 60, 12) == first


def test_each_line_of_a_chart_has_a_mark_that_the_legend_names() -> None:
    lines = {"ar": ((1.0, 28.0), (2.0, 27.0)), "dflash": ((1.0, 99.0), (2.0, 98.0))}
    assert legend_text(tuple(lines)).plain.split() == ["o", "ar", "x", "dflash"]
    drawn = Text.from_ansi(chart_text(ChartData("c", lines=lines), 60, 12)).plain
    assert drawn.count("o") == drawn.count("x") == 2


@pytest.mark.parametrize(
    ("highest", "most", "ticks"),
    [
        (46.5, 5, [0, 10, 20, 30, 40, 50]),
        (200.0, 4, [0, 50, 100, 150, 200]),
        (1.07, 3, [0, 0.5, 1, 1.5]),
        (0.034, 4, [0, 0.01, 0.02, 0.03, 0.04]),
        (8123.0, 5, [0, 2000, 4000, 6000, 8000, 10000]),
        (0.0, 2, [0, 0.5, 1]),
    ],
)
def test_numbers_of_the_upward_axis_are_round(highest: float, most: int, ticks: list[float]) -> None:
    assert round_ticks(highest, most) == ticks


def test_a_chart_says_its_unit_and_has_round_numbers_upwards() -> None:
    lines = {"ar": ((1.0, 38.7), (2.0, 46.5))}
    drawn = Text.from_ansi(chart_text(ChartData("c", lines=lines), 60, 16)).plain
    numbers = [line.split("┤")[0].strip() for line in drawn.splitlines() if "┤" in line]
    assert numbers == ["50", "40", "30", "20", "10", "0"]
    state = ct200.midway().state
    titles = {charts_of(source(state), one)["by method"][0].title for one in SHOWN_FIGURES[:4]}
    assert {title.partition(" at ")[0] for title in titles} == {
        "tok/s", "speed-up (×)", "acceptance (tokens a step)", "TTFT (s)",
    }  # fmt: skip
