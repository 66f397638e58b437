"""Two runs in memory, made of real journal events and attempt files: what the report's tests export.

`small_run` is a llama.cpp sweep on one machine with everything that can happen to a cell. `ct200_run` is a simulated
sweep of eight methods on three tensor-parallel sizes. Every rate comes from one formula:

    rate = BASE[TP] x GAIN[method] x (1 - 0.02 log2(tokens / 256)) / (1 + 0.2 log2(concurrency))
           x (1 + launch noise) x (1 + repetition noise) x (1 + prompt effect) x (1 + request noise)

with noise drawn uniformly from a generator that is seeded by the request's own place.
"""

import hashlib
import json
import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddconsole.core import events as ev
from ddconsole.core.attempt_file import AttemptFile, attempt_to_json
from ddconsole.core.figures import summarise
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import encode_line
from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.core.run_state import RunState
from ddconsole.core.sweep import (
    Cell,
    Deployment,
    EngineArgument,
    Placement,
    Sampling,
    Speculative,
    WorkloadPoint,
    to_json,
)

BEGAN = 1_790_000_000.0
BASE = {1: 28.4, 4: 61.0, 8: 57.5}
GAIN = {
    "ar": 1.0,
    "ngram": 1.31,
    "dflash": 3.525,
    "ddtree-b8": 3.21,
    "ddtree-b12": 3.86,
    "ddtree-b15": 4.373,
    "ddtree-b16": 4.29,
    "ddtree-b32": 2.84,
    "ddtree-b64": 2.02,
}
ACCEPTANCE = {
    "ar": 1.0,
    "ngram": 1.62,
    "dflash": 4.81,
    "ddtree-b8": 4.32,
    "ddtree-b12": 5.05,
    "ddtree-b15": 5.62,
    "ddtree-b16": 5.66,
    "ddtree-b32": 5.9,
    "ddtree-b64": 6.02,
}
PROMPTS = ("essay", "code", "maths", "summary", "dialogue")


@dataclass
class SampleRun:
    """A journal with its attempt files."""

    entries: list[ev.Entry] = field(default_factory=list)
    attempts: dict[tuple[str, int], AttemptFile] = field(default_factory=dict)
    at: float = BEGAN

    def tell(self, *events: ev.Event, seconds: float = 1.0) -> None:
        """Append events, `seconds` apart."""
        for event in events:
            self.at += seconds
            self.entries.append(ev.Entry(epoch=1, seq=len(self.entries) + 1, at=self.at, event=event))

    @property
    def state(self) -> RunState:
        """The fold of the journal; no event may be unknown or impossible."""
        state = fold(self.entries)
        assert state.unknown_events == 0
        assert state.impossible_events == 0
        return state

    def write(self, folder: Path) -> Path:
        """As a run directory."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "journal.jsonl").write_bytes(b"".join(map(encode_line, self.entries)))
        for (cell, attempt), file in self.attempts.items():
            path = folder / "cells" / cell / f"{attempt}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file_bytes(file))
        return folder


def file_bytes(file: AttemptFile) -> bytes:
    """An attempt's file as the runner writes it."""
    return json.dumps(attempt_to_json(file), separators=(",", ":")).encode() + b"\n"


def noise(scale: float, *place: object) -> float:
    """1 plus uniform noise of +-`scale`, the same for the same place."""
    return 1 + random.Random(repr(place)).uniform(-scale, scale)


def request_rate(method: str, parallel: int, point: WorkloadPoint, launch: int, repetition: int, prompt: str) -> float:
    """The documented formula, without the request's own noise."""
    rate = BASE[parallel] * GAIN.get(method, 2.0)
    rate *= 1 - 0.02 * math.log2(point.max_tokens / 256)
    rate /= 1 + 0.2 * math.log2(point.concurrency)
    rate *= noise(0.012, "launch", method, parallel, launch)
    rate *= noise(0.006, "repetition", method, parallel, launch, repetition)
    return rate * noise(0.05, "prompt", prompt, point.max_tokens)


