"""Runs that differ in what a test says, and in the noise of their launches, which no two runs share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ddconsole.core import events as ev
from ddconsole.core.records import RequestRecord
from ddconsole.core.sweep import Cell, Deployment, EngineArgument, Placement, Sampling, Speculative, WorkloadPoint
from tests.report.sample_runs import SampleRun, begin, end_launch, measure, records_of, start_launch

METHODS = ("ar", "dflash", "ddtree-b15")


@dataclass(frozen=True)
class Recipe:
    """What a run is made of."""

    run: str = "first"
    args: Mapping[str, EngineArgument] = field(default_factory=lambda: {"attention-backend": "triton"})
    effective: Mapping[str, Any] = field(default_factory=dict)
    driver: str | None = "580.95.05"
    slower: Mapping[str, float] = field(default_factory=dict)
    """By method, the factor on its rates."""
    launches: int = 3
    methods: tuple[str, ...] = METHODS
    sizes: tuple[int, ...] = (1, 4)
    noise: int = 0
    """Another number, other noise of the launches."""
    failing: tuple[str, ...] = ()
    """Cells whose attempts fail."""
    skipped: tuple[str, ...] = ()
    """Cells that the plan leaves out."""
    late: tuple[str, ...] = ()
    """Cells that the deadline leaves out."""
    never: tuple[str, ...] = ()
    """Cells that are not begun."""
    size: int = 8
    """Requests that each server is sized for."""
    lengths: tuple[int, ...] = (256, 1024)
    simulated: bool = False
    model: str = "9b1d" * 16
    plan_sha256: str = "5e" * 32
    prompts: str = "five"


def points(prompts: str, lengths: tuple[int, ...] = (256, 1024)) -> list[WorkloadPoint]:
    """Two lengths, two concurrencies."""
    found = [WorkloadPoint("generate", "single", prompts, 1, length, 2, 5, Sampling()) for length in lengths]
    loops = [WorkloadPoint("concurrency", "closed-loop", prompts, c, 512, 1, 5 * c, Sampling()) for c in (2, 4)]
    return found + loops


def made(recipe: Recipe) -> SampleRun:
    """The run."""
    sample = SampleRun()
    deployments = [
        _deployment(f"d{number:02}", method, size, recipe)
        for number, (method, size) in enumerate(((m, s) for m in recipe.methods for s in recipe.sizes), start=1)
    ]
    places = [(deployment, point) for deployment in deployments for point in points(recipe.prompts, recipe.lengths)]
    cells = [
        Cell(f"c{number:03}", deployment.id, point, rounds=recipe.launches)
        for number, (deployment, point) in enumerate(places, start=1)
    ]
    begin(
        sample,
        deployments,
        cells,
        run=recipe.run,
        plan_name="sweep",
        plan_sha256=recipe.plan_sha256,
        host="ct200",
        engine="sglang",
        simulated=recipe.simulated,
        protocol={"launches": recipe.launches, "retries": 2, "failure_limit": 0.01},
    )
    for names, by, because in ((recipe.skipped, "plan", "too slow"), (recipe.late, "deadline", "no time is left")):
        if names:
            sample.tell(ev.CellsSkipped(names, by, because))
    launch = 0
    for round_ in range(1, recipe.launches + 1):
        for deployment in deployments:
            launch += 1
            start_launch(sample, launch, deployment, round_)
            for cell in (one for one in cells if one.deployment == deployment.id):
                _attempt(sample, cell, deployment, launch, round_, recipe)
            end_launch(sample, launch)
    sample.tell(ev.RunEnded("complete"))
    return sample


def _deployment(name: str, method: str, size: int, recipe: Recipe) -> Deployment:
    gpus = {1: (7,), 4: (4, 5, 6, 7)}[size]
    speculative = {
        "dflash": Speculative("dflash", block_size=16),
        "ddtree-b15": Speculative("ddtree", budget=15, block_size=16),
    }.get(method)
    return Deployment(name, method, size, recipe.size, dict(recipe.args), {}, Placement(gpus, "numa"), speculative)


def _attempt(sample: SampleRun, cell: Cell, deployment: Deployment, launch: int, round_: int, recipe: Recipe) -> None:
    if cell.id in (*recipe.skipped, *recipe.late, *recipe.never):
        return
    if cell.id in recipe.failing:
        if round_ == 1:
            failed = ev.AttemptFailed(cell.id, 1, launch, "OOM", "CUDA out of memory", retry="never")
            sample.tell(ev.AttemptStarted(cell.id, 1, launch, 1, 0), failed)
        return
    records = records_of(deployment, cell.point, launch + 1000 * recipe.noise)
    factor = recipe.slower.get(deployment.method, 1.0)
    parts = {
        "driver": recipe.driver,
        "model": {"path": "/dev/shm/m", "files": recipe.model},
        "build": {"version": "0.5.16", "commit": "3f1c2ab"},
    }
    effective = {
        "attention_backend": dict(recipe.args).get("attention-backend", "flashinfer"),
        "max_running_requests": deployment.size,
        "port": 30000 + launch,
        "max_total_num_tokens": 400_000 + 7 * launch + recipe.noise,
        **recipe.effective,
    }
    measure(
        sample,
        cell,
        deployment,
        round_,
        launch,
        round_,
        requests=tuple(slowed(records, factor)),
        fingerprint_parts=parts,
        effective=effective,
    )


def slowed(records: Iterable[RequestRecord], factor: float) -> Iterable[RequestRecord]:
    """The same requests with their rates times `factor`; the first token comes when it came."""
    for record in records:
        if factor == 1.0 or record.first_text is None or record.last_text is None:
            yield record
            continue
        last = record.first_text + (record.last_text - record.first_text) / factor
        yield replace(record, last_text=last, end=last + 0.001)
