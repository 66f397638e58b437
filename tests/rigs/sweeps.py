"""Small real sweeps for tests: a submission for the tree server, and waiting for what the journal says."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ddconsole.agent.service import Service
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Cell, Deployment, Placement, Sampling, WorkloadPoint, to_json
from ddconsole.core.wire import Submission
from ddconsole.load.prompts import WorkloadTexts
from ddconsole.load.task import Prompt
from ddconsole.runner.belonging import members_of
from ddconsole.runner.identity import listening_pids
from ddconsole.runner.run_directory import RunDirectory

TREE_SERVER = Path(__file__).with_name("tree_server.py")
TEXTS = WorkloadTexts(
    prompts={"two": (Prompt("first", "Count to ten."), Prompt("second", "Count to twenty."))}, scripts={}
)


def deployment(name: str, method: str = "ar", **flags: Any) -> Deployment:
    """One server of the tree server with extra flags."""
    args = {flag.replace("_", "-"): value for flag, value in flags.items()}
    return Deployment(name, method, 1, size=2, args=args, env={}, placement=Placement(), context_tokens=1024)


def point(max_tokens: int = 24, concurrency: int = 1, stall_timeout: float = 20.0) -> WorkloadPoint:
    """Two requests."""
    return WorkloadPoint(
        workload="generate",
        kind="single" if concurrency == 1 else "closed-loop",
        prompts="two",
        concurrency=concurrency,
        max_tokens=max_tokens,
        repetitions=1,
        requests=2,
        sampling=Sampling(),
        request_timeout=60.0,
        stall_timeout=stall_timeout,
    )


def submission(deployments: list[Deployment], cells: list[Cell], run: str = "test-run", **protocol: Any) -> Submission:
    """As a console would send it."""
    return Submission(
        run=run,
        plan_text="name: test\n",
        plan_name="test",
        plan_sha256="0" * 64,
        host="local",
        baseline="ar",
        engine={"kind": "llamacpp", "command": [sys.executable, str(TREE_SERVER)], "env": {}, "cwd": None},
        model={"path": "/nowhere/model.gguf", "draft": None, "source": None},
        protocol={
            "retries": 2,
            "ready_timeout": 30.0,
            "stall_timeout": 20.0,
            "request_timeout": 60.0,
            "warmup": 0,
            "flush_cache": True,
            "failure_limit": 0.01,
            "canary": True,
            "preflight": False,
            **protocol,
        },
        deployments=tuple(to_json(one) for one in deployments),
        cells=tuple(to_json(one) for one in cells),
        skipped=(),
        unfit=(),
        texts=TEXTS.to_json(),
        version="test",
    )


def cells(deployment_id: str, number: int, first: int = 1, **changes: Any) -> list[Cell]:
    """Cells `c001`.. of one deployment."""
    return [Cell(f"c{first + n:03d}", deployment_id, point(**changes)) for n in range(number)]


async def until(service: Service, run: str, done: Callable[[RunState], bool], seconds: float = 60.0) -> RunState:
    """Wait until the journal says so; a test fails with the state's phases when it does not come."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        journal = service.journal(run)
        assert journal is not None
        if done(journal.state):
            return journal.state
        assert loop.time() < deadline, phases(journal.state)
        await asyncio.sleep(0.05)


def ended(state: RunState) -> bool:
    """The run is over and nothing lives."""
    return state.phase.value == "ended" and state.live_launch() is None


def phases(state: RunState) -> Mapping[str, Any]:
    """For messages: what every cell and launch is."""
    return {
        "run": (state.phase.value, state.paused_because, state.outcome),
        "cells": {name: row.state for name, row in state.cells.items()},
        "launches": {number: row.state for number, row in state.launches.items()},
        "notices": [one.text for one in state.warnings],
    }


def directory(service: Service, run: str = "test-run") -> RunDirectory:
    """The run's folder."""
    found = service.store.directory(run)
    assert found is not None
    return found


def survivors(run: RunDirectory, state: RunState) -> list[object]:
    """Processes, and listeners on ports, that launches left."""
    left: list[object] = []
    for number, launch in state.launches.items():
        folder = run.launch(number)
        left += list(members_of(folder))
        if launch.port is not None:
            left += list(listening_pids(launch.port) or ())
    return left
