from dataclasses import replace

from ddconsole.core import events as ev
from ddconsole.core import states as st
from ddconsole.core.row_text import baselines
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Cell, to_json
from screens.pivot import Axis, Choice, axes_of, pivot
from screens.results_text import Look, Source, definition_lines, legend, table_lines
from screens.shown_figures import SHOWN_FIGURES, MeasuredCells
from screens.spans import cut_apart, plain
from tests.screens import ct200


def source(state: RunState) -> Source:
    return Source(state, baselines(state), MeasuredCells())


def text(state: RunState, choice: Choice | None = None, figure: int = 0, width: int = 79, shift: int = 0) -> str:
    shown = pivot(state, choice or Choice())
    return "\n".join(plain(one) for one in table_lines(shown, source(state), Look(figure, shift, width)))


def row_of(table: str, name: str) -> list[str]:
    return next(line for line in table.splitlines() if line.startswith(f" {name}")).split()


def test_every_cell_stands_in_exactly_one_place_whatever_the_axes() -> None:
    state = ct200.midway().state
    for down in axes_of(state):
        for across in axes_of(state):
            if down.covers & across.covers:
                continue
            shown = pivot(state, Choice(down, across))
            placed = [row.cell.id for table in shown.tables for row in table.cells.values()]
            assert sorted(placed) == sorted(state.cells), (down, across)
            for table in shown.tables:
                assert set(table.rows) == {place[0] for place in table.cells}
                assert set(table.columns) == {place[1] for place in table.cells}


def test_methods_stand_against_points_for_each_size() -> None:
    shown = text(ct200.midway().state)
    assert shown.startswith(" TP1  tok/s")
    assert row_of(shown, "ar")[1] == "28.9"
    assert max(len(line) for line in shown.splitlines()) <= 79


def test_what_has_no_figure_stands_as_a_glyph_and_as_a_word_where_there_is_room() -> None:
    state = ct200.midway().state
    assert "✗" in row_of(text(state), "ddtree-b8")
    wide = text(state, Choice(Axis.METHOD, Axis.SIZE), width=119)
    assert "⊘ blocked" in wide
    running = text(state, Choice(Axis.METHOD, Axis.LENGTH), width=119)
    assert "▶ running" in running


def test_methods_against_sizes_and_sizes_against_concurrency() -> None:
    state = ct200.midway().state
    sizes = text(state, Choice(Axis.METHOD, Axis.SIZE))
    assert sizes.splitlines()[0].strip().startswith("generate · c1 · 256 tokens")
    assert sizes.splitlines()[1].split() == ["method", "TP1", "TP4", "TP8"]
    loads = text(state, Choice(Axis.SIZE, Axis.LOAD))
    assert any(line.split() == ["TP", "c1", "c2", "c4", "c8"] for line in loads.splitlines())


def test_axes_go_round_and_never_overlap() -> None:
    axes = axes_of(ct200.midway().state)
    choice = Choice()
    seen = set()
    for _ in axes:
        choice = choice.next_down(axes)
        assert not choice.down.covers & choice.across.covers
        seen.add(choice.down)
    assert seen == {Axis.METHOD, Axis.SIZE}
    choice = Choice()
    across = set()
    for _ in axes:
        choice = choice.next_across(axes)
        across.add(choice.across)
    assert across == set(axes) - {Axis.METHOD}
    assert Choice().swapped() == Choice(Axis.POINT, Axis.METHOD)


def test_an_axis_with_one_value_is_not_offered() -> None:
    state = ct200.feed(cells=9).state
    assert axes_of(state) == (Axis.METHOD, Axis.POINT, Axis.WORKLOAD, Axis.LOAD, Axis.LENGTH)


