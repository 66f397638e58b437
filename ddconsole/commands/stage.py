"""`ddconsole stage`: bring the plan's model and draft to where it wants them; it goes on without us."""

import argparse
import asyncio
import sys
import time

from ddconsole.commands.connection import EXPECTED, UsageProblem, agent_of, fail
from ddconsole.commands.run import choice_of, read_sweep
from ddconsole.core.plan_problem import PlanError
from ddconsole.core.visible_text import visible_line
from ddconsole.core.wire import StageStatus
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.load.prompts import WorkloadTextError
from ddconsole.planfile.submission import PlannedSweep, submission_of

_LOOK = 1.0
_GIB = 1024**3


def main(options: argparse.Namespace) -> int:
    """Ask, stage, and say how far it is; the exit status: 0 done, 2 not."""
    try:
        return asyncio.run(_stage(options, read_sweep(options.plan, options.host)))
    except KeyboardInterrupt:
        print("\nit goes on at the host: `ddconsole stage PLAN` looks again, `--stop` ends it", file=sys.stderr)
        return 130
    except (*EXPECTED, PlanError, WorkloadTextError) as problem:
        return fail(problem)


async def _stage(options: argparse.Namespace, sweep: PlannedSweep) -> int:
    host = options.host or sweep.plan.host
    async with agent_of(host, choice=choice_of(sweep), say=True) as client:
        if options.stop:
            print(stage_line(await client.stop_staging(), 0.0))
            return 0
        status = await client.staged()
        if status.phase not in ("looking", "copying", "checking"):
            _confirm(options, sweep, host)
            submission = submission_of(sweep, f"{sweep.plan.name}-stage", host)
            status = await client.stage(submission, forget=options.forget)
        return await _watch(client, status)


def _confirm(options: argparse.Namespace, sweep: PlannedSweep, host: str) -> None:
    """It writes gigabytes into memory or onto a disk: that is asked about.

    Raises:
        UsageProblem: nobody agreed, or there is nothing to copy from.
    """
    model = sweep.plan.model
    paths = ", ".join(path for path in (model.path, model.draft) if path)
    if not model.source:
        raise UsageProblem("the plan does not say from where to copy: write model: {source: FOLDER}, or a command")
    source = model.source if isinstance(model.source, str) else " ".join(model.source)
    print(f"{host}: copy {paths} from {source}", file=sys.stderr)
    if options.yes:
        return
    if not sys.stdin.isatty():
        raise UsageProblem("nobody is there to agree; --yes agrees beforehand")
    if input("begin? [y/N] ").strip().lower() not in {"y", "yes"}:
        raise UsageProblem("nothing was begun")


async def _watch(client: HttpAgentClient, status: StageStatus) -> int:
    began = time.monotonic()
    first = status.done
    while status.phase in ("looking", "copying", "checking"):
        rate = (status.done - first) / max(time.monotonic() - began, 0.1)
        _show(stage_line(status, rate))
        await asyncio.sleep(_LOOK)
        status = await client.staged()
    _show(stage_line(status, 0.0), end="\n")
    return 0 if status.phase == "done" else 2


def _show(text: str, end: str = "") -> None:
    """One line that is written over, or one line each where nobody looks."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end=end, flush=True, file=sys.stderr)
    else:
        print(text, file=sys.stderr)


def stage_line(status: StageStatus, rate: float) -> str:
    """How far it is, in one line; `rate` in bytes a second, 0 for not told."""
    if status.phase == "done":
        return f"{status.what}: staged, whole, its hashes are kept"
    if status.problem:
        return visible_line(f"{status.phase}: {status.problem} → {status.do}")
    where = f" {status.file}" if status.file else ""
    if status.phase == "looking" and not status.done:
        return visible_line(f"looking at {status.what or 'what is there'}{where}")
    of = f" of {status.total / _GIB:.1f}" if status.total else ""
    fast = f", {rate / 1e6:.0f} MB/s" if rate > 0 else ""
    left = f", ~{(status.total - status.done) / rate:.0f} s left" if rate > 0 and status.total > status.done else ""
    return visible_line(f"{status.phase} {status.what}{where}: {status.done / _GIB:.1f}{of} GiB{fast}{left}")
