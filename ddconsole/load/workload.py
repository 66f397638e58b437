"""The workloads: which requests a cell sends, in which order, how many at once. A new kind is one line in `KINDS`."""

import asyncio
import itertools
import math
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddconsole.core.clock import Clock
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.sweep import WorkloadPoint
from ddconsole.load.client import StreamingClient
from ddconsole.load.measurement import ChatRequest, Measurement
from ddconsole.load.task import LoadReport, LoadTask, Prompt, Script
from ddconsole.load.tickets import Tickets

_BETWEEN_LOOKS = 8
"""Streams that begin between two looks at the sockets: some milliseconds."""


class TaskRefusedError(ValueError):
    """The task cannot be measured. The text says what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """One kind of workload."""

    planned: Callable[[LoadTask], int]
    """How many measured requests it sends."""
    play: Callable[[LoadTask, Measurement, Tickets | None], Awaitable[None]]
    """Sends them, until all are sent or the measurement is not open any more."""


def start_measurement(
    task: LoadTask, client: StreamingClient, clock: Clock, keep: Callable[[RequestRecord], None]
) -> Measurement:
    """Check the task and make its measurement, which `measure` then runs.

    A share of a task plans nothing by itself: who shares it out knows how many requests there are.

    Raises:
        TaskRefusedError: the task contradicts itself.
    """
    kind = KINDS.get(task.point.kind)
    if kind is None:
        raise TaskRefusedError(f"workload kind {task.point.kind!r} is not known → one of {', '.join(sorted(KINDS))}")
    _check(task)
    return Measurement(task, client, clock, kind.planned(task) if task.share is None else 0, keep)


def planned_requests(task: LoadTask) -> int:
    """How many measured requests the whole task sends."""
    return KINDS[task.point.kind].planned(task)


async def measure(task: LoadTask, measurement: Measurement, tickets: Tickets | None = None) -> LoadReport:
    """Warm up, send all requests of the task, and report. Ends early when the measurement is cancelled or stalls.

    Args:
        task: what to send.
        measurement: of `start_measurement`.
        tickets: where the numbers of a closed loop's requests come from when other processes send some of them.
    """
    watching = asyncio.create_task(measurement.watch())
    try:
        await _warm_up(task, measurement)
        measurement.end_of_warm_up()
        if measurement.open:
            if task.share is not None:
                await measurement.wait_until(task.share.begin)
            await KINDS[task.point.kind].play(task, measurement, tickets)
    finally:
        watching.cancel()
    return measurement.report()


def distinct(text: str, use: int) -> str:
    """`text` for its `use`-th use in an attempt: from the second on with a prefix of its own, `[2] `, `[3] `, ...

    Without it, prefix caches and n-gram tries would answer a repetition from the one before.
    """
    return text if use == 1 else f"[{use}] {text}"


# --- prompts ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PromptUse:
    repetition: int
    prompt: Prompt
    text: str


def _prompt_uses(prompts: Sequence[Prompt], per_repetition: int, repetitions: int) -> Iterator[_PromptUse]:
    uses: Counter[str] = Counter()
    for number in range(per_repetition * repetitions):
        # One cycle through the set over all repetitions: otherwise prompts at the end of a set that is longer than
        # a repetition would never be used.
        prompt = prompts[number % len(prompts)]
        uses[prompt.name] += 1
        yield _PromptUse(number // per_repetition, prompt, distinct(prompt.text, uses[prompt.name]))


def _streams(task: LoadTask) -> list[int]:
    """The numbers of the streams that this process plays."""
    return [number for number in range(task.point.concurrency) if task.share is None or task.share.has(number)]


async def _work_off(uses: Iterator[_PromptUse], streams: Sequence[int], measurement: Measurement) -> None:
    """A worker a stream, which sends its next request when its last ended: so many are always in flight."""

    async def worker(stream: int) -> None:
        for use in uses:
            if not measurement.open:
                return
            message = {"role": "user", "content": use.text}
            await measurement.send(ChatRequest(use.repetition, use.prompt.name, 0, stream, (message,)))

    await _all_at_once(worker, streams)


async def _all_at_once(play: Callable[[int], Coroutine[None, None, None]], streams: Sequence[int]) -> None:
    """Begin all streams, with the answers of the first ones read while the last ones still connect."""
    async with asyncio.TaskGroup() as playing:
        for number, stream in enumerate(streams, start=1):
            playing.create_task(play(stream))
            if number % _BETWEEN_LOOKS == 0:
                await asyncio.sleep(0)


def _planned_single(task: LoadTask) -> int:
    return len(task.prompts) * task.point.repetitions


async def _play_single(task: LoadTask, measurement: Measurement, _: Tickets | None) -> None:
    """Every prompt of the set in each repetition, one request after the other."""
    await _work_off(_prompt_uses(task.prompts, len(task.prompts), task.point.repetitions), [0], measurement)


def _planned_closed_loop(task: LoadTask) -> int:
    return task.point.requests * task.point.repetitions


async def _play_closed_loop(task: LoadTask, measurement: Measurement, tickets: Tickets | None) -> None:
    """Exactly `concurrency` requests in flight; repetitions follow each other without a pause, which would drain it."""
    point = task.point
    uses = _prompt_uses(task.prompts, point.requests, point.repetitions)
    if tickets is not None and task.share is not None:
        every = list(uses)
        uses = (every[number] for number in tickets.take())
    await _work_off(uses, _streams(task), measurement)


async def _play_open_loop(task: LoadTask, measurement: Measurement, _: Tickets | None) -> None:
    """Each request at its own time, however many are in flight: a slow server cannot slow the arrivals down."""
    point = task.point
    uses = list(_prompt_uses(task.prompts, point.requests, point.repetitions))
    began = measurement.now if task.share is None else task.share.begin
    async with asyncio.TaskGroup() as requests:
        for number, (use, offset) in enumerate(zip(uses, arrival_times(point, len(uses)), strict=True)):
            if task.share is not None and not task.share.has(number):
                continue
            await measurement.wait_until(began + offset)
            if not measurement.open:
                return
            message = {"role": "user", "content": use.text}
            request = ChatRequest(use.repetition, use.prompt.name, 0, 0, (message,), intended=began + offset)
            requests.create_task(measurement.send(request))


def arrival_times(point: WorkloadPoint, requests: int) -> list[float]:
    """When requests are meant to be sent, seconds after the first one.

    Each time is a sum of gaps and no sleep's end, so that delays do not add up.
    """
    assert point.rate is not None
    if point.arrivals == "constant":
        return [number / point.rate for number in range(requests)]
    gaps = random.Random(point.arrival_seed)  # times of a load, not a secret
    return [0.0, *itertools.accumulate(gaps.expovariate(point.rate) for _ in range(requests - 1))]


# --- conversations ---------------------------------------------------------------------------------------------


def _planned_conversation(task: LoadTask) -> int:
    return len(_script(task).turns) * task.point.repetitions * task.point.concurrency


async def _play_conversation(task: LoadTask, measurement: Measurement, _: Tickets | None) -> None:
    """Each of `concurrency` streams plays the script `repetitions` times."""
    point = task.point

    async def player(stream: int) -> None:
        for repetition in range(point.repetitions):
            if measurement.open:
                await _converse(task, measurement, repetition, stream)

    await _all_at_once(player, _streams(task))


async def _converse(task: LoadTask, measurement: Measurement, repetition: int, stream: int) -> None:
    """One conversation. It ends at a turn that fails: what follows would stand on another context."""
    script = _script(task)
    use = repetition * task.point.concurrency + stream + 1
    messages = opening(script, use)
    for number, turn in enumerate(script.turns, start=1):
        if not measurement.open:
            return
        if number > 1 or script.system:
            messages.append({"role": "user", "content": turn.user})
        else:
            messages.append({"role": "user", "content": distinct(turn.user, use)})
        name = f"{script.name}/{turn.name}"
        answer = await measurement.send(ChatRequest(repetition, name, number, stream, tuple(messages)))
        if answer.outcome is not RequestOutcome.OK:
            left = len(script.turns) - number
            if left and measurement.open:
                measurement.note(f"conversation {use} ended at turn {number} ({turn.name}); {left} turns not sent")
            return
        said = turn.assistant if task.point.turns == "replay" else answer.content
        messages.append({"role": "assistant", "content": said})


def opening(script: Script, use: int) -> list[Mapping[str, str]]:
    """The messages before the first turn: the system text, distinct from the second use on; none without one."""
    return [{"role": "system", "content": distinct(script.system, use)}] if script.system else []


# --- warm-up and checks ----------------------------------------------------------------------------------------


async def _warm_up(task: LoadTask, measurement: Measurement) -> None:
    """With the cell's concurrency, on texts that share no beginning with a measured one.

    They are the measured texts with their words in reverse: as long, so that the same shapes are compiled, and
    nothing that a prefix cache or an n-gram trie could use again.
    """
    texts = [prompt.text for prompt in task.prompts] or [turn.user for turn in _script(task).turns]
    numbers = iter(range(task.warmup))

    async def worker(stream: int) -> None:
        for number in numbers:
            if not measurement.open:
                return
            backwards = " ".join(reversed(texts[number % len(texts)].split()))
            message = {"role": "user", "content": f"[warm-up {number + 1}] {backwards}"}
            await measurement.warm_up(ChatRequest(0, "warm-up", 0, stream, (message,)))

    await _all_at_once(worker, range(min(task.point.concurrency, task.warmup)))


def _script(task: LoadTask) -> Script:
    if task.script is None:
        raise TaskRefusedError(f"the conversation {task.point.prompts!r} came without its script")
    return task.script


def _check(task: LoadTask) -> None:
    point = task.point
    for name in ("concurrency", "max_tokens", "repetitions"):
        if getattr(point, name) < 1:
            raise TaskRefusedError(f"{name} is {getattr(point, name)} → give at least 1")
    if point.kind != "conversation":
        if not task.prompts:
            raise TaskRefusedError(f"the prompt set {point.prompts!r} came without prompts")
        if point.kind in ("closed-loop", "open-loop") and point.requests < 1:
            raise TaskRefusedError(f"requests is {point.requests} → give at least 1")
        if point.kind == "open-loop":
            _check_arrivals(point)
        return
    _check_script(task)


def _check_script(task: LoadTask) -> None:
    point, script = task.point, _script(task)
    if not script.turns:
        raise TaskRefusedError(f"the script {script.name!r} has no turns")
    if point.turns not in ("replay", "live"):
        raise TaskRefusedError(f"turns is {point.turns!r} → `replay` or `live`")
    for turn in script.turns[:-1]:
        if point.turns == "replay" and not turn.assistant:
            raise TaskRefusedError(
                f"turn {turn.name!r} of {script.name!r} has no scripted answer to replay → write one, or `turns: live`"
            )


def _check_arrivals(point: WorkloadPoint) -> None:
    if point.rate is None or not 0 < point.rate < math.inf:
        raise TaskRefusedError(f"rate is {point.rate} → give requests a second, above 0")
    if point.arrivals not in ("poisson", "constant"):
        raise TaskRefusedError(f"arrivals is {point.arrivals!r} → `poisson` or `constant`")


KINDS: dict[str, WorkloadKind] = {
    "single": WorkloadKind(_planned_single, _play_single),
    "closed-loop": WorkloadKind(_planned_closed_loop, _play_closed_loop),
    "open-loop": WorkloadKind(_planned_closed_loop, _play_open_loop),
    "conversation": WorkloadKind(_planned_conversation, _play_conversation),
}
