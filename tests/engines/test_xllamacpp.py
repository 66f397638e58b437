"""A real llama.cpp server, started as the runner would start it."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ddconsole.core.sweep import Speculative, WorkloadPoint
from ddconsole.engines.engine import Answer, LogReader, Readiness, ServerStart
from ddconsole.engines.failures import classify
from ddconsole.engines.register import engine

pytestmark = pytest.mark.engine

LLAMA = engine("llamacpp")
MODELS = Path(__file__).parents[1] / "fixtures" / "models"
Start = Callable[..., ServerStart]


class HttpApi:
    """A `ServerApi` with a fresh connection for each request: llama.cpp closes kept-alive ones."""

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"

    async def get(self, path: str, timeout: float = 5.0) -> Answer:
        return await self._ask("GET", path, None, timeout)

    async def post(self, path: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> Answer:
        return await self._ask("POST", path, body, timeout)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Answer:
        limit = aiohttp.ClientTimeout(total=timeout)
        connector = aiohttp.TCPConnector(force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=limit) as session,
            session.request(method, self.base + path, json=body) as response,
        ):
            text = await response.text()
        try:
            return Answer(response.status, json.loads(text), text)
        except ValueError:
            return Answer(response.status, None, text)


@pytest.fixture(scope="module")
def known() -> frozenset[str]:
    command = LLAMA.help_command(LLAMA.default_command(sys.executable))
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return LLAMA.flags_of_help(text)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def a_start(start: Start, known: frozenset[str], **fields: Any) -> ServerStart:
    built = start(known=known, args={"threads": 1}, size=2, context_tokens=500, **fields)
    command = LLAMA.default_command(sys.executable)
    return replace(built, command=command, model=str(MODELS / "tinypy.gguf"), port=free_port())


class Server:
    """A process with its log in a file, as the runner keeps it."""

    def __init__(self, process: subprocess.Popen[bytes], log_file: Path, asked: ServerStart) -> None:
        self.process = process
        self.log_file = log_file
        self.asked = asked
        self.api = HttpApi(asked.port)

    def log(self) -> LogReader:
        reader = LLAMA.log_reader()
        for line in self.lines():
            reader.feed(line)
        return reader

    def lines(self) -> list[str]:
        return self.log_file.read_text(encoding="utf-8", errors="replace").split("\n")

    async def settled(self) -> Readiness:
        """Asked until ready, refused for good, or gone."""
        found = await LLAMA.check_ready(self.api, self.asked, self.log())
        for _ in range(600):
            if found.ready or found.cause is not None or self.process.poll() is not None:
                break
            await asyncio.sleep(0.05)
            found = await LLAMA.check_ready(self.api, self.asked, self.log())
        return found

    async def gone(self) -> int:
        return await asyncio.to_thread(self.process.wait, 20)


@asynccontextmanager
async def serving(asked: ServerStart, folder: Path) -> AsyncIterator[Server]:
    command = LLAMA.server_command(asked)
    log_file = folder / f"server-{asked.port}.log"
    with log_file.open("wb") as output:
        process = subprocess.Popen(  # noqa: ASYNC220  # a few milliseconds, and the same object in all tests
            command.argv, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield Server(process, log_file, asked)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(20)


async def ask(server: Server, body: Mapping[str, Any], words: str = "def add(a, b):") -> dict[str, Any]:
    messages = [{"role": "user", "content": words}]
    answer = await server.api.post("/v1/chat/completions", {**body, "stream": False, "messages": messages})
    assert answer.status == 200, answer.text
    found: dict[str, Any] = answer.body
    return found


def test_its_help_tells_its_flags(known: frozenset[str]) -> None:
    assert {"-m", "--model", "-np", "--parallel", "--metrics", "--slots", "--spec-type", "-md", "--cache-ram"} <= known


def test_its_build() -> None:
    command = LLAMA.build_command(LLAMA.default_command(sys.executable))
    assert command is not None
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert told["version"].startswith("xllamacpp ")
    module = (sys.executable, "-m", "ddconsole.engines.xllamacpp_server")
    again = subprocess.run(
        LLAMA.build_command(module) or (),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[2],
    )
    assert json.loads(again.stdout) == told


async def test_a_draft_model_speculates_and_counters_move(
    start: Start, known: frozenset[str], point: Callable[..., WorkloadPoint], tmp_path: Path
) -> None:
    typed = Speculative("draft", draft_tokens=4)
    asked = a_start(start, known, speculative=typed, draft=str(MODELS / "tinypy-draft.gguf"))
    async with serving(asked, tmp_path) as server:
        ready = await server.settled()
        assert ready.ready, ready.why
        assert ready.effective["speculative"] is True
        assert ready.effective["total_slots"] == 2
        before = await LLAMA.counters(server.api)
        body = LLAMA.request_body(asked, point())
        answer = await ask(server, body)
        after = await LLAMA.counters(server.api)
        assert before is not None
        assert after is not None
        assert answer["usage"]["completion_tokens"] == 256
        assert (after.output_tokens or 0) - (before.output_tokens or 0) == 256
        assert after.accepted == answer["timings"]["draft_n_accepted"]
        assert after.drafted == answer["timings"]["draft_n"]
        assert 0 < (after.drafting_steps or 0) < 256
        assert await LLAMA.running_requests(server.api) == 0
        # Stopping as the runner does: one SIGTERM on an idle server is enough.
        server.process.send_signal(signal.SIGTERM)
        assert await server.gone() == 0


async def test_the_flush_really_empties_the_prefix_cache(
    start: Start, known: frozenset[str], point: Callable[..., WorkloadPoint], tmp_path: Path
) -> None:
    asked = a_start(start, known)
    async with serving(asked, tmp_path) as server:
        assert (await server.settled()).ready
        body = {**LLAMA.request_body(asked, point(kind="conversation")), "max_tokens": 8}
        prompts = ("def add(a, b): return", "class Reader with a method", "import json, sys, os and")

        async def cached(words: str) -> int:
            return int((await ask(server, body, words))["usage"]["prompt_tokens_details"]["cached_tokens"])

        for words in prompts:
            await cached(words)
        assert await cached(prompts[2]) > 8
        flush = await LLAMA.flush_cache(server.api)
        assert flush.done, flush.detail
        assert await cached(prompts[0]) == 0


async def test_a_stream_does_not_keep_it_from_stopping(
    start: Start, known: frozenset[str], point: Callable[..., WorkloadPoint], tmp_path: Path
) -> None:
    asked = a_start(start, known)
    async with serving(asked, tmp_path) as server:
        assert (await server.settled()).ready
        body = {**LLAMA.request_body(asked, point()), "max_tokens": 100_000}
        request = {**body, "messages": [{"role": "user", "content": "def"}]}
        async with aiohttp.ClientSession() as session:
            response = await session.post(f"{server.api.base}/v1/chat/completions", json=request)
            await response.content.readany()
            for step in LLAMA.stop_steps:
                server.process.send_signal(step.signal)
                try:
                    await asyncio.to_thread(server.process.wait, step.grace)
                    break
                except subprocess.TimeoutExpired:
                    continue
            response.close()
        assert server.process.poll() is not None


async def test_a_taken_port_and_a_missing_model(start: Start, known: frozenset[str], tmp_path: Path) -> None:
    asked = a_start(start, known)
    async with serving(asked, tmp_path) as server:
        assert (await server.settled()).ready
        other = replace(a_start(start, known, served_name="run/l02"), port=asked.port)
        second = tmp_path / "second"
        second.mkdir()
        async with serving(other, second) as refused:
            status = await refused.gone()
            assert status == 1
            cause = classify("llamacpp", refused.lines(), "init server", status, we_stopped_it=False)
            assert cause.id == "LC-BIND"
            told = await LLAMA.check_ready(server.api, other, LLAMA.log_reader())
            assert told.cause is not None
            assert told.cause.id == "FOREIGN-SERVER"
    missing = replace(a_start(start, known), model=str(tmp_path / "nothing.gguf"))
    async with serving(missing, tmp_path) as server:
        status = await server.gone()
        assert classify("llamacpp", server.lines(), "load weights", status, we_stopped_it=False).id == "LC-PATH"


async def test_a_draft_of_another_vocabulary_is_found_out(start: Start, known: frozenset[str], tmp_path: Path) -> None:
    draft = tmp_path / "other-vocabulary.gguf"
    draft.write_bytes((MODELS / "tinypy-draft.gguf").read_bytes().replace(b"return", b"retorn"))
    asked = a_start(start, known, speculative=Speculative("draft"), draft=str(draft))
    async with serving(asked, tmp_path) as server:
        found = await server.settled()
        assert found.cause is not None
        assert found.cause.id == "SPECULATION-OFF"
        assert "not compatible" in found.cause.evidence[0]
        assert server.process.poll() is None