def records_of(deployment: Deployment, point: WorkloadPoint, launch: int) -> tuple[RequestRecord, ...]:
    """All requests of one attempt, in order of sending."""
    records: list[RequestRecord] = []
    free = [100.0] * point.concurrency
    for repetition in range(point.repetitions):
        for number in range(point.requests):
            conversation = point.kind == "conversation"
            prompt = f"{point.prompts}/turn-{number + 1}" if conversation else PROMPTS[number % len(PROMPTS)]
            place = (deployment.method, deployment.tensor_parallel, point.label, launch, repetition, number)
            method, parallel = deployment.method, deployment.tensor_parallel
            rate = request_rate(method, parallel, point, launch, repetition, prompt) * noise(0.004, "request", *place)
            stream = free.index(min(free))
            sent = free[stream] + 0.002
            first = sent + (0.05 + 0.012 * point.concurrency) * noise(0.1, "first", *place)
            last = first + (point.max_tokens - 1) / rate
            free[stream] = last + 0.001
            steps = max(1, round(point.max_tokens / (ACCEPTANCE.get(method, 3.0) * noise(0.03, "steps", *place))))
            baseline = method == "ar"
            records.append(
                RequestRecord(
                    index=len(records),
                    repetition=repetition,
                    prompt=prompt,
                    turn=number + 1 if conversation else 0,
                    stream=stream,
                    sent=sent,
                    first_text=first,
                    last_text=last,
                    end=last + 0.001,
                    chunks=point.max_tokens if baseline else steps,
                    chunk_gaps_us=(int(1e6 * (last - first) / (point.max_tokens if baseline else steps)),) * 4,
                    prompt_tokens=40,
                    output_tokens=point.max_tokens,
                    token_source=TokenSource.USAGE,
                    cached_tokens=0,
                    reasoning_tokens=None,
                    finish_reason="length",
                    outcome=RequestOutcome.OK,
                    error=None,
                    text_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
                    acceptance=None if baseline else Acceptance(point.max_tokens, steps, None, None, "request"),
                )
            )
    return tuple(records)


def attempt_file(
    sample: SampleRun, cell: Cell, deployment: Deployment, attempt: int, launch: int, round_: int, **changes: Any
) -> AttemptFile:
    """An attempt's file as a runner would have written it; `changes` replace fields."""
    created = sample.entries[0].event
    assert isinstance(created, ev.RunCreated)
    records = changes.pop("requests", None) or records_of(deployment, cell.point, launch)
    summary = summarise(records)
    tokens = summary.output_tokens
    acceptance = summary.acceptance or Acceptance(tokens, tokens, None, None, "baseline")
    llama = created.engine == "llamacpp"
    build = {"version": "b6800"} if llama else {"version": "0.5.16", "commit": "3f1c2ab"}
    model = {"name": "SmolLM2-135M-Instruct" if llama else "Qwen3.6-27B", "config_sha256": "9b1d" * 16}
    effective: dict[str, Any] = {"max_running_requests": deployment.size, "disable_overlap": deployment.method != "ar"}
    if deployment.speculative and deployment.speculative.budget is not None:
        effective["speculative_ddtree_budget"] = deployment.speculative.budget
        if deployment.speculative.budget <= 15:  # a chain of block 16, as the build's log tells
            effective["branches"] = False
    values: dict[str, Any] = {
        "run": created.run,
        "cell": to_json(cell),
        "deployment": to_json(deployment),
        "attempt": attempt,
        "launch": launch,
        "round": round_,
        "outcome": "done",
        "started_at": sample.at,
        "ended_at": sample.at + summary.wall,
        "simulated": created.simulated,
        "fingerprint": "f" * 64,
        "fingerprint_parts": {"context": {"driver": None if llama else "580.95.05", "model": model}, "build": build},
        "figures": to_json(summary) | {"acceptance": to_json(acceptance)},
        "requests": records,
        "build": build,
        "effective": effective,
        "load": {"cpu_seconds": 1.0, "wall_seconds": summary.wall, "cancelled": False},
    }
    return AttemptFile(**{**values, **changes})


def start_launch(sample: SampleRun, number: int, deployment: Deployment, round_: int, **effective: Any) -> None:
    """Bring a server up, which tells these arguments."""
    sample.tell(
        ev.LaunchPlanned(number, deployment.id, round_),
        ev.LaunchStarting(number, "load weights", 0.5),
        ev.LaunchReady(number, effective=effective, start_seconds=40.0),
    )


