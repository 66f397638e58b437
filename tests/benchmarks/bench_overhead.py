"""Sweep overhead on a real engine: wall time that is neither server start nor measuring. Prints JSON.

With a run directory as argument its journal is read; without, a small sweep on llama.cpp's server is made first.
"""

import asyncio
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from ddconsole.agent.service import Service
from ddconsole.core.clock import SystemClock
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.core.run_state import RunState

sys.path.insert(0, str(Path(__file__).parents[1] / "rigs"))
from sweeps import cells, deployment, ended, submission, until

MODELS = Path(__file__).parents[1] / "fixtures" / "models"


def overhead(state: RunState) -> dict[str, float]:
    """Seconds of a finished run: in all, starting servers, measuring, and the rest as a share."""
    total = state.at - state.began
    starting = sum(launch.start_seconds or 0.0 for launch in state.launches.values())
    attempts = [attempt for row in state.cells.values() for attempt in row.attempts]
    measuring = sum((one.ended or one.started) - one.started for one in attempts)
    rest = total - starting - measuring
    return {
        "total_s": round(total, 2),
        "starting_s": round(starting, 2),
        "measuring_s": round(measuring, 2),
        "rest_s": round(rest, 2),
        "rest_percent": round(100 * rest / total, 2),
        "rest_s_per_launch": round(rest / len(state.launches), 2),
    }


async def _sweep(folder: Path) -> RunState:
    service = Service(folder / "runs", SystemClock())
    await service.start()
    short = cells("d01", 6, max_tokens=900)
    long = [replace(one, point=replace(one.point, repetitions=30)) for one in short]
    order = submission([deployment("d01", threads=1)], long)
    order = replace(
        order,
        engine={**order.engine, "command": [sys.executable, "-m", "ddconsole.engines.xllamacpp_server"]},
        model={"path": str(MODELS / "tinypy.gguf"), "draft": None, "source": None},
    )
    service.submit(order)
    state = await until(service, "test-run", ended, 300)
    await service.stop()
    return state


def main() -> None:
    """Measure and print."""
    if len(sys.argv) > 1:
        entries, _ = read_lines((Path(sys.argv[1]) / "journal.jsonl").read_bytes())
        state = fold(entries)
    else:
        with tempfile.TemporaryDirectory() as name:
            state = asyncio.run(_sweep(Path(name)))
    print(json.dumps({"sweep_overhead": overhead(state), "limit_percent": 2}))


if __name__ == "__main__":
    main()
