"""A run in which every mark of a report occurs."""

from dataclasses import replace

from ddconsole.core import events as ev
from ddconsole.core.records import RequestOutcome, TokenSource
from ddconsole.core.sweep import Cell, Deployment, EngineArgument, Placement, Speculative
from tests.report.sample_runs import SampleRun, begin, end_launch, measure, records_of, single, start_launch

_TWICE = 23
"""The place of a cell that is to be measured on two launches."""


def run_with_every_mark(*, simulated: bool = False) -> SampleRun:
    """Two methods of which one has a cell in each state; with fifteen requests p50 is certified and p90 is not."""
    sample = SampleRun()
    args: dict[str, EngineArgument] = {"ctx-size": 4096}
    deployments = [
        Deployment("d01", "ar", 1, 4, args, {}, Placement()),
        Deployment("d02", "draft", 1, 4, args, {}, Placement(), Speculative("draft", draft_tokens=8)),
    ]
    points = [single(length, 3) for length in range(64, 64 + 16 * 16, 16)]
    cells = [
        Cell(f"c{number * len(points) + place + 1:03}", deployment.id, point)
        for number, deployment in enumerate(deployments)
        for place, point in enumerate(points)
    ][:-1]
    # One is done on the first of two launches.
    cells[_TWICE] = replace(cells[_TWICE], rounds=2)
    begin(sample, deployments, cells, simulated=simulated)
    own = [cell for cell in cells if cell.deployment == "d02"]
    start_launch(sample, 1, deployments[0], 1)
    for cell in cells:
        if cell.deployment == "d01":
            measure(sample, cell, deployments[0], 1, 1, 1)
    end_launch(sample, 1)
    start_launch(sample, 2, deployments[1], 1)
    _end_in_each_state(sample, own, deployments[1])
    sample.tell(ev.RunEnded("stopped"))
    return sample


def _end_in_each_state(sample: SampleRun, cells: list[Cell], deployment: Deployment) -> None:
    names = [cell.id for cell in cells]
    sample.tell(
        ev.CellsSkipped((names[0],), "plan", "left out by the plan"),
        ev.CellsUnfit((names[1],), "recurrent state alone needs 74.6 GiB, 35.1 GiB are left"),
        ev.CellsPruned((names[2],), "its first cell gave 20 tok/s, the best 40: below 0.8"),
        ev.AttemptStarted(names[3], 1, 2, 1, 0),
        ev.AttemptFailed(names[3], 1, 2, "REQUEST", "100% of {kv_cache} in use & no_room"),
        ev.AttemptStarted(names[4], 1, 2, 1, 0),
        ev.AttemptFailed(names[4], 1, 2, "OOM", "CUDA out of memory"),
        ev.AttemptStarted(names[5], 1, 2, 1, 0),
        ev.CellStopRequested(names[5], 1, "ann@desk"),
        ev.AttemptStopped(names[5], 1, 2, "ann@desk"),
    )
    measure(sample, cells[6], deployment, 1, 2, 1, flags=("GPU 0 throttled for 4 s (power)",))
    measure(sample, cells[7], deployment, 1, 2, 1)
    some = list(records_of(deployment, cells[8].point, 2))
    estimated = tuple(replace(one, token_source=TokenSource.ESTIMATED, acceptance=None) for one in some)
    measure(sample, cells[8], deployment, 1, 2, 1, requests=estimated)
    # One of two hundred failed: within the limit of one in a hundred, so the rest counts.
    many = [replace(one, index=200 + number) for number, one in enumerate(records_of(deployment, single(208, 40), 2))]
    many[0] = replace(many[0], outcome=RequestOutcome.FAILED)
    measure(sample, cells[9], deployment, 1, 2, 1, requests=tuple(many))
    other = {"context": {"driver": "570.1", "model": None}, "build": {"version": "b7000"}}
    measure(sample, cells[10], deployment, 1, 2, 1, fingerprint_parts=other)
