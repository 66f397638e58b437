"""Is an agent there, and is it one we can talk to: asked before a session is given out."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

from ddconsole.core.visible_text import visible
from ddconsole.core.wire import Hello
from ddconsole.link.answers import hello_from_json, parse, refusal
from ddconsole.link.client import AgentError
from ddconsole.link.http_client import BASE_URL
from ddconsole.link.stages import Stage, StageError

HELLO_TIME = 5.0
"""Seconds for an agent that accepts a connection to say who it is."""
START_TIME = 30.0
"""Seconds from the start of an agent to its first hello: its imports on a loaded machine."""


class NobodyThere(Exception):
    """No process accepts connections at the socket."""


def new_session(connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
    """A session for one agent. Time limits are the caller's."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=15)
    return aiohttp.ClientSession(BASE_URL, connector=connector, timeout=timeout)


async def ask_hello(session: aiohttp.ClientSession, host: str) -> Hello:
    """Who answers.

    Raises:
        NobodyThere: the connection is refused.
        StageError: somebody accepts but does not answer, or it is no agent that we can talk to.
    """
    try:
        async with asyncio.timeout(HELLO_TIME), session.get("v1/hello") as response:
            body = await response.read()
        if response.status != 200:
            raise refusal(response.status, body)
        return hello_from_json(parse(body))
    except TimeoutError as problem:
        text = f"an agent's socket accepts but nobody answers within {HELLO_TIME:.0f} s"
        do = "look for a stopped or hung ddconsole.agent on the host"
        raise StageError(Stage.HANDSHAKE, host, text, do, final=False) from problem
    except (aiohttp.ClientError, OSError) as problem:
        raise NobodyThere(str(problem)) from problem
    except AgentError as problem:
        raise StageError(Stage.HANDSHAKE, host, problem.text, problem.do, final=True) from problem


async def wait_for_hello(
    session: aiohttp.ClientSession, host: str, look: Callable[[], Awaitable[dict[str, Any]]], deadline: float
) -> Hello:
    """Ask until the agent that was just started answers, or is gone.

    Args:
        session: to its socket.
        host: as the operator calls it.
        look: `on_host.look` with the pid of the agent, and its log's end under `log`.
        deadline: seconds.

    Raises:
        StageError: it ended, or did not answer in time; the end of its log is in the text.
    """
    now = asyncio.get_running_loop().time
    end, pause, seen = now() + deadline, 0.05, {"alive": True, "lock": None, "log": ""}
    while True:
        try:
            return await ask_hello(session, host)
        except NobodyThere:
            gone = not seen["alive"] and seen["lock"] is None
        if gone or now() > end:
            what = "the agent ended at once" if gone else f"the agent did not answer within {deadline:.0f} s"
            log = visible(str(seen["log"]).strip())[-1500:]
            do = "its log, agent.log in the state folder, says more"
            raise StageError(Stage.HANDSHAKE, host, f"{what}; {_told(log)}", do, final=gone)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.5)
        seen = await look()


def _told(log: str) -> str:
    return f"its log ends: {log}" if log else "its log is empty"
