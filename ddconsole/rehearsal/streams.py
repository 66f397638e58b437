"""One answer on its way to the client: chunks as the batch makes them, and what goes wrong in the middle."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from ddconsole.rehearsal.batch import Sequence
from ddconsole.rehearsal.chunks import DONE, error_in_stream, speculation
from ddconsole.rehearsal.faults import FaultName, FaultRule
from ddconsole.rehearsal.output import Output
from ddconsole.rehearsal.service import Service


class Chunks(Protocol):
    """One API's form of the events."""

    def first(self) -> bytes:
        """What comes before the text."""
        ...

    def text(self, output: Output, start: int, end: int, prompt: int, cached: int) -> bytes:
        """Some tokens."""
        ...

    def end(self, reason: str, prompt: int, tokens: int, cached: int, details: Mapping[str, Any] | None) -> bytes:
        """What comes after the text."""
        ...


class Stream:
    """Writes one request's answer."""

    def __init__(
        self, service: Service, sequence: Sequence, kill: Callable[[str], None], fault: FaultRule | None = None
    ) -> None:
        self._service = service
        self._sequence = sequence
        self._kill = kill
        self._fault = fault
        self._sent = 0
        """Tokens."""
        self._chunks_sent = 0

    async def until_end(self) -> None:
        """Wait for an answer that is not streamed."""
        try:
            while self._sequence.finish is None or self._service.batch.silent:
                await self._sequence.changed.wait()
                self._sequence.changed.clear()
        except asyncio.CancelledError:
            self._service.lose_client(self._sequence)
            raise

    async def answer(self, request: web.Request, chunks: Chunks) -> web.StreamResponse:
        """Stream the answer; status and header go out with the first token, as SGLang's do."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        try:
            while True:
                await self._sequence.changed.wait()
                self._sequence.changed.clear()
                data, last = self._due(chunks)
                if not response.prepared:
                    await response.prepare(request)
                if data:
                    await response.write(data)
                if last:
                    await response.write_eof()
                    return response
        except (ConnectionError, asyncio.CancelledError):
            self._service.lose_client(self._sequence)
            raise

    def _due(self, chunks: Chunks) -> tuple[bytes, bool]:
        """The bytes that are due, and whether they are the last."""
        sequence = self._sequence
        parts: list[bytes] = []
        prompt, cached = sequence.prompt_tokens, sequence.cached_tokens
        if self._fault is not None and self._fault.fault is FaultName.NO_TOKENS:
            self._service.batch.abort(sequence)
            return chunks.first() + chunks.end("stop", prompt, 0, cached, None), True
        for end in sequence.take():
            if not self._sent:
                parts.append(chunks.first())
            parts.append(chunks.text(sequence.output, self._sent, end, prompt, cached))
            self._sent = end
            self._chunks_sent += 1
            if self._fault is not None and self._chunks_sent == self._fault.at_chunk:
                return b"".join([*parts, *self._break(self._fault.fault)]), self._ends_stream()
        if sequence.finish is None:
            return b"".join(parts), False
        method = self._service.arguments.method
        details = speculation(sequence.output, sequence.steps, sequence.tokens, method) if method.speculative else None
        parts.append(chunks.end(sequence.finish, prompt, sequence.tokens, cached, details))
        return b"".join(parts), True

    def _ends_stream(self) -> bool:
        return self._fault is not None and self._fault.fault is FaultName.ERROR_IN_STREAM

    def _break(self, fault: FaultName) -> list[bytes]:
        """Let happen what the fault says; the answer is what still reaches this client."""
        batch = self._service.batch
        if fault is FaultName.ERROR_IN_STREAM:
            batch.abort(self._sequence)
            message = "simulated: the request was aborted by the scheduler"
            return [error_in_stream(message, "InternalServerError", 500), DONE]
        if fault is FaultName.CRASH_STREAMING:
            batch.freeze()
            self._kill("scheduler")
        elif fault is FaultName.DETOKENIZER_DEAD:
            batch.silent = True
            self._kill("detokenizer")
        elif fault is FaultName.HANG_STREAMING:
            batch.freeze()
        return []
