import asyncio
import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from load_runs import THREE_TURNS, four_tokens, run

from ddconsole.core.clock import Clock, SystemClock
from ddconsole.core.figures import summarise, time_to_first_token
from ddconsole.core.records import RequestOutcome, RequestRecord, TokenSource
from ddconsole.load.client import HttpStreamingClient
from ddconsole.load.connection import Receiver, StreamError
from ddconsole.load.measurement import Measurement
from ddconsole.load.task import Script, Turn
from ddconsole.load.workload import TaskRefusedError, measure, start_measurement

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, MakeTask, Serve


def texts(bodies: list[Mapping[str, Any]]) -> list[str]:
    return [body["messages"][-1]["content"] for body in bodies]


class ScriptedClient:
    """Behind the seam: gives reads with times of the test's own, and lets its clock say the same."""

    def __init__(self, answers: list[list[tuple[float, bytes]]]) -> None:
        self.answers = iter(answers)
        self.retried = 0
        self.time = 0.0
        self.bodies: list[Mapping[str, Any]] = []

    async def stream(self, body: Mapping[str, Any], receiver: Receiver) -> None:
        self.bodies.append(body)
        began = self.time
        receiver.sent(began)
        for after, received in next(self.answers):
            self.time = began + after
            if receiver.received(self.time, received):
                return


class ScriptedClock(SystemClock):
    """Tells the time of a scripted client."""

    def __init__(self, client: ScriptedClient) -> None:
        object.__setattr__(self, "client", client)

    def monotonic(self) -> float:
        client: ScriptedClient = object.__getattribute__(self, "client")
        return client.time


# --- single and closed loop ------------------------------------------------------------------------------------


async def test_single_sends_every_prompt_in_each_repetition_one_after_the_other(
    serve: "Serve", make_task: "MakeTask"
) -> None:
    server = await serve(four_tokens)
    records, report = await run(make_task(server.url, "single", repetitions=2, requests=99))
    assert texts(server.bodies) == ["first", "second", "third", "[2] first", "[2] second", "[2] third"]
    assert max(server.running_at_begin) == 1
    assert [(r.index, r.repetition, r.prompt) for r in records] == [
        (0, 0, "first"),
        (1, 0, "second"),
        (2, 0, "third"),
        (3, 1, "first"),
        (4, 1, "second"),
        (5, 1, "third"),
    ]
    assert {(r.outcome, r.output_tokens, r.token_source) for r in records} == {
        (RequestOutcome.OK, 4, TokenSource.USAGE)
    }
    assert (report.cancelled, report.notes) == (False, ())


