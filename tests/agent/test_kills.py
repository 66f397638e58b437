"""Kill -9 of every process, in every phase: nothing finished is lost or counted twice, nothing is left running."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kept_agent import is_over, kept_agent, on_disk, parent_of
from nothing_lost import assert_nothing_lost
from sweeps import cells, deployment, submission
from waiting import until

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Speculative
from ddconsole.core.wire import Submission
from ddconsole.link.client import AgentError
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.runner.identity import descendants
from ddconsole.runner.run_directory import RunDirectory

MODELS = Path(__file__).parents[1] / "fixtures" / "models"
RUN = "killed-run"
TARGETS = ("agent", "keeper and agent", "runner", "load", "server", "server child", "agent and runner")
PHASES = ("loading", "ready", "measuring", "writing", "stopping")


@dataclass(frozen=True)
class Trial:
    """One kill."""

    engine: str
    target: str
    phase: str
    delay: float


def trials(number: int, seed: int) -> list[Trial]:
    """Every pair of target and phase once, on both engines in turn, then random ones."""
    chooser = random.Random(seed)
    pairs = [(target, phase) for phase in PHASES for target in TARGETS]
    chosen = pairs + [chooser.choice(pairs) for _ in range(max(number - len(pairs), 0))]
    engines = ("tree", "llamacpp", "slow")
    return [
        Trial(engines[n % 3], target, phase, chooser.uniform(0, 0.6))
        for n, (target, phase) in enumerate(chosen[:number])
    ]


def order_for(engine: str) -> Submission:
    if engine == "llamacpp":
        drafting = replace(deployment("d02", "draft"), speculative=Speculative(kind="draft", draft_tokens=4))
        plan = [deployment("d01"), drafting]
        order = submission(plan, cells("d01", 3, max_tokens=400) + cells("d02", 2, 4, max_tokens=400), run=RUN)
        command = [sys.executable, "-m", "ddconsole.engines.xllamacpp_server"]
        model = {"path": str(MODELS / "tinypy.gguf"), "draft": str(MODELS / "tinypy-draft.gguf"), "source": None}
        return replace(order, engine={**order.engine, "command": command}, model=model)
    load = 20.0 if engine == "slow" else 1.0
    plan = [deployment("d01", load_seconds=load, pace=0.01), deployment("d02", "other", load_seconds=1.0)]
    return submission(plan, cells("d01", 3) + cells("d02", 2, 4), run=RUN)


def runner_pid(run: RunDirectory, state: RunState) -> int:
    live = state.live_launch()
    assert live is not None
    return int(json.loads(run.launch(live.number).runner.read_bytes())["pid"])


def load_pid(runner: int) -> int:
    for one in descendants(runner):
        if b"ddconsole.load" in Path(f"/proc/{one.pid}/cmdline").read_bytes():
            return one.pid
    raise ProcessLookupError


async def kill(target: str, client: HttpAgentClient, run: RunDirectory) -> None:
    """Kill it, if it is there now: in some phases some are not."""
    state = on_disk(run)
    live = state.live_launch()
    pids: list[int] = []
    if "agent" in target:
        pids.append((await client.hello()).pid)
    if "keeper" in target:
        pids.insert(0, parent_of(pids[0]))
    try:
        if "runner" in target:
            pids.append(runner_pid(run, state))
        if target == "load":
            pids.append(load_pid(runner_pid(run, state)))
        if target.startswith("server") and live is not None and live.pid is not None:
            children = [one.pid for one in descendants(live.pid)]
            pids += children[:1] if target == "server child" else [live.pid]
    except (ProcessLookupError, FileNotFoundError, AssertionError):
        pass
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def reached(phase: str, run: RunDirectory) -> bool:
    state = on_disk(run)
    live = state.live_launch()
    if phase == "measuring":
        return state.running_cell() is not None
    if phase == "writing":
        return any((run.path / "cells").glob("*/*.json"))
    wanted = {"loading": st.LaunchPhase.STARTING, "ready": st.LaunchPhase.READY, "stopping": st.LaunchPhase.STOPPING}
    return live is not None and live.state.phase is wanted[phase]


async def survive(trial: Trial, folder: Path) -> None:
    """Run a sweep, kill once, and see that it ends as if nothing had happened."""
    run = RunDirectory(folder / "runs" / RUN)
    async with kept_agent(folder) as client:
        await client.submit(order_for(trial.engine))
        await until(lambda: reached(trial.phase, run), 60, trial.phase)
        if trial.phase != "writing":
            await asyncio.sleep(trial.delay)
        await kill(trial.target, client, run)
        async with asyncio.timeout(150):
            while not is_over(on_disk(run)):
                assert on_disk(run).phase is not st.RunPhase.PAUSED, on_disk(run).paused_because
                # What a console does: it reaches the agent again, and starts it when nobody is there.
                with contextlib.suppress(AgentError):
                    await client.hello()
                await asyncio.sleep(0.2)
    assert_nothing_lost(run)


CI_TRIALS = [
    Trial("tree", "agent", "measuring", 0.1),
    Trial("llamacpp", "runner", "measuring", 0.1),
    Trial("tree", "load", "measuring", 0.2),
    Trial("llamacpp", "server", "measuring", 0.1),
    Trial("tree", "keeper and agent", "loading", 0.2),
    Trial("tree", "agent and runner", "writing", 0.0),
    Trial("tree", "runner", "stopping", 0.0),
]


@pytest.mark.engine
@pytest.mark.parametrize("trial", CI_TRIALS, ids=lambda one: f"{one.engine}-{one.target}-{one.phase}".replace(" ", "-"))
async def test_a_kill_costs_nothing_that_was_finished(trial: Trial, tmp_path: Path) -> None:
    await survive(trial, tmp_path)


@pytest.mark.trial
@pytest.mark.engine
@pytest.mark.timeout(300)
@pytest.mark.parametrize("trial", trials(60, seed=20261130), ids=lambda one: f"{one}")
async def test_sixty_kills(trial: Trial, tmp_path: Path) -> None:
    await survive(trial, tmp_path)
