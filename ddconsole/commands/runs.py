"""`ddconsole runs`: the runs of a host, newest first."""

import argparse
import asyncio
import dataclasses
import time

from ddconsole.commands.connection import EXPECTED, agent_of, fail, printed, run_folders, state_on_disk
from ddconsole.core.wire import RunSummary


def main(options: argparse.Namespace) -> int:
    """Print one line a run: of a host by its agent, of this machine from what is on disk."""
    try:
        found = asyncio.run(_of_host(options.host)) if options.host else _on_disk()
    except EXPECTED as problem:
        return fail(problem)
    if options.json:
        printed([dataclasses.asdict(one) for one in found])
        return 0
    for one in found:
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.began))
        counts = ", ".join(f"{number} {phase}" for phase, number in one.counts.items())
        mark = "  SIMULATED" if one.simulated else ""
        print(f"{one.run}  {one.phase} {one.outcome}  begun {began}  {counts}{mark}")
    if not found:
        print("no run yet: ddconsole demo")
    return 0


def _on_disk() -> list[RunSummary]:
    summaries = []
    for folder in run_folders():
        state = state_on_disk(folder)
        summaries.append(
            RunSummary(
                run=folder.name,
                plan_name=state.created.plan_name if state.created else "",
                phase=state.phase,
                outcome=state.outcome,
                began=state.began,
                at=state.at,
                counts={phase.value: number for phase, number in state.counts().items()},
                simulated=bool(state.created and state.created.simulated),
                active=state.phase.value != "ended",
            )
        )
    return summaries


async def _of_host(host: str) -> list[RunSummary]:
    async with agent_of(host, say=True) as client:
        return await client.runs()
