import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ddconsole.compare.comparison import Comparison, compare
from ddconsole.compare.facts import NO_FILES
from ddconsole.compare.side import side_of
from ddconsole.core import events as ev
from ddconsole.link.client import AgentError
from ddconsole.report.attempt_reader import attempts_in_memory
from screens.compare import CompareScreen
from screens.results import ResultsScreen
from tests.compare.changed_runs import Recipe, made
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, settled


class Desk:
    """A desk that notes what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.comparison: Comparison | None = None

    async def __call__(self, say: Callable[[str], None]) -> str:
        say("figures 2 of 5")
        self.asked.append("export")
        return "/home/op/report[1]"

    def formats(self) -> Mapping[str, str]:
        return {"csv": "one row a cell", "markdown": "tables"}

    async def save(self, name: str, say: Callable[[str], None]) -> str:
        say(name)
        self.asked.append(name)
        return f"/home/op/results.{name}"

    async def turns(self) -> Mapping[str, Sequence[tuple[int, float]]]:
        self.asked.append("turns")
        return {"c008": ((1, 28.0), (2, 27.0), (3, 26.0))}

    def others(self) -> Mapping[str, str]:
        return {"first": "begun 2026-09-21 14:13  24 done"}

    async def compare(self, run: str, say: Callable[[str], None]) -> Comparison:
        say(f"reading {run}")
        if self.comparison is None:
            raise AgentError("its journal is gone", "")
        return self.comparison

    async def export_comparison(self, comparison: Comparison, figure: str, say: Callable[[str], None]) -> str:
        say(comparison.before.run)
        self.asked.append(f"comparison of {figure}")
        return "/home/op/compare.pdf"


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied goes into a file as well."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("TMUX", raising=False)


async def test_figures_axes_and_charts_go_round_by_key() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "5")
        assert "tok/s at TP1, generate c1 256" in screen_text(app)
        await pressed(pilot, "right_square_bracket")
        assert "tok/s at TP1, generate c1 1024" in screen_text(app)
        await pressed(pilot, "t")
        assert "TP1  speed-up" in screen_text(app)
        assert "speed-up (×) at TP1, generate c1 1024" in screen_text(app)
        await pressed(pilot, "c", "c")
        assert "over output tokens" in screen_text(app)
        await pressed(pilot, "r")
        assert "TP down, workload point across" in screen_text(app)
        await pressed(pilot, "s")
        assert "workload point down, TP across" in screen_text(app)
        await pressed(pilot, "s", "r", "o")
        assert "method down, workload across" in screen_text(app)


async def test_the_chart_can_have_the_whole_screen() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "5", "z")
        text = screen_text(app)
        assert "tok/s at TP1, generate c1 256" in text
        assert "method  " not in text.replace("method down", "")
        await pressed(pilot, "z")
        assert "TP1  tok/s" in screen_text(app)


async def test_the_definition_of_the_shown_figure_is_one_key_away() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "5", "t", "t", "t", "f")
        first = next(line for line in screen_text(app).splitlines() if "shown" in line)
        assert "TTFT: request sent to first chunk with text" in first
        assert "✗ failed" in screen_text(app)


async def test_marks_stand_under_the_table_and_a_simulated_run_says_so() -> None:
    async with opened(ct200.midway(simulated=True), (120, 40)) as (app, pilot):
        await pressed(pilot, "5")
        assert "SIMULATED: not measured on hardware  ! disturbed" in screen_text(app)


async def test_results_grow_as_cells_are_done() -> None:
    feed = ct200.midway()
    async with opened(feed) as (app, pilot):
        await pressed(pilot, "5")
        feed.emit(ev.AttemptDone("c029", 1, 5, "", "", ct200.figures(131.3, 5.6)))
        await settled(pilot)
        assert "131.3" in screen_text(app)


async def test_turns_are_read_when_the_screen_is_seen_and_again_when_more_are_done() -> None:
    feed, desk = ct200.midway(), Desk()
    async with opened(feed, export=desk) as (app, pilot):
        await pressed(pilot, "5", "c", "c", "c", "c")
        assert "calculator c1, turn by turn" in screen_text(app)
        assert desk.asked == ["turns"]
        ct200.done(feed, "c035", 5)
        await settled(pilot)
        assert desk.asked == ["turns", "turns"]


async def test_the_export_shows_how_far_it_is_and_where_it_went_and_copies_the_path(tmp_path: Path) -> None:
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
        assert app.clipboard == "/home/op/report[1]"
    assert (tmp_path / "ddconsole" / "last-copy.txt").read_text() == "/home/op/report[1]"


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


async def test_another_format_is_chosen_by_name() -> None:
    desk = Desk()
    async with opened(ct200.midway(), export=desk) as (app, pilot):
        await pressed(pilot, "5", "W", *"mark", "enter")
        assert desk.asked == ["turns", "markdown"]
        assert "written to /home/op/results.markdown" in screen_text(app)


async def test_another_run_is_compared_with_regressions_first() -> None:
    runs = [made(Recipe()), made(Recipe(run="second", driver="580.105.08", slower={"ddtree-b15": 0.95}, noise=1))]
    sides = [side_of(one.state, attempts_in_memory(one.attempts), NO_FILES) for one in runs]
    desk = Desk()
    desk.comparison = compare(*sides)
    async with opened(ct200.midway(), (120, 40), export=desk) as (app, pilot):
        await pressed(pilot, "5", "v", "enter")
        assert isinstance(app.screen, CompareScreen)
        text = screen_text(app)
        assert "driver: 580.95.05 → 580.105.08" in text
        assert "▼ 7 regressed" in text
        assert text.index("▼ ddtree-b15 TP1") < text.index("cells:") < text.index("▼ ddtree-b15 TP4 concurrency c2")
        await pressed(pilot, "w")
        assert desk.asked == ["turns", "comparison of output_rate"]
        assert "written to /home/op/compare.pdf" in screen_text(app)
        await pressed(pilot, "a", "G")
        assert isinstance(app.screen, CompareScreen)
        await pressed(pilot, "escape")
        assert "Compared with first" not in screen_text(app)


async def test_a_run_that_cannot_be_compared_says_why() -> None:
    async with opened(ct200.midway(), export=Desk()) as (app, pilot):
        await pressed(pilot, "5", "v", "enter")
        assert "its journal is gone" in screen_text(app)


async def test_without_a_desk_the_keys_say_what_to_use() -> None:
    async with opened(ct200.midway()) as (app, pilot):
        await pressed(pilot, "5", "v")
        assert any("ddconsole compare A B" in one.message for one in app._notifications)
