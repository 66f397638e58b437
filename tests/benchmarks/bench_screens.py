"""What the console costs in a real terminal: `python -m tests.benchmarks.bench_screens`. Prints one JSON object.

Each scene is a process of its own in a pty of 160x45. CPU is that process's own time, bytes are what came out of the
pty, and only `first_paint_seconds` is wall time.
"""

import asyncio
import fcntl
import json
import os
import pty
import resource
import select
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.app import App, ComposeResult

from ddconsole.core import events as ev
from ddconsole.core.records import CellProgress
from ddconsole.core.row_text import baselines
from screens.app import ConsoleApp
from screens.pivot import Axis, Choice, pivot
from screens.results_text import Look, Source, legend, table_lines
from screens.row_book import RowBook
from screens.shown_figures import MeasuredCells
from screens.theme import COLOURS
from screens.widgets.sweep_table import SweepTable
from tests.screens import ct200
from tests.screens.fake_feed import FakeFeed

ROOT = Path(__file__).parents[2]
SECONDS = 8.0
ROWS = 1000
CHANGES = 10
LINES = 5000
WIDTH, HEIGHT = 160, 45
_READY = 2.0
"""Seconds until the console has drawn itself and is measured."""

BUDGETS = {
    "first_paint_seconds": 1.0,
    "idle_cpu_percent": 1.0,
    "row_bytes": 1024.0,
    "row_cpu_ms": 1.0,
    "change_bytes": 1024.0,
    "changes_cpu_percent": 5.0,
    "event_cpu_percent": 5.0,
    "log_cpu_percent": 15.0,
    "log_growth_mib": 10.0,
    "pivot_cpu_ms": 50.0,
    "pivot_again_cpu_ms": 50.0,
}


def run_with(cells: int = ROWS) -> FakeFeed:
    """A run of so many cells, one of them running and in sight."""
    feed = ct200.feed(cells=cells)
    ct200.launch(feed, 1, "d01")
    ct200.done(feed, "c001", 1)
    feed.emit(ev.AttemptStarted("c002", 1, 1, 1, 0))
    feed.runs = True
    return feed


async def idle(feed: FakeFeed, app: ConsoleApp) -> dict[str, float]:
    """Nothing happens but the time."""
    began = time.process_time()
    await asyncio.sleep(SECONDS)
    return {"idle_cpu_percent": (time.process_time() - began) / SECONDS * 100}


class TableApp(App[int]):
    """Nothing but the table."""

    CSS_PATH = str(ROOT / "screens" / "console.tcss")

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The stylesheets' own colours."""
        return COLOURS

    def compose(self) -> ComposeResult:
        """The table."""
        yield SweepTable()


async def row(feed: FakeFeed, app: App[int]) -> dict[str, float]:
    """One row of the bare table changes ten times a second, from its text to the terminal."""
    book = RowBook(feed)
    book.update()
    table = app.query_one(SweepTable)
    app.call_later(table.set_rows, list(book.rows.values()))
    await asyncio.sleep(0.5)
    quiet = time.process_time()
    await asyncio.sleep(2.0)
    idle_spent = (time.process_time() - quiet) / 2.0
    began = time.process_time()
    for number in range(int(SECONDS * CHANGES)):
        app.call_later(table.update_rows, [replace(book.rows["c002"], rate=f"{number}.5")])
        await asyncio.sleep(1 / CHANGES)
    spent = (time.process_time() - began) / SECONDS - idle_spent
    return {"row_cpu_ms": spent / CHANGES * 1000}


async def changes(feed: FakeFeed, app: ConsoleApp) -> dict[str, float]:
    """The running cell changes ten times a second; the second's tick is in it."""
    began = time.process_time()
    for number in range(int(SECONDS * CHANGES)):
        rate = 100 + number % 50 / 7
        feed.set_progress(CellProgress("c002", 1, number % 25, 25, 0, 1, rate, feed.clock), rate)
        await asyncio.sleep(1 / CHANGES)
    spent = time.process_time() - began
    return {"changes_cpu_percent": spent / SECONDS * 100, "change_cpu_ms": spent / SECONDS / CHANGES * 1000}


async def events(feed: FakeFeed, app: ConsoleApp) -> dict[str, float]:
    """Ten journal entries a second, the fold among it."""
    began = time.process_time()
    for _ in range(int(SECONDS * CHANGES)):
        feed.emit(ev.CellsMovedFirst(("c003",), "op"))
        await asyncio.sleep(1 / CHANGES)
    return {"event_cpu_percent": (time.process_time() - began) / SECONDS * 100}


