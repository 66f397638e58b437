"""What a displaced unit serves, found out before it is stopped, so that the same can be asked when it is back."""

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
import psutil

_LOOK_DEADLINE = 5.0
_COMPLETION_DEADLINE = 60.0
"""Seconds for one token: the server may be busy with what it was started for."""
_REFUSED = (401, 403)
"""Answers of a server that wants a key: it serves, and the same answer is all that can be asked of it."""


@dataclass(frozen=True, slots=True)
class Served:
    """One request that a server answered, and the status of its answer."""

    url: str
    body: Mapping[str, Any] | None
    """None for a GET."""
    status: int


def served_to_json(served: Served | None) -> dict[str, Any] | None:
    """As it is written down."""
    return asdict(served) if served is not None else None


def served_from_json(data: Mapping[str, Any] | None) -> Served | None:
    """The inverse.

    Raises:
        KeyError: it is something else.
    """
    return Served(str(data["url"]), data["body"], int(data["status"])) if data else None


async def find_served(pids: Iterable[int]) -> Served | None:
    """The completion that one of these processes answers; None where none speaks an API that we know."""
    for host, port in sorted(await asyncio.to_thread(_listening, tuple(pids))):
        found = await _of_port(f"http://{host}:{port}")
        if found is not None:
            return found
    return None


async def answers(served: Served) -> bool:
    """Whether it answers as it did before."""
    status, text = await _request(served.url, served.body, _COMPLETION_DEADLINE)
    return status == served.status and (status != 200 or _is_object(text))


def _listening(pids: tuple[int, ...]) -> set[tuple[str, int]]:
    """Addresses of TCP ports that processes listen on; those of every interface as those of this machine."""
    found = set()
    for pid in pids:
        try:
            connections = psutil.Process(pid).net_connections(kind="tcp")
        except psutil.Error:
            continue
        for one in connections:
            if one.status == psutil.CONN_LISTEN:
                host = {"0.0.0.0": "127.0.0.1", "::": "127.0.0.1"}.get(one.laddr.ip, one.laddr.ip)  # noqa: S104  # read, not bound
                found.add((f"[{host}]" if ":" in host else host, one.laddr.port))
    return found


async def _of_port(base: str) -> Served | None:
    status, text = await _request(f"{base}/v1/models", None, _LOOK_DEADLINE)
    if status in _REFUSED:
        return Served(f"{base}/v1/models", None, status)
    model = _model(text) if status == 200 else None
    if model is None:
        return None
    message = [{"role": "user", "content": "Hello"}]
    for path, body in (
        ("/v1/completions", {"model": model, "prompt": "Hello", "max_tokens": 1}),
        ("/v1/chat/completions", {"model": model, "messages": message, "max_tokens": 1}),
        ("/generate", {"text": "Hello", "sampling_params": {"max_new_tokens": 1}}),
    ):
        status, text = await _request(base + path, body, _COMPLETION_DEADLINE)
        if status in _REFUSED or (status == 200 and _is_object(text)):
            return Served(base + path, body, status)
    return None


def _model(text: str) -> str | None:
    try:
        return str(json.loads(text)["data"][0]["id"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


async def _request(url: str, body: Mapping[str, Any] | None, deadline: float) -> tuple[int, str]:
    """Status and text of an answer; status 0 where there is none in time, or it is no HTTP."""
    timeout = aiohttp.ClientTimeout(total=deadline)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request("GET" if body is None else "POST", url, json=body) as answer,
        ):
            return answer.status, (await answer.content.read(1 << 20)).decode(errors="replace")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        return 0, ""