async def test_the_body_asks_for_usage_and_carries_what_the_engine_added(serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(four_tokens)
    task = replace(make_task(server.url, prompts=["x"]), body={"temperature": 0, "max_tokens": 4, "stream": False})
    await run(task)
    assert server.bodies == [
        {
            "model": "tested",
            "messages": [{"role": "user", "content": "x"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": 4,
        }
    ]


async def test_a_closed_loop_keeps_exactly_its_concurrency_in_flight(serve: "Serve", make_task: "MakeTask") -> None:
    turns = itertools.count()

    async def uneven(exchange: "Exchange") -> None:
        for _ in range(1 + next(turns) % 5):
            await asyncio.sleep(0)
        await exchange.send_tokens(4, per_chunk=3)

    server = await serve(uneven)
    task = make_task(server.url, prompts=["a", "b", "c"], concurrency=4, requests=20, repetitions=2)
    records, report = await run(task)
    assert len(records) == 40
    assert sorted(r.index for r in records) == list(range(40))
    assert Counter(r.repetition for r in records) == {0: 20, 1: 20}
    assert {r.stream for r in records} == {0, 1, 2, 3}
    assert max(server.running_at_begin) == 4
    assert len(set(texts(server.bodies))) == 40, "no text is sent twice"
    assert "[14] a" in texts(server.bodies)
    assert report.achieved_concurrency is not None
    assert 3.0 < report.achieved_concurrency <= 4.0
    for stream in range(4):
        own = [r for r in records if r.stream == stream]
        assert all(before.end <= after.sent for before, after in itertools.pairwise(own))


async def test_records_have_the_times_of_the_reads(make_task: "MakeTask") -> None:
    role = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
    three = b'data: {"choices":[{"delta":{"content":"three tokens here"}}]}\n\n'
    end = (
        b'data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":9}}\n\ndata: [DONE]\n\n'
    )
    client = ScriptedClient([[(0.005, role), (0.8, three), (1.0, three), (1.3, three), (1.31, end)]] * 2)
    records: list[RequestRecord] = []
    task = make_task(prompts=["x"], requests=2, max_tokens=9)
    clock: Clock = ScriptedClock(client)
    report = await measure(task, start_measurement(task, client, clock, records.append))
    for record in records:
        assert time_to_first_token(record) == pytest.approx(0.8)
        assert (record.chunks, record.chunk_gaps_us) == (3, (200_000, 300_000))
        assert record.end - record.sent == pytest.approx(1.31)
    figures = summarise(records)
    assert figures.output_rate == pytest.approx(8 / 0.51), "to the finish_reason, at which the ninth token was there"
    assert figures.server_rate == pytest.approx(18 / 2.62)
    assert figures.tokens_per_chunk == 3.0
    assert report.achieved_concurrency == pytest.approx(1.0)


async def test_a_paced_server_and_the_record_agree_on_the_order_of_events(
    serve: "Serve", make_task: "MakeTask"
) -> None:
    clock = SystemClock()
    wrote: list[float] = []
    seen = asyncio.Event()

    async def paced(exchange: "Exchange") -> None:
        await exchange.send(b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n')
        for _ in range(3):
            wrote.append(clock.monotonic())
            seen.clear()
            await exchange.send(b'data: {"choices":[{"delta":{"content":"k tokens"}}]}\n\n')
            await seen.wait()
        wrote.append(clock.monotonic())
        await exchange.send(
            b'data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":12}}\n\n'
        )

    server = await serve(paced)
    records: list[RequestRecord] = []
    client = HttpStreamingClient(server.url, clock)
    task = make_task(server.url, prompts=["x"], max_tokens=12)
    measurement = start_measurement(task, client, clock, records.append)

    async def see() -> None:
        for chunks in (1, 2, 3):
            while measurement._chunks < chunks:  # noqa: ASYNC110  # the product has no event for it
                await asyncio.sleep(0.001)
            seen.set()

    await asyncio.gather(measure(task, measurement), see())
    (record,) = records
    first, last = record.first_text, record.last_text
    assert first is not None
    assert last is not None
    # The server wrote its next chunk only after this one was read: each read lies between two writes.
    assert record.sent <= wrote[0] <= first <= wrote[1]
    assert wrote[2] <= last <= wrote[3] <= record.end
    assert round(sum(record.chunk_gaps_us) / 1e6 - (last - first), 4) == 0


# --- failures --------------------------------------------------------------------------------------------------


async def test_a_failed_request_is_recorded_and_the_next_one_is_sent(serve: "Serve", make_task: "MakeTask") -> None:
    async def second_fails(exchange: "Exchange") -> None:
        if exchange.number == 2:
            await exchange.send(b'data: {"error": {"message": "engine died", "code": 500}}\n\ndata: [DONE]\n\n')
        else:
            await exchange.send_tokens(4 if exchange.number == 1 else 3)

    server = await serve(second_fails)
    records, _ = await run(make_task(server.url))
    assert [r.outcome for r in records] == [RequestOutcome.OK, RequestOutcome.FAILED, RequestOutcome.SHORT]
    assert records[1].error == "engine died (code 500)"


async def test_no_request_is_lost_to_connections_that_the_server_resets(serve: "Serve", make_task: "MakeTask") -> None:
    seen: Counter[str] = Counter()

    async def reset_every_first_try(exchange: "Exchange") -> None:
        seen[exchange.first_words] += 1
        if seen[exchange.first_words] == 1 and exchange.number % 2:
            exchange.cut()
            await asyncio.sleep(60)
        await exchange.send_tokens(4)

    server = await serve(reset_every_first_try)
    records, report = await run(make_task(server.url, concurrency=4, requests=24))
    assert {r.outcome for r in records} == {RequestOutcome.OK}
    assert len(records) == 24
    again = sum(1 for count in seen.values() if count == 2)
    assert again > 0
    assert report.notes == (f"requests sent again, reset before the first byte of the answer: {again}",)


async def test_a_request_that_does_not_end_in_time_fails(serve: "Serve", make_task: "MakeTask") -> None:
    gone = asyncio.Event()

    async def drip(exchange: "Exchange") -> None:
        try:
            while True:
                await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
                await asyncio.sleep(0.01)
        finally:
            gone.set()

    server = await serve(drip)
    records, _ = await run(make_task(server.url, prompts=["x"], request_timeout=0.2))
    assert [(r.outcome, r.error) for r in records] == [(RequestOutcome.FAILED, "not ended within 0.2 s")]
    assert records[0].chunks > 0
    await gone.wait()


async def test_a_server_that_falls_silent_fails_what_runs_and_ends_the_cell(
    serve: "Serve", make_task: "MakeTask"
) -> None:
    async def fall_silent(exchange: "Exchange") -> None:
        if exchange.number > 2:
            await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
            while True:
                await exchange.send(b": still here\n\n")
                await asyncio.sleep(0.02)
        await exchange.send_tokens(4)

    server = await serve(fall_silent)
    records, report = await run(make_task(server.url, concurrency=2, requests=10, stall_timeout=0.3))
    assert [r.outcome for r in records] == [RequestOutcome.OK] * 2 + [RequestOutcome.FAILED] * 2
    assert {r.error for r in records[2:]} == {"no token for 0.3 s"}
    assert not report.cancelled
    assert report.notes == (
        "stalled: no token for 0.3 s from any of 2 running requests",
        "requests not sent: 6 of 10",
    )


async def test_one_stream_that_tells_keeps_the_others_waiting(serve: "Serve", make_task: "MakeTask") -> None:
    async def one_waits(exchange: "Exchange") -> None:
        if exchange.number == 1:
            for _ in range(20):
                await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
                await asyncio.sleep(0.05)
        else:
            while server.running > 1:  # noqa: ASYNC110  # a count, not an event
                await asyncio.sleep(0.01)
        await exchange.send_tokens(4)

    server = await serve(one_waits)
    records, _ = await run(make_task(server.url, concurrency=2, requests=2, stall_timeout=0.8))
    assert {r.outcome for r in records} == {RequestOutcome.OK}


async def test_cancelling_ends_what_runs_at_once_and_sends_no_more(serve: "Serve", make_task: "MakeTask") -> None:
    left = asyncio.Event()

    async def endless(exchange: "Exchange") -> None:
        try:
            while True:
                await exchange.send(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n')
                await asyncio.sleep(0.005)
        finally:
            if server.running == 1:
                left.set()

    server = await serve(endless)
    records: list[RequestRecord] = []
    task = make_task(server.url, concurrency=3, requests=9)
    client = HttpStreamingClient(server.url, SystemClock())
    measurement = start_measurement(task, client, SystemClock(), records.append)

    async def stop_when_all_run() -> None:
        while measurement.progress().running < 3 or measurement._chunks < 9:  # noqa: ASYNC110  # as the runner sees it
            await asyncio.sleep(0.005)
        for _ in range(3):  # also while the first one is taking effect
            measurement.cancel()
            await asyncio.sleep(0)

    report, _ = await asyncio.gather(measure(task, measurement), stop_when_all_run())
    assert [r.outcome for r in records] == [RequestOutcome.CANCELLED] * 3
    assert all(r.chunks > 0 and r.error is None for r in records)
    assert report.cancelled
    assert report.notes == ("requests not sent: 6 of 9",)
    assert measurement.progress().requests_failed == 0
    await left.wait()


# --- warm-up, progress, refusals -------------------------------------------------------------------------------


async def test_warm_up_is_not_recorded_shares_no_beginning_and_counts_its_failures(
    serve: "Serve", make_task: "MakeTask"
) -> None:
    async def second_fails(exchange: "Exchange") -> None:
        if exchange.number == 2:
            await exchange.send(b'data: {"error": "cold"}\n\n')
        else:
            await exchange.send_tokens(4)

    server = await serve(second_fails)
    prompts = ["one two three", "four five"]
    records, report = await run(make_task(server.url, "single", prompts, warmup=3, max_tokens=4))
    assert texts(server.bodies) == [
        "[warm-up 1] three two one",
        "[warm-up 2] five four",
        "[warm-up 3] three two one",
        "one two three",
        "four five",
    ]
    assert [r.index for r in records] == [0, 1]
    assert (report.warmup_requests, report.warmup_failed) == (3, 1)
    assert report.notes == ("warm-up request 2 failed: cold",)


async def test_a_long_output_is_not_paid_for_in_the_warm_up(serve: "Serve", make_task: "MakeTask") -> None:
    server = await serve(four_tokens)
    await run(make_task(server.url, "single", ["x"], warmup=1, max_tokens=2048))
    assert [body["max_tokens"] for body in server.bodies] == [128, 2048]


async def test_progress_counts_requests_and_scales_chunks_to_tokens(make_task: "MakeTask") -> None:
    four = b'data: {"choices":[{"delta":{"content":"four tokens at once"}}]}\n\n'
    end = (
        b'data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":8}}\n\ndata: [DONE]\n\n'
    )
    client = ScriptedClient([[(0.5, four), (1.0, four), (1.0, end)]] * 2)
    task = make_task(prompts=["x"], requests=2, max_tokens=8)
    measurement: Measurement = start_measurement(task, client, ScriptedClock(client), lambda _: None)
    assert measurement.progress().output_rate is None
    await measure(task, measurement)
    progress = measurement.progress()
    assert (progress.requests_done, progress.requests_planned, progress.running) == (2, 2, 0)
    assert progress.output_rate == pytest.approx(16 / 2.0)


async def test_a_client_that_raises_is_a_failed_request(make_task: "MakeTask") -> None:
    class Refusing(ScriptedClient):
        async def stream(self, body: Mapping[str, Any], receiver: Receiver) -> None:
            self.bodies.append(body)
            receiver.received(0.0, b": nothing yet\n\n")
            raise StreamError("HTTP 503: full")

    client = Refusing([])
    records: list[RequestRecord] = []
    task = make_task()
    await measure(task, start_measurement(task, client, SystemClock(), records.append))
    assert [(r.outcome, r.error) for r in records] == [(RequestOutcome.FAILED, "HTTP 503: full")] * 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "burst"}, "one of closed-loop, conversation, open-loop, single"),
        ({"prompts": []}, "came without prompts"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"kind": "conversation"}, "came without its script"),
        ({"kind": "conversation", "script": Script("s", "", ())}, "has no turns"),
        ({"kind": "conversation", "script": THREE_TURNS, "turns": "both"}, "`replay` or `live`"),
        ({"kind": "conversation", "script": Script("s", "", (Turn("t", "u", ""),) * 2)}, "no scripted answer"),
    ],
)
def test_a_task_that_cannot_be_measured_is_refused(make_task: "MakeTask", change: dict[str, Any], said: str) -> None:
    task = make_task(**change)
    with pytest.raises(TaskRefusedError, match=said):
        start_measurement(task, ScriptedClient([]), SystemClock(), lambda _: None)
