"""One attempt: make the server quiet, measure the cell, and write what came of it."""

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ddconsole.core.attempt_file import AttemptFile, attempt_to_json
from ddconsole.core.clock import Clock
from ddconsole.core.control import WantedCell
from ddconsole.core.figures import Slo, Summary, summarise
from ddconsole.core.fingerprint import fingerprint, fingerprint_parts
from ddconsole.core.plan_values import random_length
from ddconsole.core.records import CellProgress, RequestOutcome, RequestRecord
from ddconsole.core.states import Cause
from ddconsole.core.sweep import Sampling, WorkloadPoint, to_json
from ddconsole.engines.engine import Counters, Engine, Flush, Readiness, ServerApi, ServerStart
from ddconsole.engines.openai_api import counting_each_chunk
from ddconsole.load.prompts import WorkloadTexts
from ddconsole.load.task import LoadTask, Prompt
from ddconsole.runner.acceptance import (
    acceptance_flags,
    cell_acceptance,
    counter_flags,
    draft_depth,
    with_steps,
)
from ddconsole.runner.attempt_failure import failure_of
from ddconsole.runner.attempt_figures import figures_told
from ddconsole.runner.belonging import recorded_processes
from ddconsole.runner.cell_time import CellTime
from ddconsole.runner.cold_cache import cache_flags, measure_repetitions, repeats_cold
from ddconsole.runner.durable import write_whole
from ddconsole.runner.hardware import disturbances, hardware_record, samples_between
from ddconsole.runner.instrument import instrument_flags
from ddconsole.runner.load_process import LoadResult
from ddconsole.runner.load_processes import LoadProcesses
from ddconsole.runner.order import LaunchOrder
from ddconsole.runner.random_prompts import random_prompts
from ddconsole.runner.run_directory import RunDirectory
from ddconsole.runner.warm_up import WarmUp, warm_up

_QUIET_DEADLINE = 20.0
"""Seconds for the server to report nothing running before a cell begins."""
_CANARY = Prompt("canary", "Count from one to ten.")
"""Short, and of no prompt set: it warms nothing that is measured."""
_LOOKED_UP = frozenset({"ngram"})
"""Speculation without a model: it accepts little in text that does not repeat itself, and nothing is broken then."""
_DEATH_IS_SEEN = 0.5
"""Real seconds after which the watch has seen that the server died."""


class ResultNotWritten(Exception):
    """The attempt's file could not be written; what was measured is in no file."""

    def __init__(self, problem: OSError) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an attempt came to. `cause` is set when it failed; `sha256` is of its file, empty when none was written."""

    kind: str
    """`done`, `failed` or `stopped`."""
    figures: Mapping[str, Any]
    sha256: str = ""
    fingerprint: str = ""
    flags: tuple[str, ...] = ()
    cause: Cause | None = None
    server_suspect: bool = False
    """The server did not answer as a living one does: it should not serve the next cell."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """How a cell was made ready, and what is to be told of it and of its cache."""

    warmed: WarmUp
    notes: tuple[str, ...]


class Interruption:
    """What can end a cell before its load does: the wanted state, and the server's death."""

    def __init__(self, cause_of_death: Callable[[], Cause]) -> None:
        self.any = asyncio.Event()
        self.stopped = False
        self.died = False
        self._cause_of_death = cause_of_death

    def stop(self) -> None:
        """The cell is not wanted any more."""
        self.stopped = True
        self.any.set()

    def server_died(self) -> None:
        """The server's main process is gone."""
        self.died = True
        self.any.set()

    def cause(self) -> Cause:
        """Why the server died, from its log."""
        return self._cause_of_death()


