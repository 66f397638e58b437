import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

import ddconsole
from ddconsole.core.records import CellProgress, RequestOutcome, RequestRecord
from ddconsole.load.codec import Cancel, Hello, Message, Order, Quit, message_of_line, order_line
from ddconsole.load.task import LoadReport

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, MakeTask, Serve

ROOT = Path(ddconsole.__file__).parent.parent


class LoadChild:
    """`python -m ddconsole.load` as a child."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.messages: list[Message] = []

    def order(self, order: Order) -> None:
        self.raw(order_line(order))

    def raw(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)

    async def next(self) -> Message:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        assert line, "the load process closed its output"
        message = message_of_line(line)
        self.messages.append(message)
        return message

    async def report(self) -> tuple[list[RequestRecord], LoadReport]:
        records: list[RequestRecord] = []
        while not isinstance(message := await self.next(), LoadReport):
            if isinstance(message, RequestRecord):
                records.append(message)
        return records, message

    async def leave(self) -> int:
        """Close its stdin, read what is left, and wait for its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        for line in (await self.process.stdout.read()).splitlines():
            self.messages.append(message_of_line(line))
        return await self.process.wait()


Start = Callable[[], Awaitable[LoadChild]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    children: list[LoadChild] = []

    async def begin() -> LoadChild:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ddconsole.load",
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=64 * 1024 * 1024,
        )
        child = LoadChild(process)
        children.append(child)
        hello = await child.next()
        assert hello == Hello(process.pid)
        return child

    yield begin
    for child in children:
        if child.process.returncode is None:
            child.process.kill()
            await child.leave()


async def four_tokens(exchange: "Exchange") -> None:
    await exchange.send_tokens(4)


async def test_one_process_serves_cells_one_after_the_other_and_ends_with_its_stdin(
    start: Start, serve: "Serve", make_task: "MakeTask"
) -> None:
    server = await serve(four_tokens)
    child = await start()
    child.order(make_task(server.url, "single", repetitions=2))
    child.order(make_task(server.url, concurrency=2, requests=6, prompts=["long " * 50_000]))
    records, report = await child.report()
    assert [r.outcome for r in records] == [RequestOutcome.OK] * 6
    assert report.cpu_seconds > 0
    assert (report.cancelled, report.notes) == (False, ())
    last = [message for message in child.messages if isinstance(message, CellProgress)][-1]
    assert (last.cell, last.attempt, last.requests_done, last.requests_planned) == ("c001", 1, 6, 6)
    records, _ = await child.report()
    assert [r.outcome for r in records] == [RequestOutcome.OK] * 6
    assert len(server.bodies) == 12
    assert await child.leave() == 0


async def test_cancel_ends_the_cell_that_runs_and_the_next_one_begins(
    start: Start, serve: "Serve", make_task: "MakeTask"
) -> None:
    async def first_is_endless(exchange: "Exchange") -> None:
        while exchange.number <= 2:
            await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
            await asyncio.sleep(0.005)
        await exchange.send_tokens(4)

    server = await serve(first_is_endless)
    child = await start()
    child.order(make_task(server.url, concurrency=2, requests=8))
    while not (
        isinstance(message := await child.next(), CellProgress) and message.running == 2 and message.output_rate
    ):
        pass
    child.order(Cancel("c999", 1))
    child.order(Cancel("c001", 1))
    records, report = await child.report()
    assert [r.outcome for r in records] == [RequestOutcome.CANCELLED] * 2
    assert report.cancelled
    child.order(make_task(server.url))
    records, report = await child.report()
    assert [r.outcome for r in records] == [RequestOutcome.OK] * 3
    child.order(Quit())
    assert await child.process.wait() == 0


async def test_a_cell_that_waits_can_be_cancelled(start: Start, serve: "Serve", make_task: "MakeTask") -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def wait(exchange: "Exchange") -> None:
        begun.set()
        await go_on.wait()
        await exchange.send_tokens(4)

    server = await serve(wait)
    child = await start()
    child.order(make_task(server.url, prompts=["x"]))
    await begun.wait()
    waiting = make_task(server.url)
    child.raw(order_line(waiting).replace(b'"c001"', b'"c002"'))
    child.order(Cancel("c002", 1))
    _, report = await child.report()
    assert (report.cancelled, report.notes) == (True, ("cancelled before it began",))
    go_on.set()
    records, report = await child.report()
    assert [r.outcome for r in records] == [RequestOutcome.OK]
    assert len(server.bodies) == 1


async def test_closing_stdin_in_the_middle_hands_over_the_records_and_ends(
    start: Start, serve: "Serve", make_task: "MakeTask"
) -> None:
    begun = asyncio.Event()

    async def hang(exchange: "Exchange") -> None:
        begun.set()
        await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
        await asyncio.sleep(60)

    server = await serve(hang)
    child = await start()
    child.order(make_task(server.url))
    await begun.wait()
    assert await child.leave() == 0
    records = [message for message in child.messages if isinstance(message, RequestRecord)]
    assert [r.outcome for r in records] == [RequestOutcome.CANCELLED]
    assert isinstance(child.messages[-1], LoadReport)


async def test_what_is_no_order_is_reported_and_the_process_goes_on(
    start: Start, serve: "Serve", make_task: "MakeTask"
) -> None:
    server = await serve(four_tokens)
    child = await start()
    child.raw(b"\n{nonsense\n")
    _, report = await child.report()
    assert report.notes == ("order refused: not JSON: b'{nonsense'",)
    child.order(make_task(server.url, prompts=[]))
    _, report = await child.report()
    assert report.notes == ("task refused: the prompt set 'test' came without prompts",)
    child.order(make_task(server.url))
    records, _ = await child.report()
    assert len(records) == 3


async def test_an_order_may_come_in_pieces(start: Start, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(four_tokens)
    child = await start()
    line = order_line(make_task(server.url, prompts=["x"]))
    for at in range(0, len(line), 100):
        child.raw(line[at : at + 100])
        await asyncio.sleep(0)
    records, _ = await child.report()
    assert len(records) == 1


async def test_ctrl_c_at_the_terminal_does_not_end_it(start: Start, serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(four_tokens)
    child = await start()
    child.process.send_signal(signal.SIGINT)
    child.order(make_task(server.url))
    records, _ = await child.report()
    assert len(records) == 3


async def test_it_dies_with_its_parent_whatever_holds_its_stdin_open() -> None:
    read_end, write_end = os.pipe()
    program = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'ddconsole.load']\n"
        f"child = subprocess.Popen(command, stdin={read_end}, stdout=subprocess.PIPE)\n"
        "child.stdout.readline()\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        pass_fds=(read_end,),
    )
    try:
        assert parent.stdout is not None
        child = psutil.Process(int(await parent.stdout.readline()))
        assert child.is_running()
        parent.kill()
        await parent.wait()
        while child.is_running() and child.status() != psutil.STATUS_ZOMBIE:  # noqa: ASYNC110  # another process
            await asyncio.sleep(0.01)
    finally:
        os.close(read_end)
        os.close(write_end)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
