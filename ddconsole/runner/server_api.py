"""HTTP to the server under test, for readiness and counters. Measuring has a client of its own."""

import asyncio
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import aiohttp

from ddconsole.core.clock import Clock
from ddconsole.engines.engine import Answer


class HttpServerApi:
    """`ServerApi` over aiohttp: a fresh connection for every request, timeouts on the machine's own clock."""

    def __init__(self, port: int, clock: Clock, host: str = "127.0.0.1") -> None:
        self._base = f"http://{host}:{port}"
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()
            # Closed transports say goodbye in the loop's next round; a loop that ends before it would complain.
            await asyncio.sleep(0)

    async def get(self, path: str, timeout: float = 5.0) -> Answer:
        """GET; a broken connection is an `OSError`."""
        return await self._ask("GET", path, None, timeout)

    async def post(self, path: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> Answer:
        """POST JSON; a broken connection is an `OSError`."""
        return await self._ask("POST", path, body, timeout)

    async def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Answer:
        assert self._session is not None
        # A floor of two real seconds: a fast clock must not time out a slow machine.
        limit = aiohttp.ClientTimeout(total=max(self._clock.real_seconds(timeout), 2.0))
        try:
            async with self._session.request(method, self._base + path, json=body, timeout=limit) as response:
                text = await response.text(errors="replace")
        except aiohttp.ClientError as problem:
            raise OSError(f"{method} {path}: {str(problem) or type(problem).__name__}") from problem
        return Answer(response.status, _parsed(text), text)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
