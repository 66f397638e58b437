"""Pictures for the README, made from a run: `python -m tests.screens.readme_pictures RUN_DIRECTORY FOLDER`.

A part of the journal is enough: the pictures show the run as it was then, read from disk.
"""

import argparse
import asyncio
import shutil
import tempfile
from pathlib import Path

from ddconsole.link.offline_feed import OfflineRunFeed
from screens.app import ConsoleApp

PICTURES = (("sweep", "1", 80, 24), ("sweep", "1", 160, 45), ("host", "3", 120, 40), ("results", "5", 160, 45))


async def picture(run: Path, folder: Path, name: str, key: str, size: tuple[int, int], moves: int) -> None:
    """One screen at one size."""
    feed = OfflineRunFeed(run)
    app = ConsoleApp(feed, None, None)
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        await pilot.press(key)
        for _ in range(moves if name == "sweep" else 0):
            await pilot.press("down")
        await pilot.pause(0.3)
        (folder / f"{name}-{size[0]}x{size[1]}.svg").write_text(app.export_screenshot())
    await feed.close()


def main() -> None:
    """Make all pictures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=0, help="only so many lines of the journal")
    parser.add_argument("--moves", type=int, default=0, help="how far the cursor goes down")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        run = Path(name) / options.run.name
        run.mkdir()
        lines = (options.run / "journal.jsonl").read_bytes().splitlines(keepends=True)
        (run / "journal.jsonl").write_bytes(b"".join(lines[: options.lines or None]))
        with (options.run / "telemetry.jsonl").open("rb") as samples:
            (run / "telemetry.jsonl").write_bytes(b"".join(samples.readline() for _ in range(40)))
        shutil.copy(options.run / "submission.json", run)
        for screen, key, width, height in PICTURES:
            asyncio.run(picture(run, options.folder, screen, key, (width, height), options.moves))


if __name__ == "__main__":
    main()
