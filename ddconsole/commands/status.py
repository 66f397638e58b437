"""`ddconsole status`: one line from what is on disk, with its age. It asks nobody and imports next to nothing."""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from ddconsole.commands.places import runs_folder

_OLD = 15.0
"""Seconds after which a summary of an active run is old: its writer renews it every two."""


def main(options: argparse.Namespace) -> int:
    """Print the newest run's summary; status 1 when there is none."""
    newest = _newest(runs_folder())
    if newest is None:
        print("ddconsole: no run" if options.short else "no run here yet: ddconsole demo")
        return 1
    path, content = newest
    if options.json:
        print(json.dumps({**content, "written": path.stat().st_mtime, "age": time.time() - path.stat().st_mtime}))
        return 0
    line = short_line(content, time.time() - path.stat().st_mtime)
    if not options.short and sys.stdout.isatty():
        line += f"\n{path.parent}"
    print(line)
    return 0


def _newest(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    try:
        found = [Path(entry.path) / "status.json" for entry in os.scandir(folder) if entry.is_dir()]
    except FileNotFoundError:
        return None
    for path in sorted((one for one in found if one.exists()), key=lambda one: one.stat().st_mtime, reverse=True):
        try:
            return path, json.loads(path.read_bytes())
        except (OSError, ValueError):
            continue
    return None


def short_line(content: dict[str, Any], age: float) -> str:
    """`demo-1130 ▶ 12/26 ✗1 81 tok/s ~4m left`, with the age when it is old."""
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
    if age > _OLD and content["phase"] != "ended":
        parts.append(f"(known {_duration(age)} ago)")
    return " ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f}s"
    if seconds < 5400:
        return f"{seconds / 60:.0f}m"
    return f"{seconds / 3600:.1f}h"
