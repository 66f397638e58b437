"""Calls of `on_host.py`: the program text that goes to a Python's stdin, and the answer out of what it printed."""

import asyncio
import inspect
import json
import secrets
import sys
from typing import Any

from ddconsole.core.visible_text import visible
from ddconsole.link import on_host


class HostRefusal(Exception):
    """The host refused, or did not do what it was told: what is wrong, and what helps."""

    def __init__(self, text: str, do: str) -> None:
        super().__init__(text)
        self.text = text
        self.do = do


def new_nonce() -> str:
    """A word that no banner prints by chance."""
    return f"ddconsole-{secrets.token_hex(8)}"


def program(nonce: str, action: str, arguments: dict[str, Any]) -> bytes:
    """What `python -I -S -B -` is given on stdin. Nothing of the arguments passes a shell."""
    call = json.dumps([nonce, action, arguments])
    return f"{inspect.getsource(on_host)}\n\nmain(*json.loads({call!r}))\n".encode()


def answer_of(nonce: str, output: bytes, errors: bytes, status: int) -> Any:
    """What the action gave back, found by its nonce among whatever else was printed.

    Raises:
        HostRefusal: it refused, or there is no answer.
    """
    for line in reversed(output.decode(errors="replace").splitlines()):
        head, _, rest = line.partition(" ")
        if head == nonce:
            answer = json.loads(rest)
            if "error" in answer:
                raise HostRefusal(visible(answer["error"]), visible(answer["do"]))
            return answer["ok"]
    printed = visible((errors or output).decode(errors="replace").strip()[-400:])
    raise HostRefusal(f"Python ended with status {status} and said: {printed}", "run it on the host by hand")


async def call_here(action: str, arguments: dict[str, Any], deadline: float = 30.0) -> Any:
    """Do an action on this machine, in a process of its own: what it starts is nobody's child here.

    Raises:
        HostRefusal: as `answer_of`.
    """
    nonce = new_nonce()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(deadline):
            output, errors = await process.communicate(program(nonce, action, arguments))
    except TimeoutError as problem:
        process.kill()
        await process.wait()
        raise HostRefusal(f"{action} took longer than {deadline:.0f} s", "look at the machine's load") from problem
    return answer_of(nonce, output, errors, process.returncode or 0)
