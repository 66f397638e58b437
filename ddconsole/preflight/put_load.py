"""Put work on the plan's GPUs that nobody uses, and watch the machine meanwhile."""

import asyncio
import contextlib
import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from ddconsole.core.host_state import GpuState, HostState
from ddconsole.preflight import load_child
from ddconsole.preflight.checks.gpu_memory import ALLOWED_BYTES
from ddconsole.preflight.facts import Facts
from ddconsole.preflight.load_report import LoadReport, load_report
from ddconsole.probe.monitor import HostMonitor, ProbeProblem, one_sample

_SECONDS = 3.0
"""Of each part on each GPU."""
_START = 120.0
"""Seconds for torch to be imported and contexts to be made."""
_INTERVAL = 0.25
_BUSY_PERCENT = 5
_MOST_PAIRS = 28
"""All of eight GPUs."""
_GROUP = 100.0
"""Seconds for the all-reduce of one group: a little more than its own deadline."""


async def put_load(facts: Facts) -> LoadReport:
    """Work on idle GPUs only; one that somebody uses is left alone. Never raises for the work's sake."""
    needed = facts.needed()
    idle = [gpu for gpu in needed if is_idle(gpu)]
    busy = tuple(gpu.index for gpu in needed if not is_idle(gpu))
    command = facts.plan.engine_command
    if not idle:
        return LoadReport(busy=busy, problem="no needed GPU is idle" if needed else "the plan uses no GPU")
    if "-m" not in command or command.index("-m") == 0:
        return LoadReport(busy=busy, problem="the engine's command names no interpreter whose torch could be used")
    gpus = [gpu.index for gpu in idle]
    placed = facts.plan.groups
    pairs = [
        (a, b) for a, b in combinations(range(len(gpus)), 2) if any({gpus[a], gpus[b]} <= set(one) for one in placed)
    ][:_MOST_PAIRS]
    groups = [[gpus.index(one) for one in group] for group in placed if set(group) <= set(gpus)]
    order = {"gpus": list(range(len(gpus))), "pairs": pairs, "groups": groups, "seconds": _SECONDS}
    argv = (*command[: command.index("-m")], str(Path(load_child.__file__)), json.dumps(order))
    environment = {
        **facts.plan.engine_env,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(str(index) for index in gpus),
    }
    deadline = _START + 4 * _SECONDS * len(gpus) + len(pairs) + _GROUP * len(groups)
    samples: list[HostState] = []
    async with HostMonitor(interval=_INTERVAL) as monitor:
        watching = asyncio.create_task(_watch(monitor, samples))
        try:
            ran = await facts.machine.run(argv, deadline, environment)
        except OSError as problem:
            return LoadReport(busy=busy, problem=f"{argv[0]}: {problem.strerror or problem}")
        finally:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
    report = load_report(ran.out, ran.exit_code is not None, gpus, busy, samples, round(ran.seconds, 1))
    if report.problem and ran.exit_code:
        last = ran.err.strip().splitlines()[-1:]
        return replace(report, problem=f"{report.problem}: {''.join(last)[-200:]}")
    return replace(report, after=await _afterwards())


async def _afterwards() -> HostState | None:
    try:
        return await one_sample()
    except ProbeProblem:
        return None


def is_idle(gpu: GpuState) -> bool:
    """Whether nobody uses it, as far as anybody can tell: what is not known is not idle."""
    free = gpu.memory_used.value is not None and gpu.memory_used.value < ALLOWED_BYTES
    rests = gpu.utilisation.value is not None and gpu.utilisation.value <= _BUSY_PERCENT
    return free and rests and gpu.processes.value == ()


async def _watch(monitor: HostMonitor, samples: list[HostState]) -> None:
    async for state in monitor.samples():
        samples.extend([state] if state is not None else [])
