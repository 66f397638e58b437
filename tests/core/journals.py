"""Small runs for tests: deployments, cells and entries as an agent would write them."""

from collections.abc import Iterable

from ddconsole.core import events as ev
from ddconsole.core.fold import fold
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import Cell, Deployment, Placement, Sampling, WorkloadPoint, to_json


def deployment(name: str = "d01", method: str = "ar", tensor_parallel: int = 1) -> Deployment:
    return Deployment(name, method, tensor_parallel, size=4, args={}, env={}, placement=Placement())


def point(concurrency: int = 1, max_tokens: int = 64) -> WorkloadPoint:
    return WorkloadPoint(
        workload="generate",
        kind="single",
        prompts="five",
        concurrency=concurrency,
        max_tokens=max_tokens,
        repetitions=1,
        requests=5,
        sampling=Sampling(),
    )


def cell(name: str = "c001", deployment_id: str = "d01", rounds: int = 1, **changes: int) -> Cell:
    return Cell(name, deployment_id, point(**changes), rounds=rounds)


def entries(events: Iterable[ev.Event], first_seq: int = 1, at: float = 1000.0) -> list[ev.Entry]:
    return [ev.Entry(1, first_seq + n, at + n, event) for n, event in enumerate(events)]


def created(retries: int = 2) -> ev.RunCreated:
    return ev.RunCreated("r", "p", "0" * 64, "local", "ar", False, "0.1", "llamacpp", {"retries": retries})


def small_run(*events: ev.Event, rounds: int = 1, retries: int = 2) -> RunState:
    """Two deployments with two cells each, then `events`."""
    start: list[ev.Event] = [
        created(retries),
        ev.EpochBegan("created", "boot", 1, "0.1"),
        ev.DeploymentAdded(to_json(deployment("d01", "ar"))),
        ev.DeploymentAdded(to_json(deployment("d02", "ngram"))),
        *(ev.CellAdded(to_json(cell(f"c00{n}", "d01" if n < 3 else "d02", rounds))) for n in (1, 2, 3, 4)),
    ]
    return fold(entries([*start, *events]))


def launched(number: int = 1, deployment_id: str = "d01") -> tuple[ev.Event, ...]:
    """A launch up to ready."""
    return (
        ev.LaunchPlanned(number, deployment_id, 1),
        ev.LaunchStarting(number, "process started", pid=10, port=3000),
        ev.LaunchReady(number, start_seconds=2.0),
    )


def started(name: str, attempt: int = 1, launch: int = 1, round_: int = 1) -> ev.AttemptStarted:
    return ev.AttemptStarted(name, attempt, launch, round_, 0)


def done(name: str, attempt: int = 1, launch: int = 1) -> ev.AttemptDone:
    return ev.AttemptDone(name, attempt, launch, "ab" * 32, "f", {"output_rate": 50.0})


def failed(name: str, attempt: int = 1, retry: str = "change", cause: str = "CUDA-OOM") -> ev.AttemptFailed:
    return ev.AttemptFailed(name, attempt, 1, cause, "out of memory", retry=retry)
