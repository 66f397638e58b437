"""The driver's slow answers from a process of their own, as far as they came before the deadline."""

import json
import sys
from collections.abc import Iterable
from typing import Any

from ddconsole.core.inventory import GpuInventory, Inventory, gpu_inventory_from_json
from ddconsole.preflight.machine import Machine, Ran
from ddconsole.probe.monitor import probe_command, probe_environment

DEADLINE = 30.0
"""Seconds. Without persistence mode the driver takes up to three for each GPU; a driver that hangs, 45 a call."""


async def take_inventory(machine: Machine, deadline: float = DEADLINE) -> Inventory:
    """Ask the driver. Never raises for its sake."""
    try:
        ran = await machine.run(probe_command("--inventory"), deadline, {"PYTHONPATH": _python_path()})
    except OSError as problem:
        return Inventory(problem=f"{sys.executable} could not be started: {problem}")
    return inventory_of(ran, deadline)


def inventory_of(ran: Ran, deadline: float) -> Inventory:
    """What the process said before it ended or was given up."""
    gpus: list[GpuInventory] = []
    asking, at, problem, done = "", 0.0, "", False
    for line in _objects(ran.out.splitlines()):
        at = float(line.get("at", at))
        asking = str(line.get("asking", asking))
        problem = str(line.get("problem") or problem)
        done = done or bool(line.get("done"))
        if "gpu" in line:
            gpus.append(gpu_inventory_from_json(line["gpu"]))
    silent = asking if ran.exit_code is None else ""
    if not (done or problem or silent):
        last = ran.err.strip().splitlines()[-1:]
        problem = f"it ended with {ran.exit_code}: {''.join(last) or 'no output'}"
    return Inventory(tuple(gpus), problem, silent, round(deadline - at, 1) if silent else 0.0, round(ran.seconds, 2))


def _objects(lines: Iterable[str]) -> Iterable[dict[str, Any]]:
    """The lines that are JSON objects: the last one may be cut, and a driver may print."""
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _python_path() -> str:
    return probe_environment()["PYTHONPATH"]
