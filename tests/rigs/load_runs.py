"""A load task played to its end against a test's server, and what most of those servers say and ask."""

from typing import TYPE_CHECKING

from ddconsole.core.clock import SystemClock
from ddconsole.core.records import RequestRecord
from ddconsole.load.client import HttpStreamingClient
from ddconsole.load.task import LoadReport, LoadTask, Script, Turn
from ddconsole.load.workload import measure, start_measurement

if TYPE_CHECKING:
    from tests.load.conftest import Exchange

THREE_TURNS = Script(
    "build", "You build.", (Turn("one", "u1", "a1"), Turn("two", "u2", "a2"), Turn("three", "u3", "a3"))
)


async def run(task: LoadTask) -> tuple[list[RequestRecord], LoadReport]:
    records: list[RequestRecord] = []
    async with HttpStreamingClient(task.base_url, SystemClock()) as client:
        report = await measure(task, start_measurement(task, client, SystemClock(), records.append))
    return records, report


async def four_tokens(exchange: "Exchange") -> None:
    await exchange.send_tokens(4)
