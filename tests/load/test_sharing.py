"""One cell on several load processes: nothing sent twice or left out, the concurrency kept, one report of it all."""

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from ddconsole.core.clock import SystemClock
from ddconsole.core.records import CellProgress, RequestOutcome, RequestRecord
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.load.codec import task_from_json, task_to_json
from ddconsole.load.sharing import processes_for, share_of_a_stream, shares_of
from ddconsole.load.task import LoadReport, Script, Turn
from ddconsole.load.tickets import Tickets
from ddconsole.runner.instrument import generator_flags
from ddconsole.runner.load_processes import LoadProcesses

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, MakeTask, Serve

Many = Callable[[], LoadProcesses]
QUIET = LoadReport(1.0, 10.0, 0.01, False, 0, 0, achieved_concurrency=8.0)


@pytest.fixture
async def many(tmp_path: Path) -> AsyncIterator[Many]:
    """Load processes on a machine that seems to be large, for streams that seem to take much."""
    made: list[LoadProcesses] = []

    def make() -> LoadProcesses:
        pids: list[int] = []
        one = LoadProcesses(tmp_path / "log", SystemClock(), pids.append, cores=64)
        one._share_of_a_stream = 0.25
        made.append(one)
        return one

    yield make
    for one in made:
        await one.close()


def point(kind: str = "closed-loop", concurrency: int = 8) -> WorkloadPoint:
    return WorkloadPoint("w", kind, "p", concurrency, 10, 1, 4, Sampling())


# --- how many --------------------------------------------------------------------------------------------------


def test_one_process_is_enough_for_most_cells() -> None:
    """A stream is taken to need 0.0035 of a core: 142 of them half a core."""
    assert processes_for(point(concurrency=142), None, 64) == 1
    assert processes_for(point(concurrency=143), None, 64) == 2
    assert processes_for(point("single", 1), 3.0, 64) == 1


def test_what_was_seen_decides_and_the_machine_limits_it() -> None:
    """8 streams of 0.2 cores: 1.6 cores, four processes at half a core each."""
    assert processes_for(point(), 0.2, 64) == 4
    assert processes_for(point(), 0.01, 64) == 1
    assert processes_for(point(), 0.2, 8) == 2
    assert processes_for(point(), 0.2, 2) == 1
    assert processes_for(point(concurrency=2), 5.0, 64) == 2


def test_a_stream_takes_its_part_of_what_was_used() -> None:
    """1 s of CPU in 10 s with 8 in flight."""
    assert share_of_a_stream(QUIET, point(concurrency=9)) == pytest.approx(1.0 / 10 / 8)
    assert share_of_a_stream(replace(QUIET, wall_seconds=0.4), point()) is None
    # A warm-up sends one request a stream, all at once.
    assert share_of_a_stream(replace(QUIET, achieved_concurrency=None), point(concurrency=5)) == 1.0 / 10 / 5


def test_of_several_processes_the_busiest_is_flagged() -> None:
    from ddconsole.core.figures import summarise  # noqa: PLC0415

    busy = replace(QUIET, cpu_seconds=20.0, processes=4, busiest=0.6)
    assert generator_flags(point(), summarise([]), busy) == []
    (flag,) = generator_flags(point(), summarise([]), replace(busy, busiest=0.9))
    assert "90% of a core" in flag


def test_a_share_crosses_the_line_between_the_processes(make_task: "MakeTask") -> None:
    for share in shares_of(make_task(), 3, 12.5):
        assert task_from_json(task_to_json(share)) == share
    assert task_from_json(task_to_json(make_task())).share is None


# --- tickets ---------------------------------------------------------------------------------------------------


def test_every_ticket_is_taken_once_by_whoever_comes_first() -> None:
    tickets = Tickets.new()
    tickets.put(5000)
    results: list[int] = []
    for _ in range(4):
        reader, writer = os.pipe()
        if os.fork() == 0:
            taken = list(tickets.take())
            os.write(writer, len(taken).to_bytes(4, "little"))
            os.write(writer, sum(taken).to_bytes(8, "little"))
            os._exit(0)
        os.close(writer)
        results.append(reader)
    told = [(os.read(one, 4), os.read(one, 8)) for one in results]
    for _ in results:
        os.wait()
    for one in results:
        os.close(one)
    assert sum(int.from_bytes(count, "little") for count, _ in told) == 5000
    assert sum(int.from_bytes(numbers, "little") for _, numbers in told) == 5000 * 4999 // 2
    tickets.put(2)
    assert list(tickets.take()) == [0, 1]
    tickets.close()


# --- with real processes ---------------------------------------------------------------------------------------


async def slow_tokens(exchange: "Exchange") -> None:
    await asyncio.sleep(0.01 * (exchange.number % 5))
    await exchange.send_tokens(4)


