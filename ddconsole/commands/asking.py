"""Questions of a login on the command line: on the terminal itself, without echo for secrets, and with a time limit."""

import asyncio
import os
import sys
import termios
from contextlib import suppress

from ddconsole.core.visible_text import visible_line
from ddconsole.link.prompting import Prompt, Prompts

_TERMINAL = "/dev/tty"
_LONGEST = 4096


def prompts_of_terminal() -> Prompts:
    """Prompts that are asked on the terminal, or of nobody where there is none: a script must not hang."""
    with suppress(OSError):
        if sys.stdin.isatty():
            os.close(os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
            return Prompts(ask_on_terminal)
    return Prompts()


async def ask_on_terminal(prompt: Prompt) -> str | None:
    """Ask, and read one line. Unlike `getpass` it can be given up, and puts the terminal back as it was.

    Raises:
        OSError: the terminal is gone.
    """
    terminal = os.open(_TERMINAL, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        before = termios.tcgetattr(terminal)
        lines = [f"{prompt.host}: {prompt.title}", *(f"  {line}" for line in prompt.lines)]
        text = "".join(f"{visible_line(line)}\n" for line in lines)
        os.write(terminal, f"{text}{visible_line(prompt.label)}: ".encode())
        try:
            if prompt.secret:
                silent = [*before]
                silent[3] &= ~termios.ECHO
                termios.tcsetattr(terminal, termios.TCSAFLUSH, silent)
            return await _line_of(terminal)
        finally:
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)
            os.write(terminal, b"\n" if prompt.secret else b"")
    finally:
        os.close(terminal)


async def _line_of(terminal: int) -> str | None:
    """What is typed up to enter; None at its end (ctrl+d)."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[bytes] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(os.read(terminal, _LONGEST))

    loop.add_reader(terminal, read)
    try:
        data = await typed
    finally:
        loop.remove_reader(terminal)
    return data.decode(errors="replace").rstrip("\r\n") if data else None
