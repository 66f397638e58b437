"""A load task played to its end against a test's server, and what most of those servers say and ask."""

from typing import TYPE_CHECKING

from ddconsole.core.clock import SystemClock
from ddconsole.core.records import RequestRecord
from ddconsole.load.client import HttpStreamingClient, StreamingClient
from ddconsole.load.task import LoadReport, LoadTask, Script, Turn
from ddconsole.load.workload import measure, start_measurement

if TYPE_CHECKING:
    from tests.load.conftest import Exchange

THREE_TURNS = Script(
    "build", "You build.", (Turn("one", "u1", "a1"), Turn("two", "u2", "a2"), Turn("three", "u3", "a3"))
)


async def run(task: LoadTask) -> tuple[list[RequestRecord], LoadReport]:
    records: list[RequestRecord] = []
    client = HttpStreamingClient(task.base_url, SystemClock())
    report = await measure(task, start_measurement(task, client, SystemClock(), records.append))
    return records, report


class Kept:
    """Takes what a request brings, and keeps it."""

    def __init__(self) -> None:
        self.sent_at: list[float] = []
        self.pieces: list[tuple[float, bytes]] = []

    def sent(self, at: float) -> None:
        self.sent_at.append(at)

    def received(self, at: float, data: bytes) -> bool:
        self.pieces.append((at, data))
        return False

    @property
    def whole(self) -> bytes:
        return b"".join(data for _, data in self.pieces)


async def answer_of(client: StreamingClient) -> bytes:
    """All of one answer."""
    kept = Kept()
    await client.stream({"x": 1}, kept)
    return kept.whole


async def four_tokens(exchange: "Exchange") -> None:
    await exchange.send_tokens(4)