async def log(feed: FakeFeed, app: ConsoleApp) -> dict[str, float]:
    """5,000 lines a second into the log view, which has been full for a while."""
    app.call_later(app.switch_mode, "logs")
    await asyncio.sleep(1.0)
    assert feed.followed == 1
    line = "[2026-04-12 04:12:31 TP0] Decode batch, #running-req: 1, #token: 4711, accept len: 5.62, throughput: 121.7"

    async def pour(seconds: float) -> None:
        for number in range(int(seconds * 20)):
            feed.logs[1] = b""
            feed.log(1, *(f"{line} {number} {n}" for n in range(LINES // 20)))
            await asyncio.sleep(1 / 20)

    await pour(5.0)
    size, began = _resident(), time.process_time()
    await pour(SECONDS)
    spent = time.process_time() - began
    return {"log_cpu_percent": spent / SECONDS * 100, "log_growth_mib": (_resident() - size) / 2**20}


async def pivots(_feed: FakeFeed, _app: ConsoleApp) -> dict[str, float]:
    """2,000 measured cells as tables, from the run's state to lines: the first time, and with other axes."""
    state = ct200.many_cells(20, 4, 25).state
    known = baselines(state)
    first: list[float] = []
    again: list[float] = []
    for _ in range(3):
        source = Source(state, known, MeasuredCells())
        for choice in (Choice(), Choice(Axis.METHOD, Axis.SIZE), Choice(Axis.POINT, Axis.METHOD)):
            began = time.process_time()
            shown = pivot(state, choice)
            table_lines(shown, source, Look(figure=1, width=WIDTH))
            legend(shown, source.measured, simulated=False)
            (again if choice != Choice() else first).append((time.process_time() - began) * 1000)
    return {"pivot_cpu_ms": min(first), "pivot_again_cpu_ms": statistics.median(again)}


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return float(pages * resource.getpagesize())


SCENES: dict[str, Callable[[FakeFeed, Any], Awaitable[dict[str, float]]]] = {
    "idle": idle,
    "row": row,
    "changes": changes,
    "events": events,
    "log": log,
    "pivots": pivots,
}


async def child(scene: str, answer: Path) -> None:
    """Play one scene in the terminal that this process has."""
    feed = run_with()
    app: App[int] = TableApp() if scene == "row" else ConsoleApp(feed)

    async def play() -> None:
        await asyncio.sleep(_READY)
        answer.with_suffix(".began").touch()
        figures = await SCENES[scene](feed, app)
        answer.with_suffix(".ended").touch()
        answer.write_text(json.dumps(figures), encoding="ascii")
        app.exit(0)

    playing = asyncio.create_task(play())
    await app.run_async()
    await playing


def parent(scene: str, folder: Path) -> dict[str, float]:
    """Start a scene in a pty and count what comes out while it is measured."""
    answer = folder / f"{scene}.json"
    began = time.monotonic()
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.environ.update(TERM="xterm-256color", LC_ALL="C.UTF-8")
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        arguments = [sys.executable, "-m", "tests.benchmarks.bench_screens", "--scene", scene, str(answer)]
        os.execv(sys.executable, arguments)
    figures: dict[str, float] = {}
    counted, seen = 0, b""
    while True:
        try:
            data = os.read(master, 65536) if select.select([master], [], [], 60)[0] else b""
        except OSError:
            break
        if not data:
            break
        if "first_paint_seconds" not in figures:
            seen += data
            if b"running" in seen:
                figures["first_paint_seconds"] = time.monotonic() - began
        if answer.with_suffix(".began").exists() and not answer.with_suffix(".ended").exists():
            counted += len(data)
    os.close(master)
    os.waitpid(pid, 0)
    figures["bytes_per_second"] = counted / SECONDS
    told: dict[str, float] = json.loads(answer.read_text(encoding="ascii"))
    return figures | told


def main() -> None:
    """Print all figures with their budgets."""
    if "--scene" in sys.argv:
        name, path = sys.argv[sys.argv.index("--scene") + 1 :][:2]
        asyncio.run(child(name, Path(path)))
        return
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for scene in SCENES:
            figures = parent(scene, Path(folder))
            rate = figures.pop("bytes_per_second")
            found[f"{scene}_bytes_per_second"] = rate
            if scene in {"changes", "row"}:
                found["change_bytes" if scene == "changes" else "row_bytes"] = rate / CHANGES
            paint = figures.pop("first_paint_seconds", float("inf"))
            found["first_paint_seconds"] = min(paint, found.get("first_paint_seconds", paint))
            found |= figures
    over = [name for name, most in BUDGETS.items() if found[name] > most]
    answer = {name: round(value, 3) for name, value in found.items()}
    sys.stdout.write(json.dumps({"figures": answer, "budgets": BUDGETS, "over": over}, indent=2) + "\n")


if __name__ == "__main__":
    main()
