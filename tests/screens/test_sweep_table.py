from collections.abc import Sequence
from dataclasses import replace

import pytest
from textual.app import App, ComposeResult
from textual.geometry import Region

from ddconsole.core import states as st
from ddconsole.core.row_text import RowText
from screens.theme import COLOURS
from screens.widgets.columns import COLUMNS, fit, needed_width
from screens.widgets.sweep_table import SweepTable, cut_cells


class TableApp(App[None]):
    CSS_PATH = "../../screens/console.tcss"

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return COLOURS

    def compose(self) -> ComposeResult:
        yield SweepTable()

    @property
    def table(self) -> SweepTable:
        return self.query_one(SweepTable)


def made(number: int, **changes: object) -> RowText:
    row = RowText(
        id=f"c{number:03}",
        phase=st.CellPhase.DONE,
        glyph="✓",
        word="done",
        method="ddtree-b15",
        tensor_parallel="1",
        workload="generate",
        concurrency="1",
        length="1024",
        rate=f"{number}.0",
        speed_up="4.28",
        acceptance="5.62",
        ttft="66 ms",
        count="5/5",
        time="0:45",
    )
    return replace(row, **changes)  # type: ignore[arg-type]  # fields by name


def rows(count: int) -> list[RowText]:
    return [made(number) for number in range(count)]


def lines(app: TableApp) -> list[str]:
    return [app.table.render_line(y).text for y in range(app.table.size.height)]


async def test_the_cursor_stays_on_its_cell_when_the_order_changes() -> None:
    app = TableApp()
    async with app.run_test(size=(100, 12)) as pilot:
        app.table.set_rows(rows(50))
        await pilot.pause()
        app.table.cursor = "c040"
        await pilot.pause()
        app.table.set_rows(list(reversed(rows(50))))
        await pilot.pause()
        assert app.table.cursor == "c040"
        under = app.table.row_under_cursor()
        assert under is not None
        assert under.id == "c040"
        assert any(line.startswith("▌") and "40.0" in line for line in lines(app))


async def test_marks_stay_on_their_cells() -> None:
    app = TableApp()
    async with app.run_test(size=(100, 12)) as pilot:
        app.table.set_rows(rows(6))
        app.table.set_marked(frozenset({"c001", "c004"}))
        await pilot.pause()
        app.table.set_rows([made(9), *reversed(rows(6))])
        await pilot.pause()
        assert [line[8:].split()[5] for line in lines(app) if "●" in line] == ["4.0", "1.0"]


async def test_when_the_cell_under_the_cursor_vanishes_its_neighbour_is_next() -> None:
    app = TableApp()
    async with app.run_test(size=(100, 12)) as pilot:
        app.table.set_rows(rows(10))
        await pilot.pause()
        app.table.cursor = "c009"
        app.table.set_rows(rows(5))
        await pilot.pause()
        assert app.table.cursor == "c004"
        app.table.set_rows([])
        await pilot.pause()
        assert app.table.row_under_cursor() is None
        assert "no cell" in lines(app)[1]
        app.table.set_rows(rows(3))
        assert app.table.cursor == "c000"


class Counting(SweepTable):
    def __init__(self) -> None:
        super().__init__()
        self.regions: list[Region] = []
        self.whole = 0

    def refresh(self, *regions: Region, **options: bool) -> "Counting":
        self.regions += regions
        self.whole += not regions
        return super().refresh(*regions, **options)


class CountingApp(TableApp):
    def compose(self) -> ComposeResult:
        yield Counting()


async def changed_regions(count: int, changes: Sequence[int]) -> tuple[list[Region], int]:
    app = CountingApp()
    async with app.run_test(size=(100, 20)) as pilot:
        table = app.query_one(Counting)
        before = rows(count)
        table.set_rows(before)
        await pilot.pause()
        table.regions.clear()
        table.whole = 0
        table.set_rows([made(n, rate="77.7") if n in changes else row for n, row in enumerate(before)])
        return table.regions, table.whole


async def test_one_changed_row_draws_one_line() -> None:
    regions, whole = await changed_regions(1000, [3])
    assert whole == 0
    assert [(region.y, region.height) for region in regions] == [(4, 1)]


