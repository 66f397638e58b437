"""`ddconsole runs`: the runs of a host, newest first."""

import argparse
import asyncio
import dataclasses
import time
from dataclasses import dataclass

from ddconsole.agent.run_store import summary_of
from ddconsole.commands.connection import EXPECTED, agent_of, fail, host_of, printed, read_journal, run_folders
from ddconsole.commands.known_run import copy_age
from ddconsole.core.ages import as_of_copy
from ddconsole.core.states import RunPhase
from ddconsole.core.wire import RunSummary


@dataclass(frozen=True, slots=True)
class Listed:
    """A run, where it runs, and how old that knowledge is where it comes from a copy."""

    summary: RunSummary
    host: str
    age: float | None = None
    """Seconds; None where it is of now."""
    trouble: str = ""
    """What is wrong with its journal."""

    @property
    def unknown(self) -> bool:
        """Whether the journal says nothing: neither when it was begun nor what became of it."""
        return not self.summary.plan_name


def main(options: argparse.Namespace) -> int:
    """Print one line a run: of a host by its agent, of this machine from what is on disk."""
    try:
        found = asyncio.run(_of_host(options.host)) if options.host else _on_disk()
    except EXPECTED as problem:
        return fail(problem)
    found.sort(key=lambda one: one.unknown)
    if options.json:
        printed([_as_json(one) for one in found])
        return 0
    for listed in found:
        print(_line(listed))
    if not found:
        print("no run yet: ddconsole demo")
    return 0


def _as_json(listed: Listed) -> dict[str, object]:
    nothing = {"phase": None, "began": None, "at": None} if listed.unknown else {}
    about = {"host": listed.host, "age": listed.age, "trouble": listed.trouble}
    return {**dataclasses.asdict(listed.summary), **nothing, **about}


def _line(listed: Listed) -> str:
    one = listed.summary
    if listed.unknown:
        return f"{one.run}  {listed.trouble}"
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.began))
    counts = ", ".join(f"{number} {phase}" for phase, number in one.counts.items())
    mark = "  SIMULATED" if one.simulated else ""
    copy = "" if listed.age is None else f"  {listed.host}, {as_of_copy(listed.age)}"
    trouble = f"  {listed.trouble}" if listed.trouble else ""
    return f"{one.run}  {one.phase} {one.outcome}  begun {began}  {counts}{mark}{copy}{trouble}"


def _on_disk() -> list[Listed]:
    summaries = []
    for folder in run_folders():
        state, trouble = read_journal(folder)
        summary = summary_of(state, folder.name, active=state.phase is not RunPhase.ENDED)
        summaries.append(Listed(summary, host_of(folder, state), copy_age(folder, state), trouble))
    return summaries


async def _of_host(host: str) -> list[Listed]:
    async with agent_of(host, say=True) as client:
        runs = await client.runs()
        return [Listed(one, host, trouble="" if one.plan_name else "journal empty or damaged") for one in runs]
