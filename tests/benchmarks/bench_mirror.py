"""Coming back after six hours: time until the screens are current, and what the mirror costs beside it. Prints JSON.

The agent is a fake one at a unix socket with the journal, the log and the telemetry of six hours; a pipe between it and
the console carries a given number of bits a second, with 25 ms each way.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

sys.path += [str(Path(__file__).parents[1] / "rigs")]

from fake_agent import RUN, FakeAgent
from six_hours import six_hours
from waiting import until

from ddconsole.link.background_pace import BackgroundPace
from ddconsole.link.feed_run import LiveRunFeed
from ddconsole.link.handshake import new_session
from ddconsole.link.http_client import HttpAgentClient
from ddconsole.link.mirror import Mirror

_DELAY = 0.025
"""Seconds each way."""
_WATCHED = 20.0
"""Seconds for which commands are timed while the mirror catches up."""


class Pipe:
    """Carries bytes both ways between unix sockets, at one rate for all connections together."""

    def __init__(self, bits: float) -> None:
        self._rate = bits / 8
        self._free = 0.0
        self.carried = 0

    @asynccontextmanager
    async def between(self, here: Path, agent: Path) -> AsyncIterator[None]:
        """Listen at `here`, go on to `agent`."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            behind_reader, behind_writer = await asyncio.open_unix_connection(str(agent))
            try:
                await asyncio.gather(self._carry(reader, behind_writer), self._carry(behind_reader, writer))
            except (ConnectionError, asyncio.CancelledError):
                # The end of the measurement: the server's callback takes a cancelled connection for a fault.
                return
            finally:
                behind_writer.close()
                writer.close()

        server = await asyncio.start_unix_server(serve, str(here))
        try:
            yield
        finally:
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await reader.read(16 * 1024):
            self.carried += len(data)
            # One queue for all connections: what is sent first arrives first, as in a router's.
            self._free = max(loop.time(), self._free) + len(data) / self._rate
            loop.call_at(self._free + _DELAY, _deliver, writer, data)
            await asyncio.sleep(max(0.0, self._free - loop.time()))
        writer.write_eof()


def _deliver(writer: asyncio.StreamWriter, data: bytes) -> None:
    if not writer.is_closing():
        writer.write(data)


async def _times(client: HttpAgentClient, seconds: float) -> list[float]:
    """How long a small question takes, again and again."""
    taken: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        await client.hello()
        taken.append((time.monotonic() - began) * 1000)
        await asyncio.sleep(0.1)
    return sorted(taken)


async def measure(bits: float) -> dict[str, float]:
    """One attach over a link of that rate."""
    agent = FakeAgent()
    with tempfile.TemporaryDirectory(prefix="ddb-") as name:
        folder = Path(name)
        (folder / "copy").mkdir()
        (folder / "copy" / "journal.jsonl").write_bytes(b"".join(agent.lines))
        six_hours(agent)
        pipe = Pipe(bits)
        async with agent.listening(folder / "a"), pipe.between(folder / "b", folder / "a"):

            async def session() -> aiohttp.ClientSession:
                return new_session(aiohttp.UnixConnector(str(folder / "b")))

            client = HttpAgentClient(session, "fake")
            idle = await _times(client, 3.0)
            before = pipe.carried
            pace = BackgroundPace()
            mirror = Mirror(client, RUN, folder / "copy", pace=pace)
            feed = LiveRunFeed(client, RUN, journal=mirror.journal)
            began = time.monotonic()
            feed.start()
            mirror.start(reads_journal=False)
            await until(lambda: feed.state.seq == len(agent.lines))
            attached = time.monotonic() - began
            carried, copied = pipe.carried - before, pace.sent
            busy = await _times(client, _WATCHED)
            rate = (pace.sent - copied) / _WATCHED
            await feed.close()
            await mirror.close()
            await client.close()
    return {
        "link_mbit": bits / 1e6,
        "journal_entries": len(agent.lines),
        "journal_kib": round(sum(map(len, agent.lines)) / 1024),
        "attach_s": round(attached, 2),
        "attach_limit_s": 3,
        "attach_kib_on_link": round(carried / 1024),
        "mirror_kib_by_then": round(copied / 1024),
        "hello_ms_idle_p50": round(statistics.median(idle)),
        "hello_ms_catching_up_p50": round(statistics.median(busy)),
        "hello_ms_catching_up_p95": round(busy[int(len(busy) * 0.95)]),
        "mirror_kib_per_s_on_link": round(rate / 1024),
    }


def main() -> None:
    """Measure and print."""
    for bits in (100e6, 10e6, 2e6):
        print(json.dumps(asyncio.run(measure(bits))))


if __name__ == "__main__":
    main()
