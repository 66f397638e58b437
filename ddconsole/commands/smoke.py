"""`ddconsole smoke`: start the plan's baseline and one server of each kind of speculation for 16 tokens, then stop."""

import argparse
import asyncio
import sys
import time

from ddconsole.commands.connection import EXPECTED, UsageProblem, agent_of, fail, say_what_ssh_leaves_out
from ddconsole.commands.run import Begun, choice_of, read_sweep, send
from ddconsole.commands.staying import Stay, stay_on
from ddconsole.core.plan_problem import PlanError
from ddconsole.load.prompts import WorkloadTextError
from ddconsole.planfile.smoke import smoke_submission
from ddconsole.planfile.submission import PlannedSweep


def main(options: argparse.Namespace) -> int:
    """Try each way of decoding once; the exit status: 0 all gave tokens, 1 some did not, 2 it could not begin."""
    try:
        return asyncio.run(_smoke(options, read_sweep(options.plan)))
    except (*EXPECTED, PlanError, WorkloadTextError) as problem:
        return fail(problem)


async def _smoke(options: argparse.Namespace, sweep: PlannedSweep) -> int:
    host = options.host or sweep.plan.host
    run = f"{sweep.plan.name}-smoke-{time.strftime('%m%d-%H%M%S')}"
    begun = Begun(smoke_submission(sweep, run, host), host, choice_of(sweep), None)
    say_what_ssh_leaves_out(host)
    async with agent_of(host, choice=begun.choice, say=True) as client:
        active = (await client.hello()).run
        if active is not None:
            raise UsageProblem(f"run {active} is active on {host}: its own launches are the test")
        sent = await send(client, begun)
        names = ", ".join(f"{one['method']} TP{one['tensor_parallel']}" for one in begun.submission.deployments)
        print(f"run {sent} on {host}: 16 tokens each of {names}", file=sys.stderr)
        return await stay_on(client, sent, Stay(headless=True, submission=begun.submission, begun=True))
