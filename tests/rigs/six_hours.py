"""What a sweep leaves in six hours when nobody looks: a journal, and a hundred megabytes of logs and telemetry."""

import json
import random

from fake_agent import FakeAgent

from ddconsole.core.events import (
    AttemptDone,
    AttemptStarted,
    CellAdded,
    Event,
    LaunchPlanned,
    LaunchReady,
    LaunchStarting,
)
from ddconsole.core.sweep import Cell, Sampling, WorkloadPoint, to_json

LOG = "launches/1/server.log"
CELLS = 720
"""One in thirty seconds: several times what a sweep of real models does."""


def six_hours(agent: FakeAgent, megabytes: float = 100.0) -> None:
    """Give the agent that much log and telemetry, in equal parts, and the journal of six busy hours."""
    made = random.Random(6)
    agent.append(*_events())
    half = int(megabytes * 5e5)
    line = "[2026-01-01 04:%02d:%02d] Decode batch, #running-req: %d, #token: %d, accept len: %.2f, gen: %.2f token/s\n"
    lines = [
        line % (made.randrange(60), made.randrange(60), made.randrange(9), made.randrange(99999), made.random(), n)
        for n in range(5000)
    ]
    log = "".join(lines).encode()
    agent.logs[1] = (log * (half // len(log) + 1))[:half]
    samples = b"".join(_sample(made, n) for n in range(500))
    agent.files["telemetry.jsonl"] = (samples * (half // len(samples) + 1))[:half]
    agent.growing = {LOG, "telemetry.jsonl"}


def _events() -> list[Event]:
    point = WorkloadPoint("generate", "single", "five", 1, 64, 1, 5, Sampling())
    names = [f"c{number:04d}" for number in range(1, CELLS + 1)]
    events: list[Event] = [CellAdded(to_json(Cell(name, "d01", point))) for name in names]
    events += [LaunchPlanned(1, "d01", 1), LaunchStarting(1, "process started", pid=1, port=2), LaunchReady(1)]
    figures = {name: {"p50": 121.71, "low": 119.2, "high": 123.4, "n": 5} for name in ("output_rate", "ttft", "tpot")}
    for name in names:
        events += [AttemptStarted(name, 1, 1, 1, 0), AttemptDone(name, 1, 1, "", "f" * 64, figures)]
    return events


def _sample(made: random.Random, number: int) -> bytes:
    gpus = [{"uuid": f"GPU-{gpu}", "power": made.gauss(310, 9), "clock": made.gauss(1980, 20)} for gpu in range(8)]
    return json.dumps({"at": 1.7e9 + 2 * number, "gpus": gpus}).encode() + b"\n"
