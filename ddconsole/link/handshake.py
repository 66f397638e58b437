"""Is an agent there, and is it one we can talk to: asked before a session is given out."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import aiohttp

from ddconsole import __version__
from ddconsole.core.visible_text import visible
from ddconsole.core.wire import PROTOCOL, Hello
from ddconsole.link.answers import hello_from_json, parse, refusal
from ddconsole.link.client import AgentError
from ddconsole.link.http_client import BASE_URL
from ddconsole.link.stages import Stage, StageError

Answer = TypeVar("Answer")

HELLO_TIME = 5.0
"""Seconds for an agent that accepts a connection to say who it is."""
START_TIME = 30.0
"""Seconds from the start of an agent to its first hello: its imports on a loaded machine."""
LOOK_TIME = 3.0
"""Seconds for a look at who is at fault for a silence."""
_LEAVE_TIME = 10.0


class NobodyThere(Exception):
    """No process accepts connections at the socket."""


class NotAnswering(StageError):
    """Somebody accepts connections at the socket but does not answer: an agent that starts, or one that hangs."""


class OtherProtocol(StageError):
    """An agent of an older version is there: it makes way when it conducts no run."""


def new_session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """A session for one agent. Time limits are the caller's."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=15)
    return aiohttp.ClientSession(BASE_URL, connector=connector, timeout=timeout)


async def ask_hello(session: aiohttp.ClientSession, host: str) -> Hello:
    """Who answers.

    Raises:
        NobodyThere: the connection is refused.
        OtherProtocol: an older agent answers that must or may make way.
        NotAnswering: somebody accepts but does not answer.
        StageError: it is no agent.
    """
    try:
        async with asyncio.timeout(HELLO_TIME), session.get("v1/hello") as response:
            body = await response.read()
        if response.status != 200:
            raise refusal(response.status, body)
        hello = hello_from_json(parse(body))
    except TimeoutError as problem:
        text = f"an agent's socket accepts but nobody answers within {HELLO_TIME:.0f} s"
        do = "look for a stopped or hung ddconsole.agent on the host"
        raise NotAnswering(Stage.HANDSHAKE, host, text, do, final=False) from problem
    except (aiohttp.ClientError, OSError) as problem:
        raise NobodyThere(str(problem)) from problem
    except AgentError as problem:
        raise StageError(Stage.HANDSHAKE, host, problem.text, problem.do, final=True) from problem
    _check_version(hello, host)
    return hello


def _check_version(hello: Hello, host: str) -> None:
    """Never two versions at once: what runs is used as it is, or refused by name; what is idle and older makes way."""
    agent = f"the agent (pid {hello.pid}) is ddconsole {hello.version} with protocol {hello.protocol}"
    here = f"this is ddconsole {__version__} with protocol {PROTOCOL}"
    if hello.protocol > PROTOCOL:
        do = f"use ddconsole {hello.version} here too"
        raise StageError(Stage.HANDSHAKE, host, f"E151 {agent}, {here}", do, final=True)
    if hello.protocol < PROTOCOL:
        do = f"wait until its run has ended, or use ddconsole {hello.version} here"
        raise OtherProtocol(Stage.HANDSHAKE, host, f"E150 {agent}, {here}", do, final=True)
    if hello.run is None and _parts(hello.version) < _parts(__version__):
        raise OtherProtocol(Stage.HANDSHAKE, host, f"E150 {agent}, {here}", "let it leave", final=True)


def version_note(hello: Hello) -> str:
    """What an operator is told of an agent of another version; empty where it is the same."""
    if hello.version == __version__:
        return ""
    if hello.run is not None:
        return f"agent {hello.version} runs a sweep; it is used as it is until the run ends (this is {__version__})"
    return f"agent {hello.version} is used as it is (this is {__version__})"


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


async def ask_to_leave(session: aiohttp.ClientSession, host: str, other: OtherProtocol) -> None:
    """Ask an agent of another protocol to leave, which it does when no run is active, and wait until it is gone.

    Raises:
        OtherProtocol: it stays.
    """
    try:
        async with asyncio.timeout(HELLO_TIME), session.post("v1/quit") as response:
            if not response.ok:
                raise other
        async with asyncio.timeout(_LEAVE_TIME):
            while True:
                with contextlib.suppress(OtherProtocol):
                    await ask_hello(session, host)
                await asyncio.sleep(0.1)
    except NobodyThere:
        return
    except (TimeoutError, aiohttp.ClientError, OSError) as problem:
        raise other from problem


async def wait_for_agent(
    ask: Callable[[], Awaitable[Answer]], host: str, look: Callable[[], Awaitable[Mapping[str, Any]]], deadline: float
) -> Answer:
    """Ask until the agent that was just started answers, or is gone.

    Args:
        ask: raises `NobodyThere` for as long as nobody answers.
        host: as the operator calls it.
        look: whether it is `alive`, who holds its `lock`, and the end of its `log`.
        deadline: seconds.

    Raises:
        StageError: it ended, or did not answer in time; the end of its log is in the text.
    """
    now = asyncio.get_running_loop().time
    end, pause = now() + deadline, 0.05
    gone = False
    while True:
        try:
            return await ask()
        except (NobodyThere, NotAnswering):
            pass
        if gone or now() > end:
            seen = await look()
            what = "the agent ended at once" if gone else f"the agent did not answer within {deadline:.0f} s"
            log = visible(str(seen["log"]).strip())[-1500:]
            text = f"{what}; its log ends: {log}" if log else f"{what}; its log is empty"
            raise StageError(Stage.HANDSHAKE, host, text, "agent.log in the state folder says more", final=gone)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.5)
        seen = await look()
        # Asked once more before it counts as gone: another console's agent may hold the lock and be about to answer.
        gone = not seen["alive"] and seen["lock"] is None
