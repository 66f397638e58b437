"""A smoke test of a plan: one deployment for each way of decoding, 16 tokens of each, then stop."""

from dataclasses import replace

from ddconsole.core.sweep import Cell, Deployment, Sampling, WorkloadPoint, to_json
from ddconsole.core.wire import Submission
from ddconsole.planfile.submission import PlannedSweep, submission_of

_TOKENS = 16
_CANARY = "canary"
"""The name of a short prompt that every runner has."""
_POINT = WorkloadPoint(
    workload="smoke", kind="single", prompts=_CANARY, concurrency=1, max_tokens=_TOKENS, repetitions=1, requests=1,
    sampling=Sampling(),
)  # fmt: skip


def smoke_deployments(sweep: PlannedSweep) -> tuple[Deployment, ...]:
    """The baseline's first deployment, and the first one of each kind of speculation; the smallest ones come first."""
    found: dict[str, Deployment] = {}
    measured = {cell.deployment for cell in sweep.expansion.measured}
    fitting = [one for one in sweep.expansion.deployments if one.id in measured]
    by_size = sorted(fitting, key=lambda one: one.tensor_parallel)
    for one in sorted(by_size, key=lambda one: one.method != sweep.plan.baseline):
        found.setdefault(one.speculative.kind if one.speculative else "plain", one)
    return tuple(found.values())


def smoke_submission(sweep: PlannedSweep, run: str, host: str) -> Submission:
    """What the agent needs to try each way once: the plan's servers, units and checks, and nothing that is repeated."""
    whole = submission_of(sweep, run, host)
    deployments = smoke_deployments(sweep)
    cells = tuple(Cell(f"c{number:03}", one.id, _POINT, rounds=1) for number, one in enumerate(deployments, start=1))
    protocol = {
        **whole.protocol,
        "launches": 1,
        "warmup": 0,
        "prune": None,
        "repeat": None,
        "retries": 0,
        "until": None,
    }
    return replace(
        whole,
        deployments=tuple(to_json(one) for one in deployments),
        cells=tuple(to_json(one) for one in cells),
        skipped=(),
        unfit=(),
        protocol=protocol,
    )
