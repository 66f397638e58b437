"""Is an agent there, and is it one we can talk to: asked before a session is given out."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import aiohttp

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
    """An agent is there that this console cannot talk to."""


def new_session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """A session for one agent. Time limits are the caller's."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=15)
    return aiohttp.ClientSession(BASE_URL, connector=connector, timeout=timeout)


async def ask_hello(session: aiohttp.ClientSession, host: str) -> Hello:
    """Who answers.

    Raises:
        NobodyThere: the connection is refused.
        OtherProtocol: an older or newer agent answers.
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
    if hello.protocol != PROTOCOL:
        older = "agent" if hello.protocol < PROTOCOL else "console"
        text = f"the agent {hello.version} (pid {hello.pid}) speaks protocol {hello.protocol}, this console {PROTOCOL}"
        do = "wait until its run has ended, or use its version here" if older == "agent" else "use a newer console"
        raise OtherProtocol(Stage.HANDSHAKE, host, text, do, final=True)
    return hello


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
