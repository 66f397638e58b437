"""The console over a made-up run, to look at: `python -m tests.screens.preview [midway|pause|lost|simulated|defect]`.

With `--png FOLDER` it writes pictures (SVG) of all screens at several sizes instead of opening.
"""

import argparse
import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

from ddconsole.core import events as ev
from ddconsole.core.records import CellProgress
from ddconsole.link.client import LinkPhase
from screens.app import ConsoleApp, run_console
from tests.screens import ct200
from tests.screens.fake_feed import FakeFeed

SIZES = ((80, 24), (120, 40), (160, 45), (200, 50))


async def preflight() -> Sequence[dict[str, object]]:
    """The made-up findings, after a moment."""
    await asyncio.sleep(0.3)
    return ct200.FINDINGS


async def live(feed: FakeFeed) -> None:
    """Let the running cell go on for ever, with a log and host samples."""
    second = 0
    while True:
        await asyncio.sleep(0.5)
        second += 1
        feed.clock += 0.5
        if feed.link.phase is LinkPhase.UP:
            feed.set_link(LinkPhase.UP)
        rate = 121 + random.uniform(-6, 6)
        done = min(25, 12 + second // 8)
        feed.set_progress(CellProgress("c029", 1, done, 25, 0, 1, rate, feed.clock), rate, acceptance=5.6)
        feed.log(5, f"[2026-04-12 04:12:{second % 60:02} TP0] Decode batch, accept len: 5.62, throughput: {rate:.2f}")
        if second % 2 == 0:
            feed.set_host(ct200.machine(feed.clock, second))


async def broken(feed: FakeFeed) -> None:
    """Let the console meet what cannot be, as a defect of ours would."""
    await asyncio.sleep(2)
    feed.link = None  # type: ignore[assignment]  # that is the defect
    feed.changed("link")


def made(scene: str) -> FakeFeed:
    """A feed for a scene."""
    feed = ct200.midway(simulated=scene == "simulated")
    if scene == "pause":
        because = "the same cause ended ddtree-b8 TP1 and ddtree-b32 TP1: CUDA out of memory while capturing graphs"
        feed.emit(ev.RunPaused("ddconsole", because))
    if scene == "lost":
        feed.set_link(LinkPhase.RECONNECTING, "ct200: the connection was reset", silent=14)
        feed.clock += 14
    return feed


async def pictures(folder: Path, scene: str) -> None:
    """SVGs of every screen at every size."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, height in SIZES:
        app = ConsoleApp(made(scene), preflight)
        async with app.run_test(size=(width, height)) as pilot:
            for name, keys in SCENES.items():
                for key in keys:
                    await pilot.press(key)
                    await pilot.pause(0.05)
                await pilot.pause(0.9)
                if scene != "lost":
                    app.session.feed.link = made(scene).link
                app.save_screenshot(f"{scene}-{width}x{height}-{name}.svg", str(folder))


SCENES: dict[str, tuple[str, ...]] = {
    "1-running": (),
    "2-failed": ("full_stop",),
    "3-blocked": ("full_stop",),
    "4-help": ("question_mark",),
    "5-edit": ("escape", "E"),
    "6-skip": ("escape", "minus"),
    "7-details": ("n", "i"),
    "8-logs": ("escape", "2"),
    "9-host": ("3",),
    "a-preflight": ("4",),
    "b-results": ("5",),
    "c-marked": ("1", "slash", *"failed", "enter", "V"),
}


def main() -> None:
    """Open it, or write pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scene", nargs="?", default="midway")
    parser.add_argument("--png", type=Path)
    options = parser.parse_args()
    if options.png is not None:
        asyncio.run(pictures(options.png, options.scene))
        return

    async def opened() -> int:
        feed = made(options.scene)
        going = asyncio.create_task(broken(feed) if options.scene == "defect" else live(feed))
        code = await run_console(feed, preflight=preflight)
        going.cancel()
        return code

    raise SystemExit(asyncio.run(opened()))


if __name__ == "__main__":
    main()