def end_launch(sample: SampleRun, number: int) -> None:
    """Take a server down."""
    sample.tell(ev.LaunchStopping(number, "asked", sample.at + 20), ev.LaunchGone(number))


def measure(
    sample: SampleRun, cell: Cell, deployment: Deployment, attempt: int, launch: int, round_: int, **changes: Any
) -> None:
    """A done attempt: its file and its events."""
    file = attempt_file(sample, cell, deployment, attempt, launch, round_, **changes)
    sample.attempts[cell.id, attempt] = file
    sample.tell(ev.AttemptStarted(cell.id, attempt, launch, round_, cell.revision))
    sha256 = hashlib.sha256(file_bytes(file)).hexdigest()
    done = ev.AttemptDone(cell.id, attempt, launch, sha256, file.fingerprint, file.figures, file.flags)
    sample.tell(done, seconds=float(file.figures["wall"]))


def begin(sample: SampleRun, deployments: Iterable[Deployment], cells: Iterable[Cell], **created: Any) -> None:
    """The first events of a run."""
    values: dict[str, Any] = {
        "run": "20260921-demo",
        "plan_name": "demo",
        "plan_sha256": "5e" * 32,
        "host": "local",
        "baseline": "ar",
        "simulated": False,
        "version": "0.1.0",
        "engine": "llamacpp",
        "protocol": {"launches": 1, "warmup": "auto", "flush_cache": True, "retries": 2, "failure_limit": 0.01},
    }
    sample.tell(ev.RunCreated(**{**values, **created}), ev.EpochBegan("created", "boot-1", 100, "0.1.0"), seconds=0.0)
    sample.tell(*(ev.DeploymentAdded(to_json(one)) for one in deployments), seconds=0.0)
    sample.tell(*(ev.CellAdded(to_json(one)) for one in cells), seconds=0.0)


def single(tokens: int, repetitions: int = 5) -> WorkloadPoint:
    """Five prompts, one after the other."""
    return WorkloadPoint("generate", "single", "five", 1, tokens, repetitions, 5, Sampling())


def closed_loop(concurrency: int, tokens: int = 512, repetitions: int = 2) -> WorkloadPoint:
    """So many clients at once."""
    return WorkloadPoint(
        "concurrency", "closed-loop", "five", concurrency, tokens, repetitions, 5 * concurrency, Sampling()
    )


def conversation(script: str, workload: str, tokens: int = 1024, repetitions: int = 2) -> WorkloadPoint:
    """Five turns."""
    return WorkloadPoint(workload, "conversation", script, 1, tokens, repetitions, 5, Sampling())


def small_run() -> SampleRun:
    """Baseline and n-gram speculation: 14 cells, of which one failed, one was skipped, one stopped and then retried."""
    sample = SampleRun()
    deployments = [
        Deployment("d01", "ar", 1, 4, {"ctx-size": 4096}, {}, Placement()),
        Deployment("d02", "ngram", 1, 4, {"ctx-size": 4096}, {}, Placement(), Speculative("ngram", draft_tokens=8)),
    ]
    points = [single(64, 3), single(128, 3), single(256, 3)]
    points += [closed_loop(number, 64) for number in (1, 2, 4)]
    points += [conversation("cli-calculator", "calculator", 128)]
    cells = [
        Cell(f"c{number * len(points) + place + 1:03}", deployment.id, point)
        for number, deployment in enumerate(deployments)
        for place, point in enumerate(points)
    ]
    begin(sample, deployments, cells)
    sample.tell(ev.CellsSkipped(("c010",), "plan", "256 tokens overflow the context of n-gram drafts"))
    for launch, deployment in enumerate(deployments, start=1):
        start_launch(sample, launch, deployment, 1)
        for cell in cells:
            if cell.deployment == deployment.id and cell.id != "c010":
                _measure_small(sample, cell, deployment, launch)
        end_launch(sample, launch)
    sample.tell(ev.RunEnded("complete"))
    return sample


