"""`ddconsole status`: one line from what is on disk, with its age. It asks nobody and imports next to nothing."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddconsole.commands.copy_summary import copy_summary
from ddconsole.commands.places import runs_folder
from ddconsole.core.ages import as_of_copy

_OLD = 15.0
"""Seconds after which a summary of an active run is old: its writer renews it every two."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of a run here, and since when (wall seconds of this machine)."""

    folder: Path
    content: dict[str, Any]
    written: float
    of_copy: bool


def main(options: argparse.Namespace) -> int:
    """Print the newest run's summary; status 1 when there is none."""
    newest = _newest(runs_folder())
    if newest is None:
        print("ddconsole: no run" if options.short else "no run here yet: ddconsole demo")
        return 1
    age = max(0.0, time.time() - newest.written)
    if options.json:
        print(json.dumps({**newest.content, "written": newest.written, "age": age, "copy": newest.of_copy}))
        return 0
    line = short_line(newest.content, age, of_copy=newest.of_copy)
    if not options.short and sys.stdout.isatty():
        line += f"\n{newest.folder}"
    print(line)
    return 0


def _newest(folder: Path) -> Summary | None:
    try:
        folders = [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except FileNotFoundError:
        return None
    moved = [(at, path) for path in folders for at in _last_moved(path)]
    for _, path in sorted(moved, reverse=True):
        with suppress(OSError, ValueError):
            return _summary(path)
    return None


def _last_moved(folder: Path) -> Iterator[float]:
    """When a run last moved on. The agent writes `status.json`; a copy of another host's run has none."""
    for name in ("status.json", "journal.jsonl"):
        with suppress(OSError):
            yield (folder / name).stat().st_mtime
            return


def _summary(folder: Path) -> Summary:
    """What is known of one run.

    Raises:
        OSError: it cannot be read.
        ValueError: its journal says nothing, or its summary is none.
    """
    if not (folder / "journal.jsonl").stat().st_size:
        raise ValueError("the journal is empty")
    status = folder / "status.json"
    if status.exists():
        return Summary(folder, json.loads(status.read_bytes()), status.stat().st_mtime, of_copy=False)
    heard = (folder / "journal.jsonl").stat().st_mtime
    with suppress(OSError, ValueError, KeyError, TypeError):
        heard = float(json.loads((folder / "mirror.json").read_bytes())["heard"])
    return Summary(folder, copy_summary(folder), heard, of_copy=True)


def short_line(content: dict[str, Any], age: float, *, of_copy: bool = False) -> str:
    """`demo-1130 ▶ 12/26 ✗1 81 tok/s ~4m left`, with the age when it is old, and always where it is of a copy."""
    counts = content.get("counts", {})
    done, cells = counts.get("done", 0), content.get("cells", 0)
    glyph = {"running": "▶", "paused": "⏸", "draining": "▷", "stopping": "■", "ended": "■"}[content["phase"]]
    if content["phase"] == "ended" and content.get("outcome") == "complete":
        glyph = "✓"
    parts = [content["run"], glyph, f"{done}/{cells}"]
    if counts.get("failed") or counts.get("blocked"):
        parts.append(f"✗{counts.get('failed', 0) + counts.get('blocked', 0)}")
    if content.get("output_rate") and content["phase"] == "running":
        parts.append(f"{content['output_rate']:.0f} tok/s")
    if content["phase"] == "ended":
        parts.append(content.get("outcome", ""))
    elif content.get("left") is not None:
        parts.append(f"~{_duration(content['left'])} left")
    if content.get("simulated"):
        parts.append("SIMULATED")
    if content.get("debts"):
        parts.append(f"debt: {', '.join(content['debts'])}")
    if content.get("trouble"):
        parts.append(f"! {content['trouble']}")
    return " ".join([*parts, *_how_old(content, age, of_copy=of_copy)])


def _how_old(content: dict[str, Any], age: float, *, of_copy: bool) -> list[str]:
    if of_copy:
        return [f"({as_of_copy(age)})"]
    return [f"(known {_duration(age)} ago)"] if age > _OLD and content["phase"] != "ended" else []


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f}s"
    if seconds < 5400:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.1f}h"
