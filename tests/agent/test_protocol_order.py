"""Order, drift and warm-up on a real server: what the protocol asks for is what the journal says."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeps import cells, deployment, directory, ended, submission, until

from ddconsole.agent.service import Service
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.clock import SystemClock
from ddconsole.core.drift import baseline_drift
from ddconsole.core.run_state import RunState
from ddconsole.core.wire import Command


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    one = Service(tmp_path / "runs", SystemClock())
    await one.start()
    yield one
    if one.active_run is not None:
        one.command(directory(one), Command("teardown", "stop-run", "test"))
        await until(one, "test-run", ended)
    await one.stop()


def order_of(state: RunState) -> list[str]:
    """`d01: c001 c002`, a launch each, in the order in which they were measured."""
    measured: dict[int, list[tuple[float, str]]] = {number: [] for number in state.launches}
    for name, row in state.cells.items():
        for attempt in row.attempts:
            measured[attempt.launch].append((attempt.started, name))
    return [
        f"{launch.deployment}: {' '.join(name for _, name in sorted(measured[number]))}"
        for number, launch in state.launches.items()
    ]


@pytest.mark.engine
async def test_rounds_go_forwards_and_backwards_and_the_baseline_comes_again(service: Service) -> None:
    sweep = [replace(one, rounds=2) for one in cells("d01", 1) + cells("d02", 2, 2)]
    deployments = [deployment("d01", pace=0.005), deployment("d02", "fast", pace=0.003)]
    service.submit(submission(deployments, sweep, order="abba", baseline_every=3))
    state = await until(service, "test-run", ended, 120.0)
    assert order_of(state) == ["d01: c001", "d02: c002 c003", "d02: c003 c002", "d01: c001"]
    (drift,) = baseline_drift(state)
    assert len(drift.rates) == 2


@pytest.mark.engine
async def test_the_server_is_warmed_up_until_two_passes_agree_and_the_passes_are_kept(service: Service) -> None:
    protocol: dict[str, Any] = {"warmup": 1, "warmup_until": {"agree": 0.9, "most": 4}}
    service.submit(submission([deployment("d01", pace=0.005)], cells("d01", 1), **protocol))
    state = await until(service, "test-run", ended, 60.0)
    (attempt,) = state.cells["c001"].attempts
    told = attempt.figures["warm_up"]
    assert told["agreed"] is True
    assert len(told["rates"]) >= 2
    kept = attempt_from_json(json.loads(directory(service).attempt("c001", 1).read_bytes()))
    assert kept.warm_up == told
    assert len(kept.requests) == 2, "what warms up is no result"