async def test_a_row_out_of_sight_draws_nothing() -> None:
    regions, whole = await changed_regions(1000, [900])
    assert (regions, whole) == ([], 0)


async def test_equal_rows_draw_nothing() -> None:
    regions, whole = await changed_regions(1000, [])
    assert (regions, whole) == ([], 0)


async def test_keys_move_by_cells_and_pages_and_keep_the_cursor_in_sight() -> None:
    app = TableApp()
    async with app.run_test(size=(100, 12)) as pilot:
        app.table.set_rows(rows(100))
        app.table.focus()
        await pilot.pause()
        for keys, expected in (
            (["down", "down"], "c002"),
            (["k"], "c001"),
            (["G"], "c099"),
            (["up"], "c098"),
            (["home"], "c000"),
            (["pagedown"], "c010"),
            (["pageup", "up"], "c000"),
        ):
            await pilot.press(*keys)
            await pilot.pause()
            assert app.table.cursor == expected
            assert sum(line.startswith("▌") for line in lines(app)) == 1


async def test_a_click_puts_the_cursor_on_the_row() -> None:
    app = TableApp()
    async with app.run_test(size=(100, 12)) as pilot:
        app.table.set_rows(rows(100))
        await pilot.pause()
        await pilot.click(SweepTable, offset=(10, 5))
        assert app.table.cursor == "c004"
        await pilot.click(SweepTable, offset=(10, 0))
        assert app.table.cursor == "c004"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120, 160, 300])
def test_what_says_which_cell_it_is_is_never_dropped(width: int) -> None:
    needed = [needed_width(column, rows(3)) for column in COLUMNS]
    placed = fit(needed, width)
    fields = [one.column.field for one in placed]
    assert fields[:7] == ["word", "method", "tensor_parallel", "workload", "concurrency", "length", "rate"]
    if width >= 80:
        assert "speed_up" in fields
        assert 2 + sum(one.width + 1 for one in placed) - 1 <= width


def test_a_wide_table_has_all_columns_and_a_shift_moves_figures_only() -> None:
    needed = [needed_width(column, rows(3)) for column in COLUMNS]
    assert [one.column for one in fit(needed, 160)] == list(COLUMNS)
    shifted = [one.column.field for one in fit(needed, 80, shift=4)]
    assert shifted[:6] == ["word", "method", "tensor_parallel", "workload", "concurrency", "length"]
    assert shifted[6:] == ["ttft", "count", "time"]


async def test_a_cause_is_written_across_the_figures_and_cut_at_the_edge() -> None:
    app = TableApp()
    async with app.run_test(size=(80, 12)) as pilot:
        cause = "CUDA out of memory while capturing graphs; retry after a change (E edit, R retry)"
        app.table.set_rows([made(1, phase=st.CellPhase.FAILED, word="failed", glyph="✗", cause=cause)])
        await pilot.pause()
        line = lines(app)[1]
        assert "✗ failed" in line
        assert "CUDA out of memory" in line
        assert line.endswith("…")
        assert len(line) == 80


async def test_wide_and_hostile_texts_keep_the_columns_in_place() -> None:
    app = TableApp()
    async with app.run_test(size=(100, 12)) as pilot:
        texts = ["[red]hi[/]", "模型模型模型模型模型模型", "é" * 40, "👩‍👩‍👧‍👦" * 9, "[/foo] x", ""]
        app.table.set_rows([made(n, method=text) for n, text in enumerate(texts)])
        await pilot.pause()
        drawn = [app.table.render_line(y) for y in range(1, len(texts) + 1)]
        assert "[red]hi[/]" in drawn[0].text
        assert {strip.cell_length for strip in drawn} == {100}
        columns = [strip.text[: strip.text.index("generate")] for strip in drawn if strip.text.isascii()]
        assert len({len(one) for one in columns}) <= 1


@pytest.mark.parametrize(
    ("text", "width", "cut"), [("abcdef", 4, "abc…"), ("abc", 3, "abc"), ("模型模", 4, "模…"), ("a", 0, "")]
)
def test_cutting(text: str, width: int, cut: str) -> None:
    assert cut_cells(text, width) == cut
