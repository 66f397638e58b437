from rich.text import Text

from ddconsole.core.row_text import baselines
from ddconsole.core.run_state import RunState
from screens.result_charts import charts_of, conversations_done
from screens.results_text import Source
from screens.shown_figures import SHOWN_FIGURES, MeasuredCells
from screens.widgets.chart import ChartData, chart_text, legend_text
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