class CellMeasurement:
    """Measures cells of one launch on its ready server."""

    def __init__(
        self,
        run: RunDirectory,
        order: LaunchOrder,
        engine: Engine,
        start: ServerStart,
        api: ServerApi,
        load: LoadProcesses,
        texts: WorkloadTexts,
        clock: Clock,
    ) -> None:
        self._run = run
        self._order = order
        self._engine = engine
        self._start = start
        self._api = api
        self._load = load
        self._texts = texts
        self._clock = clock

    def use_load(self, load: LoadProcesses) -> None:
        """Measure with other load processes, after one died."""
        self._load = load

    async def canary(self) -> tuple[Mapping[str, Any], Cause | None]:
        """One short generation before any cell: what it told, and why the server cannot be measured if it cannot."""
        point = WorkloadPoint(
            workload="canary",
            kind="single",
            prompts=_CANARY.name,
            concurrency=1,
            max_tokens=16,
            repetitions=1,
            requests=1,
            sampling=Sampling(),
            request_timeout=float(self._order.protocol.get("request_timeout", 600.0)),
            stall_timeout=float(self._order.protocol.get("stall_timeout", 180.0)),
        )
        task = self._task("canary", 0, point)
        result = await self._load.measure(task, lambda _: None)
        record = result.records[0] if result.records else None
        if record is None or record.outcome not in (RequestOutcome.OK, RequestOutcome.SHORT):
            why = record.error if record and record.error else result.died or "no answer"
            return {}, Cause(
                "CANARY", f"the server is ready but its first generation failed: {why}", do="read the server's log"
            )
        return {"output_tokens": record.output_tokens, "seconds": record.end - record.sent}, None

    async def measure(
        self,
        wanted: WantedCell,
        readiness: Readiness,
        on_progress: Callable[[CellProgress], None],
        interruption: Interruption,
    ) -> Outcome:
        """Measure one cell, until it is done, has failed, or is interrupted.

        Raises:
            ResultNotWritten: the attempt's file could not be written.
        """
        time = CellTime(self._clock)
        point = wanted.cell.point
        warmed = await self._warm_up(wanted, interruption)
        notes = [*warmed.flags()]
        flushes = bool(self._order.protocol.get("flush_cache", True)) and point.kind != "conversation"
        emptied = await self._flush() if flushes else None
        if not await self._quiet():
            notes.append("the server did not report itself idle before the cell")
        task = self._task(wanted.cell.id, wanted.attempt, point)
        task = await self._with_prompts(task, "measured", notes)
        before = await self._counters()
        if emptied is not None and emptied.done and repeats_cold(point):

            async def run_load(part: LoadTask, tell: Callable[[CellProgress], None]) -> LoadResult:
                return await self._run_load(part, tell, interruption)

            result, emptied = await measure_repetitions(task, run_load, self._flush, on_progress)
        else:
            result = await self._run_load(task, on_progress, interruption)
        if any(record.outcome is RequestOutcome.FAILED for record in result.records):
            # The watch looks a few times a second: a server's death explains its requests' failures better than they.
            await asyncio.sleep(_DEATH_IS_SEEN)
        after = await self._counters() if result.report is not None and not interruption.died else None
        records = tuple(with_steps(record) for record in result.records)
        notes += time.flags()
        if emptied is not None:
            notes += cache_flags(records) if emptied.done else [f"prefix cache not known to be empty: {emptied.detail}"]
        prepared = Prepared(warmed, tuple(notes))
        return self._conclude(wanted, readiness, time, records, result, (before, after), prepared, interruption)

    async def _warm_up(self, wanted: WantedCell, interruption: Interruption) -> WarmUp:
        """Requests that are not measured: as many as are in flight later, unless the plan names a number."""
        setting = self._order.protocol.get("warmup", "auto")
        number = wanted.cell.point.concurrency if setting == "auto" else int(setting)
        if number == 0:
            return WarmUp()
        point = replace(
            wanted.cell.point,
            kind="closed-loop",
            prompts=self._any_prompts(wanted.cell.point),
            repetitions=1,
            requests=number,
            max_tokens=min(32, wanted.cell.point.max_tokens),
        )

        async def one_pass() -> Sequence[RequestRecord]:
            task = await self._with_prompts(self._task(wanted.cell.id, 0, point), "warm-up", [])
            return (await self._run_load(task, lambda _: None, interruption)).records

        return await warm_up(one_pass, self._order.protocol.get("warmup_until"), interruption.any.is_set)

    async def _run_load(
        self, task: LoadTask, on_progress: Callable[[CellProgress], None], interruption: Interruption
    ) -> LoadResult:
        measuring = asyncio.ensure_future(self._load.measure(task, on_progress))
        stop = asyncio.ensure_future(interruption.any.wait())
        try:
            await asyncio.wait({measuring, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not measuring.done():
                await self._load.cancel(task.cell, task.attempt)
            return await measuring
        finally:
            stop.cancel()

    async def _flush(self) -> Flush:
        try:
            return await self._engine.flush_cache(self._api)
        except (OSError, TimeoutError) as problem:
            return Flush(done=False, detail=str(problem) or type(problem).__name__)

    async def _quiet(self) -> bool:
        """Wait until nothing runs on the server: a client that left is decoded for on for up to two seconds."""
        deadline = self._clock.monotonic() + _QUIET_DEADLINE
        while True:
            try:
                running = await self._engine.running_requests(self._api)
            except (OSError, TimeoutError):
                return False
            if not running:
                return True
            if self._clock.monotonic() > deadline:
                return False
            await self._clock.sleep(0.2)

    async def _counters(self) -> Counters | None:
        try:
            return await self._engine.counters(self._api)
        except (OSError, TimeoutError):
            return None

    def _conclude(
        self,
        wanted: WantedCell,
        readiness: Readiness,
        time: CellTime,
        records: Sequence[RequestRecord],
        result: LoadResult,
        counters: tuple[Counters | None, Counters | None],
        prepared: Prepared,
        interruption: Interruption,
    ) -> Outcome:
        notes = prepared.notes
        before, after = counters
        point = wanted.cell.point
        speculating = self._order.deployment.speculative is not None or _speculates(self._order)
        acceptance = cell_acceptance(records, before, after, speculating=speculating)
        slo = dict(self._order.protocol.get("slo") or {})
        figures = replace(summarise(records, slo=Slo.from_json(slo)), acceptance=acceptance)
        cancelled = interruption.stopped and not interruption.died
        cause = None if cancelled else time.void() or failure_of(point, figures, records, result, self._order.protocol)
        if interruption.died:
            cause = interruption.cause()
        kind = "stopped" if cancelled else "failed" if cause else "done"
        flags = notes
        if kind == "done":
            flags = (*flags, *self._acceptance_flags(point, figures, readiness, records, counters))
        flags = (*flags, *instrument_flags(point, figures, result.report, records, counters))
        ended = self._clock.now()
        samples = samples_between(self._run.path / "telemetry.jsonl", time.began, ended)
        own = {one.pid for one in recorded_processes(self._run.launch(self._order.launch))}
        hardware = hardware_record(samples, self._order.deployment.placement.gpus, ended - time.began, own)
        if kind == "done":
            flags = (*flags, *disturbances(hardware))
        parts = self._parts(wanted, readiness)
        attempt = AttemptFile(
            run=self._order.run,
            cell=to_json(wanted.cell),
            deployment=to_json(self._order.deployment),
            attempt=wanted.attempt,
            launch=self._order.launch,
            round=wanted.round,
            outcome=kind,
            started_at=time.began,
            ended_at=ended,
            simulated=self._order.simulated,
            fingerprint=fingerprint(parts),
            fingerprint_parts=parts,
            figures=to_json(figures),
            requests=tuple(records),
            build=readiness.build,
            effective=readiness.effective,
            counters={"before": _counters_json(before), "after": _counters_json(after)},
            load=asdict(result.report) if result.report else {"died": result.died},
            hardware=hardware,
            flags=flags,
            cause=to_json(cause) if cause else None,
            slo=slo,
            warm_up=prepared.warmed.to_json(),
        )
        sha256 = self._write(wanted, attempt)
        suspect = cause is not None and cause.id in {"STALL", "CONNECTION"}
        told = figures_told(figures, point, records, prepared.warmed)
        return Outcome(kind, told, sha256, attempt.fingerprint, flags, cause, suspect)

    def _acceptance_flags(
        self,
        point: WorkloadPoint,
        figures: Summary,
        readiness: Readiness,
        records: Sequence[RequestRecord],
        counters: tuple[Counters | None, Counters | None],
    ) -> list[str]:
        deployment = self._order.deployment
        depth = draft_depth(deployment, self._engine.kind, readiness.effective)
        drafts = deployment.speculative is not None and deployment.speculative.kind not in _LOOKED_UP
        odd = random_length(point.prompts) is not None
        signs = acceptance_flags(figures.acceptance, figures.succeeded, depth, drafts=drafts, random_words=odd)
        return [*counter_flags(records, *counters), *signs]

    def _parts(self, wanted: WantedCell, readiness: Readiness) -> dict[str, Any]:
        return fingerprint_parts(
            deployment=self._order.deployment,
            point=wanted.cell.point,
            build=readiness.build,
            context=self._order.fingerprint_context,
        )

    def _write(self, wanted: WantedCell, attempt: AttemptFile) -> str:
        path = self._run.attempt(wanted.cell.id, wanted.attempt)
        data = json.dumps(attempt_to_json(attempt), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        raw = data.encode() + b"\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, raw)
        except OSError as problem:
            raise ResultNotWritten(problem) from problem
        return hashlib.sha256(raw).hexdigest()

    def _task(self, cell: str, attempt: int, point: WorkloadPoint) -> LoadTask:
        conversation = point.kind == "conversation"
        body = self._engine.request_body(self._start, point)
        prompts = (_CANARY,) if point.prompts == _CANARY.name else self._texts.prompts.get(point.prompts, ())
        return LoadTask(
            cell=cell,
            attempt=attempt,
            base_url=f"http://{self._start.host}:{self._start.port}",
            model=self._start.served_name,
            point=point,
            prompts=() if conversation else prompts,
            script=self._texts.scripts[point.prompts] if conversation else None,
            body=counting_each_chunk(body) if self._order.protocol.get("count_each_chunk") else body,
        )

    async def _with_prompts(self, task: LoadTask, use: str, notes: list[str]) -> LoadTask:
        """The task with the prompts that are made up for it, where its set is such a one."""
        length = random_length(task.point.prompts)
        if length is None:
            return task
        made = await random_prompts(self._api, self._start.served_name, task.point, length, use)
        if not made.counted:
            notes.append(
                f"the engine has no /tokenize: prompts of {task.point.prompts} are {length} words, see prompt_tokens"
            )
        return replace(task, prompts=made.prompts)

    def _any_prompts(self, point: WorkloadPoint) -> str:
        """Of the plan, for warming up; where it has conversations only, the canary's."""
        made_up = random_length(point.prompts) is not None
        return next(iter(self._texts.prompts), point.prompts if made_up else _CANARY.name)


def _speculates(order: LaunchOrder) -> bool:
    """Whether raw flags switch speculation on: any `spec` flag that the plan gives."""
    return any(name.lstrip("-").startswith("spec") and value for name, value in order.deployment.args.items())


def _counters_json(counters: Counters | None) -> Any:
    return None if counters is None else to_json(counters)
