"""Requests at their own times: the schedule, and latencies from the time at which a request was meant to be sent."""

import asyncio
import itertools
import statistics
from typing import TYPE_CHECKING

import pytest

from ddconsole.core.clock import SystemClock
from ddconsole.core.figures import summarise, time_to_first_token
from ddconsole.core.records import RequestOutcome, RequestRecord
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.load.client import HttpStreamingClient
from ddconsole.load.task import LoadReport, LoadTask
from ddconsole.load.workload import TaskRefusedError, arrival_times, measure, start_measurement

if TYPE_CHECKING:
    from tests.load.conftest import Exchange, MakeTask, Serve


def point(rate: float, arrivals: str, seed: int = 7) -> WorkloadPoint:
    return WorkloadPoint("w", "open-loop", "p", 8, 4, 1, 8, Sampling(), rate=rate, arrivals=arrivals, arrival_seed=seed)


async def run(task: LoadTask) -> tuple[list[RequestRecord], LoadReport]:
    records: list[RequestRecord] = []
    client = HttpStreamingClient(task.base_url, SystemClock())
    report = await measure(task, start_measurement(task, client, SystemClock(), records.append))
    return sorted(records, key=lambda one: one.index), report


def test_a_constant_rate_has_equal_gaps() -> None:
    assert arrival_times(point(4, "constant"), 5) == [0.0, 0.25, 0.5, 0.75, 1.0]


def test_poisson_gaps_have_the_mean_and_the_spread_of_their_kind_and_are_the_same_for_every_method() -> None:
    """Exponential gaps: mean and standard deviation are both 1 / rate. Of 20,000, each is within 3 % of it."""
    times = arrival_times(point(50, "poisson"), 20_001)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == 0.0
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.03)
    assert times == arrival_times(point(50, "poisson"), 20_001)
    assert times != arrival_times(point(50, "poisson", seed=8), 20_001)


async def test_requests_do_not_wait_for_answers(serve: "Serve", make_task: "MakeTask") -> None:
    """The server answers nobody before all twelve have come: a loop that waits would never end."""
    everybody = asyncio.Barrier(12)

    async def together(exchange: "Exchange") -> None:
        await everybody.wait()
        await exchange.send_tokens(4)

    server = await serve(together)
    task = make_task(server.url, "open-loop", requests=12, concurrency=2, rate=200.0, arrivals="constant")
    records, _ = await asyncio.wait_for(run(task), 60)
    assert len(records) == 12
    assert {one.outcome for one in records} == {RequestOutcome.OK}
    meant = [one.intended for one in records]
    assert [round((at or 0) - (meant[0] or 0), 6) for at in meant] == [round(n / 200, 6) for n in range(12)]
    assert all(one.intended is not None and one.sent >= one.intended for one in records)


async def test_a_slow_server_shows_in_the_latency_and_not_in_the_rate(serve: "Serve", make_task: "MakeTask") -> None:
    """Answers one after the other, 0.05 s each, while requests come every 0.01 s: the last of ten waits 0.4 s or more.

    A closed loop of one stream would read 0.05 s for each of them.
    """
    one_at_a_time = asyncio.Lock()

    async def slow(exchange: "Exchange") -> None:
        async with one_at_a_time:
            await asyncio.sleep(0.05)
            await exchange.send_tokens(4)

    server = await serve(slow)
    task = make_task(server.url, "open-loop", requests=10, rate=100.0, arrivals="constant")
    records, _ = await run(task)
    waited = [time_to_first_token(one) or 0 for one in records]
    assert max(waited) >= 10 * 0.05 - 9 * 0.01
    figures = summarise(records)
    assert figures.send_delay is not None
    assert figures.send_delay >= 0
    assert figures.steady_rate is None


async def test_a_cancelled_open_loop_sends_no_more(serve: "Serve", make_task: "MakeTask") -> None:
    async def answer(exchange: "Exchange") -> None:
        await exchange.send_tokens(4)

    server = await serve(answer)
    task = make_task(server.url, "open-loop", requests=50, rate=0.01, arrivals="poisson", arrival_seed=1)
    records: list[RequestRecord] = []
    client = HttpStreamingClient(task.base_url, SystemClock())
    measurement = start_measurement(task, client, SystemClock(), records.append)
    running = asyncio.create_task(measure(task, measurement))
    while not records:  # noqa: ASYNC110  # the product has no event for it
        await asyncio.sleep(0.01)
    measurement.cancel()
    report = await asyncio.wait_for(running, 30)
    assert report.cancelled
    assert len(records) == 1
    assert any("requests not sent: 49 of 50" in note for note in report.notes)


@pytest.mark.parametrize(
    ("wrong", "said"), [({"rate": None}, "rate is None"), ({"rate": 0.0}, "rate is 0"), ({"arrivals": "x"}, "arrivals")]
)
def test_a_task_without_a_rate_is_refused(make_task: "MakeTask", wrong: dict[str, object], said: str) -> None:
    task = make_task(kind="open-loop", **{"rate": 1.0, "arrivals": "constant"} | wrong)
    with pytest.raises(TaskRefusedError, match=said):
        start_measurement(task, HttpStreamingClient("http://127.0.0.1:1", SystemClock()), SystemClock(), print)
