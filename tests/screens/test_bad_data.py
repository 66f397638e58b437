"""Text from outside, wherever it can stand: shown as it is, never obeyed, and no end of the console."""

import pytest

from ddconsole.core import events as ev
from ddconsole.core.sweep import Cell, Deployment, EngineArgument, Placement, Sampling, WorkloadPoint, to_json
from ddconsole.link.client import LinkPhase
from tests.screens import ct200
from tests.screens.driving import opened, pressed, screen_text, settled, sweep
from tests.screens.fake_feed import FakeFeed

HOSTILE = [
    "[/foo] x",
    "[bold red]x[/bold red]",
    '{"b":[true, false]}',
    "\x1b[31mred\x1b]0;t\x07",
    "\ud800\udcff",
    "a\nb\rc\td",
    "\u202egnp.exe\u2066",
    "模型" * 60,
    "👩‍👩‍👧‍👦e\u0301" * 20,
    "w" * 90_000,
    "",
]


def hostile_run(text: str) -> FakeFeed:
    """A run in which every text that can come from outside is this one."""
    feed = FakeFeed(run=text, host=text)
    feed.emit(ct200.created(plan_name=text, host=text, baseline=text, engine=text))
    args: dict[str, EngineArgument] = {text: text, "list": (text, 1)}
    place = Placement((0,), text)
    feed.emit(ev.DeploymentAdded(to_json(Deployment("d01", text, 1, 1, args, {text: text}, place))))
    point = WorkloadPoint(text, "single", text, 1, 16, 1, 1, Sampling())
    for number in range(1, 8):
        feed.emit(ev.CellAdded(to_json(Cell(f"c{number:03}", "d01", point))))
    feed.emit(ev.LaunchPlanned(1, "d01", 1), ev.LaunchStarting(1, text, 0.5, 1, 2))
    feed.emit(ev.LaunchReady(1, {text: text, "dtype": text}, {"version": text}, 3.0, {text: text}))
    feed.emit(ev.AttemptStarted("c001", 1, 1, 1, 0))
    feed.emit(ev.AttemptFailed("c001", 1, 1, text, text, (text, text), text, text))
    feed.emit(ev.CellsSkipped(("c002",), text, text), ev.CellsUnfit(("c003",), text), ev.CellsPruned(("c004",), text))
    feed.emit(ev.AttemptStarted("c005", 1, 1, 1, 0), ev.AttemptStopped("c005", 1, 1, text, figures={text: text}))
    feed.emit(ev.AttemptStarted("c006", 1, 1, 1, 0))
    feed.emit(ev.AttemptDone("c006", 1, 1, text, text, {text: text, "acceptance": {"source": text}}, (text,)))
    feed.emit(ev.Warned(text, text), ev.DebtTaken(text, text), ev.RunPaused(text, text))
    feed.log(1, text, text)
    feed.set_host(ct200.machine(feed.clock))
    return feed


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
async def test_every_screen_and_dialog_survives_and_shows_it(text: str) -> None:
    feed = hostile_run(text)

    async def preflight() -> list[dict[str, object]]:
        return [dict.fromkeys(("id", "proves", "outcome", "observed", "expected", "evidence", "remedy"), text)]

    async with opened(feed, (120, 40), preflight=preflight) as (app, pilot):
        seen = []
        for number in range(1, 8):
            sweep(app).go_to(f"c{number:03}")
            await settled(pilot)
            seen.append(screen_text(app))
        await pressed(pilot, "i", "escape")
        for keys in (["-"], ["E"], ["ctrl+p"], ["question_mark"], ["q"]):
            await pressed(pilot, *keys)
            seen.append(screen_text(app))
            await pressed(pilot, "escape")
        for key in ("2", "3", "4", "5"):
            await pressed(pilot, key)
            seen.append(screen_text(app))
        feed.set_link(LinkPhase.DOWN, text)
        await settled(pilot)
        seen.append(screen_text(app))
        everything = "\n".join(seen)
        assert app.is_running
        assert "\x1b" not in everything
        assert "\u202e" not in everything
        assert everything.encode("utf-8")
        if text.isascii() and text.isprintable() and 0 < len(text) < 100:
            assert everything.count(text) > 10
