"""One line's worth of a run, as JSON: what `status.json` holds, and what is made of a copy's journal."""

from typing import Any

from ddconsole.core.duration import remaining_of_run
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import cell_label


def status_of(state: RunState, run: str) -> dict[str, Any]:
    """The summary of a run, as JSON."""
    counts = {phase.value: number for phase, number in state.counts().items()}
    running = state.running_cell()
    label = cell_label(running.cell, state.deployments[running.cell.deployment]) if running else ""
    return {
        "run": run,
        "host": state.created.host if state.created else "",
        "phase": state.phase.value,
        "outcome": state.outcome,
        "paused_because": state.paused_because,
        "counts": counts,
        "cells": len(state.cells),
        "running": label,
        "began": state.began,
        "left": remaining_of_run(state),
        "debts": [debt.what for debt in state.debts.values()],
        "simulated": bool(state.created and state.created.simulated),
    }