def test_columns_that_do_not_fit_are_counted_and_come_into_sight() -> None:
    state = ct200.midway().state
    first = text(state, width=60).splitlines()[0]
    assert "3 more ▸" in first
    assert "◂" not in first
    moved = text(state, width=60, shift=2).splitlines()[0]
    assert "◂ 2 more" in moved
    assert "1 more ▸" in moved
    assert "more ▸" not in text(state, width=60, shift=50).splitlines()[0]


def test_a_disturbed_figure_is_marked_and_a_pruned_one_that_was_measured_too() -> None:
    feed = ct200.midway()
    assert "!99.0" in text(feed.state)
    feed.emit(ev.CellsPruned(("c019",), "0.71 of the best at TP1"))
    pruned = replace(feed.state.cells["c010"], state=st.Pruned("0.71 of the best at TP1"))
    state = replace(feed.state, cells={**feed.state.cells, "c010": pruned})
    assert "✂99.0" in text(state)


def test_three_figures_stand_together_where_there_is_room() -> None:
    lines = text(ct200.midway().state, width=199).splitlines()
    assert "tok/s · speed-up · acceptance" in lines[0]
    assert next(line for line in lines if line.startswith(" dflash")).split()[1:4] == ["99.0", "3.43", "4.81"]


def test_every_figure_has_a_definition_and_shows_its_value() -> None:
    state = ct200.midway().state
    shown = {"tok/s": "99.0", "speed-up": "3.43", "acceptance": "4.81", "TTFT": "61", "server tok/s": "96.0"}
    for number, figure in enumerate(SHOWN_FIGURES):
        table = text(state, figure=number)
        assert figure.name in table.splitlines()[0]
        if figure.name in shown:
            assert row_of(table, "dflash")[1] == shown[figure.name]
        meaning = "\n".join(plain(one) for one in definition_lines(number, (), 78))
        assert meaning.split()[0] == "shown"


def test_the_legend_names_what_occurs_and_nothing_else() -> None:
    words = [word for word, _ in legend(pivot(ct200.midway().state, Choice()), MeasuredCells(), simulated=True)]
    assert words[:2] == ["SIMULATED: not measured on hardware", "! disturbed"]
    assert {"✗ failed", "⊘ blocked", "◇ does not fit", "– skipped"} <= set(words)
    assert not any("pruned" in word or "estimated" in word for word in words)


def test_a_second_cell_in_one_place_is_shown_too() -> None:
    feed = ct200.midway()
    feed.emit(ev.CellAdded(to_json(Cell("c900", "d01", ct200.points()[0]))))
    assert "ar (c900)" in text(feed.state)


def test_names_from_outside_are_plain_text() -> None:
    feed = ct200.feed(cells=9)
    deployment = replace(ct200.deployments()[0], id="d77", method="\x1b[31mred[/]")
    feed.emit(ev.DeploymentAdded(to_json(deployment)), ev.CellAdded(to_json(Cell("c901", "d77", ct200.points()[0]))))
    assert "\x1b" not in text(feed.state)
    assert "red[/]" in text(feed.state)


def test_methods_across_stay_apart_where_it_is_narrow() -> None:
    state = ct200.midway().state
    table = text(state, Choice(Axis.POINT, Axis.METHOD))
    heads = next(line for line in table.splitlines() if "ar" in line.split()).split()
    assert "ddt…b16" in heads
    assert len(set(heads)) == len(heads)
    assert max(len(line) for line in table.splitlines()) <= 79


def test_names_are_cut_where_they_are_alike() -> None:
    assert list(cut_apart(["ar", "ddtree-b16", "ddtree-b32"], 7).values()) == ["ar", "ddt…b16", "ddt…b32"]
    assert list(cut_apart(["ddtree-b16-w4", "ddtree-b32-w4"], 7).values()) == ["…16-w4", "…32-w4"]
    assert list(cut_apart(["generate", "concurrency"], 4).values()) == ["gen…", "con…"]
    assert set(map(len, cut_apart(["ddtree-b16-long-w4-x", "ddtree-b16-more-w4-x"], 4).values())) == {4}
