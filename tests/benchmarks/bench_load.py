"""CPU of the load generator per streamed chunk: `python tests/benchmarks/bench_load.py`. Prints one JSON object.

`read`: splitting and reading chunks that are in memory, also as a multiple of the CPU time of `json.loads` on the same
chunks, which does not depend on the machine. `loopback_paced`: the whole client against a server in another
process that sends each chunk by itself, a few milliseconds apart, so that every chunk is a read. `loopback_burst`: the
same without a pause, where many chunks come in one read.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable

from ddconsole.core.clock import SystemClock
from ddconsole.core.records import RequestRecord
from ddconsole.core.sweep import Sampling, WorkloadPoint
from ddconsole.load.chat_stream import ChatStream, RequestIdentity
from ddconsole.load.client import HttpStreamingClient
from ddconsole.load.task import LoadTask, Prompt
from ddconsole.load.workload import measure, start_measurement

CHUNKS = 1000
PASS = 20_000
STREAMS = 8
HEAD = '"object":"chat.completion.chunk","created":1796009733,"model":"default"'
CHUNK = (
    f'data: {{"id":"84299009f446430c932048372da73961",{HEAD},"choices":[{{"index":0,"delta":{{"reasoning_content":null,'
    '"content":" tokens"},"logprobs":null,"finish_reason":null,"matched_stop":null}]}\n\n'
).encode()
END = (
    f'data: {{"id":"x",{HEAD},"choices":[{{"index":0,"delta":{{}},"finish_reason":"length"}}]}}\n\n'
    f'data: {{"id":"x",{HEAD},"choices":[],"usage":{{"prompt_tokens":109,"completion_tokens":{CHUNKS}}}}}\n\n'
    "data: [DONE]\n\n"
).encode()


def read_only() -> dict[str, float]:
    """CPU per chunk, the least of five passes: other processes only add to it."""

    def streamed() -> None:
        stream = ChatStream(RequestIdentity(0, 0, "x", 0, 0), 0.0, CHUNKS, fixed_length=True)
        for number in range(PASS):
            stream.feed(number * 0.001, CHUNK)

    def parsed() -> None:
        text = CHUNK[6:-2]
        for _ in range(PASS):
            json.loads(text)

    cost, floor = (min(_cpu(work) for _ in range(5)) / PASS * 1e6 for work in (streamed, parsed))
    return {"cpu_us_per_chunk": round(cost, 2), "times_json_alone": round(cost / floor, 2)}


def _cpu(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


async def loopback(pause: float) -> dict[str, float]:
    """All streams at once against a server in another process."""
    command = [sys.executable, __file__, "serve", str(pause)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:  # noqa: ASYNC220  # before anything is measured
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        point = WorkloadPoint("bench", "closed-loop", "x", STREAMS, CHUNKS, 1, STREAMS, Sampling())
        task = LoadTask("c001", 1, url, "default", point, (Prompt("x", "x"),), None)
        records: list[RequestRecord] = []
        try:
            client = HttpStreamingClient(url, SystemClock())
            report = await measure(task, start_measurement(task, client, SystemClock(), records.append))
        finally:
            server.kill()
    chunks = sum(record.chunks for record in records)
    assert chunks == STREAMS * CHUNKS, [record.error for record in records]
    return {
        "cpu_ms_per_thousand_chunks": round(report.cpu_seconds / chunks * 1e6, 2),
        "cpu_percent": round(report.cpu_seconds / report.wall_seconds * 100, 1),
        "chunks_per_second": round(chunks / report.wall_seconds),
        "worst_loop_lag_ms": round(report.worst_loop_lag * 1e3, 2),
    }


async def serve(pause: float) -> None:
    """Answer every connection with `CHUNKS` chunks, `pause` seconds apart; print the port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for data in [CHUNK] * CHUNKS + [END]:
            writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            await writer.drain()
            await asyncio.sleep(pause)
        writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(float(sys.argv[2])))
        return
    figures = {
        "read": read_only(),
        "loopback_paced": asyncio.run(loopback(0.005)),
        "loopback_burst": asyncio.run(loopback(0.0)),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
