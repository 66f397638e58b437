"""`status.json`: the summary that `ddconsole status --short` shows without asking anybody."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any

from ddconsole.agent.journal import Journal
from ddconsole.agent.telemetry import Telemetry
from ddconsole.core import states as st
from ddconsole.core.clock import Clock
from ddconsole.core.run_summary import status_of
from ddconsole.runner.durable import write_whole
from ddconsole.runner.run_directory import RunDirectory

_INTERVAL = 2.0
"""Real seconds between two looks."""


class StatusFile:
    """Keeps the status file of a conducted run. Its own age tells whether anybody still writes it."""

    def __init__(self, run: RunDirectory, clock: Clock) -> None:
        self._run = run
        self._clock = clock

    async def keep(self, journal: Journal, telemetry: Telemetry, trouble: Callable[[], str]) -> None:
        """Write it whenever something changed, and every few seconds while the run is active."""
        written: dict[str, Any] = {}
        while True:
            content = status_of(journal.state, self._run.path.name)
            rate = telemetry.progress.output_rate if telemetry.progress else None
            content["output_rate"] = rate
            content["trouble"] = trouble()
            if content != written or journal.state.phase is not st.RunPhase.ENDED:
                self._write({**content, "at": self._clock.now()})
                written = content
            await journal.changed(_INTERVAL)
            await asyncio.sleep(0.2)

    def _write(self, content: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):
            write_whole(self._run.status, json.dumps(content).encode(), durable=False)
