"""`live.json`: what a runner shows while it works. Replaced often, never synced, may be lost."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ddconsole.core.clock import Clock
from ddconsole.core.records import CellProgress
from ddconsole.core.wire import DecodeFigures
from ddconsole.runner.durable import write_whole

_INTERVAL = 0.25
"""Real seconds between two replacements at least."""


class LiveFile:
    """Progress of the cell and the engine's decode figures, for watching."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._content: dict[str, Any] = {}
        self._written = 0.0

    def progress(self, progress: CellProgress | None) -> None:
        """Show how far the running cell is; None when no cell runs."""
        self._content["progress"] = asdict(progress) if progress else None
        self._write(at_once=progress is None)

    def decode(self, figures: DecodeFigures) -> None:
        """Show the engine's own figures."""
        self._content["decode"] = asdict(figures)
        self._write(at_once=False)

    def _write(self, *, at_once: bool) -> None:
        now = self._clock.monotonic()
        if not at_once and self._clock.real_seconds(now - self._written) < _INTERVAL and self._written:
            return
        self._written = now
        # Not worth stopping a measurement for: a full disk shows itself where results are written.
        with contextlib.suppress(OSError):
            write_whole(self._path, json.dumps(self._content).encode(), durable=False)