def _measure_small(sample: SampleRun, cell: Cell, deployment: Deployment, launch: int) -> None:
    if cell.id == "c013":
        sample.tell(
            ev.AttemptStarted(cell.id, 1, launch, 1, 0),
            ev.AttemptFailed(
                cell.id,
                1,
                launch,
                "REQUEST",
                "3 of 40 requests failed: slot_update: 100% of {kv_cache} in use & no_room",
            ),
        )
        return
    if cell.id == "c012":
        sample.tell(
            ev.AttemptStarted(cell.id, 1, launch, 1, 0),
            ev.CellStopRequested(cell.id, 1, "ann@desk"),
            ev.AttemptStopped(cell.id, 1, launch, "ann@desk"),
            ev.CellsRetried((cell.id,), "ann@desk"),
        )
        measure(sample, cell, deployment, 2, launch, 1)
        return
    flags = ("GPU 0 throttled for 4 s (power)",) if cell.id == "c005" else ()
    measure(sample, cell, deployment, 1, launch, 1, flags=flags)


def ct200_run(launches: int = 3, parallel: Iterable[int] = (1, 4, 8)) -> SampleRun:
    """Eight methods, simulated: lengths, concurrency, two conversations. Budgets 32 and 64 are left out above TP1."""
    sample = SampleRun()
    deployments = [
        _ct200_deployment(f"d{number:02}", method, size)
        for number, (method, size) in enumerate(((m, size) for m in GAIN if m != "ngram" for size in parallel), start=1)
    ]
    points = [single(256, 2), single(1024, 2), single(2048, 2)]
    points += [closed_loop(number, 512, 1) for number in (1, 2, 4, 8)]
    points += [conversation("cli-calculator", "calculator"), conversation("data-pipeline", "pipeline")]
    places = [(deployment, point) for deployment in deployments for point in points]
    cells = [
        Cell(f"c{number:03}", deployment.id, point, rounds=launches)
        for number, (deployment, point) in enumerate(places, start=1)
    ]
    protocol = {"launches": launches, "warmup": "auto", "flush_cache": True, "retries": 2, "failure_limit": 0.01}
    names: Mapping[str, Any] = {
        "run": "20260921-ct200",
        "plan_name": "ddtree-ct200",
        "host": "ct200",
        "engine": "sglang",
    }
    begin(sample, deployments, cells, **names, simulated=True, protocol=protocol)
    by_id = {deployment.id: deployment for deployment in deployments}
    left_out = tuple(cell.id for cell in cells if _is_left_out(by_id[cell.deployment]))
    if left_out:
        sample.tell(ev.CellsSkipped(left_out, "plan", "recurrent-state leakage seen at TP1"))
    unfit = tuple(cell.id for cell in cells if _is_unfit(by_id[cell.deployment], cell.point))
    sample.tell(ev.CellsUnfit(unfit, "recurrent state alone needs 74.6 GiB, 35.1 GiB are left"))
    launch = 0
    for round_ in range(1, launches + 1):
        for deployment in deployments:
            mine = [cell for cell in cells if cell.deployment == deployment.id and cell.id not in {*left_out, *unfit}]
            if not mine:
                continue
            launch += 1
            start_launch(sample, launch, deployment, round_)
            for cell in mine:
                measure(sample, cell, deployment, round_, launch, round_)
            end_launch(sample, launch)
    sample.tell(ev.RunEnded("complete"))
    return sample


def _ct200_deployment(name: str, method: str, parallel: int) -> Deployment:
    speculative = None
    variables: dict[str, int] = {}
    if method == "dflash":
        speculative = Speculative("dflash", block_size=16)
    elif method.startswith("ddtree-b"):
        budget = int(method.removeprefix("ddtree-b"))
        speculative = Speculative("ddtree", budget=budget, block_size=16)
        variables = {"budget": budget}
    gpus = {1: (7,), 4: (4, 5, 6, 7), 8: tuple(range(8))}[parallel]
    args: dict[str, EngineArgument] = {"attention-backend": "triton", "mem-fraction-static": 0.85}
    return Deployment(name, method, parallel, 8, args, {}, Placement(gpus, "numa"), speculative, variables)


def _is_left_out(deployment: Deployment) -> bool:
    return deployment.tensor_parallel > 1 and deployment.method in {"ddtree-b32", "ddtree-b64"}


def _is_unfit(deployment: Deployment, point: WorkloadPoint) -> bool:
    return deployment.tensor_parallel == 1 and deployment.method == "ddtree-b64" and point.concurrency == 8