def most_at_once(records: tuple[RequestRecord, ...]) -> int:
    changes = sorted([(one.end, -1) for one in records] + [(one.sent, 1) for one in records])
    return max(itertools.accumulate(change for _, change in changes))


async def test_a_closed_loop_on_four_processes(many: Many, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(slow_tokens)
    told: list[CellProgress] = []
    load = many()
    task = make_task(server.url, concurrency=8, requests=30, repetitions=2)
    result = await load.measure(task, told.append)
    assert result.report is not None
    assert (result.report.processes, result.report.notes) == (4, ())
    assert len(load._processes) == 4
    records = result.records
    assert [one.index for one in records] == list(range(60))
    assert [one.sent for one in records] == sorted(one.sent for one in records)
    assert {one.outcome for one in records} == {RequestOutcome.OK}
    # Each use of each prompt once, whichever process sent it.
    asked = Counter(body["messages"][-1]["content"] for body in server.bodies)
    assert (len(asked), set(asked.values())) == (60, {1})
    assert Counter((one.repetition, one.prompt) for one in records) == dict.fromkeys(
        itertools.product((0, 1), ("first", "second", "third")), 10
    )
    assert {one.stream for one in records} == set(range(8))
    assert most_at_once(records) == 8
    assert result.report.achieved_concurrency is not None
    assert 1 < result.report.achieved_concurrency <= 8
    assert (told[-1].requests_planned, told[-1].cell) == (60, "c001")


async def test_the_next_cell_takes_one_process_again(many: Many, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(slow_tokens)
    load = many()
    await load.measure(make_task(server.url, concurrency=4, requests=8), lambda _: None)
    result = await load.measure(make_task(server.url, "single"), lambda _: None)
    assert result.report is not None
    assert (result.report.processes, result.report.busiest) == (1, None)
    assert [one.prompt for one in result.records] == ["first", "second", "third"]


async def test_an_open_loop_keeps_its_times_on_several_processes(
    many: Many, serve: "Serve", make_task: "MakeTask"
) -> None:
    server = await serve(slow_tokens)
    task = make_task(server.url, "open-loop", concurrency=8, requests=20, rate=100.0, arrivals="constant")
    result = await many().measure(task, lambda _: None)
    assert result.report is not None
    meant = sorted(one.intended or 0.0 for one in result.records)
    assert [at - meant[0] for at in meant] == pytest.approx([number / 100 for number in range(20)])
    assert len(server.bodies) == 20


async def test_conversations_are_dealt_out_by_stream(many: Many, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(slow_tokens)
    script = Script("s", "", (Turn("one", "u1", "a1"), Turn("two", "u2", "a2")))
    task = make_task(server.url, "conversation", script=script, concurrency=5, requests=2)
    result = await many().measure(task, lambda _: None)
    assert Counter((one.stream, one.turn) for one in result.records) == dict.fromkeys(
        itertools.product(range(5), (1, 2)), 1
    )


async def endless(exchange: "Exchange") -> None:
    while True:
        await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
        await asyncio.sleep(0.01)


async def test_cancelling_ends_the_share_of_every_process(many: Many, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(endless)
    load = many()
    told: list[CellProgress] = []
    running = asyncio.create_task(load.measure(make_task(server.url, concurrency=4, requests=9), told.append))
    while not (told and told[-1].running == 4):  # noqa: ASYNC110  # as the runner sees it
        await asyncio.sleep(0.01)
    await load.cancel("c001", 1)
    result = await running
    assert result.report is not None
    assert result.report.cancelled
    assert result.report.notes == ("requests not sent: 5 of 9",)
    assert [one.outcome for one in result.records] == [RequestOutcome.CANCELLED] * 4


async def test_a_cell_that_is_cancelled_while_its_processes_start_sends_nothing(
    many: Many, serve: "Serve", make_task: "MakeTask"
) -> None:
    server = await serve(endless)
    load = many()
    running = asyncio.create_task(load.measure(make_task(server.url, concurrency=4, requests=9), lambda _: None))
    await asyncio.sleep(0)
    await load.cancel("c001", 1)
    result = await running
    assert result.report is not None
    assert result.report.cancelled
    assert (result.records, server.bodies) == ((), [])


async def test_a_process_that_dies_ends_the_cell_and_is_told(many: Many, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(endless)
    load = many()
    told: list[CellProgress] = []
    running = asyncio.create_task(load.measure(make_task(server.url, concurrency=4, requests=9), told.append))
    while not (told and told[-1].running == 4):  # noqa: ASYNC110  # as the runner sees it
        await asyncio.sleep(0.01)
    victim = load._processes[1]._process
    assert victim is not None
    psutil.Process(victim.pid).kill()
    result = await asyncio.wait_for(running, 30)
    assert result.report is None
    assert "it ended with status -9" in result.died
    assert not load.alive
