"""Text out of the console: into tmux's buffer or the terminal's clipboard, and always into a file."""

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from screens.state_folder import state_folder

_LONGEST_OSC52 = 74_994
"""Bytes that terminals take in one OSC 52 sequence."""


async def copy_text(text: str, environment: Mapping[str, str], osc52: Callable[[str], None]) -> str:
    """Copy, and say by which way: nobody can tell whether a terminal took what it was sent.

    Args:
        text: what to copy.
        environment: where `TMUX` tells that tmux is there.
        osc52: sends text to the terminal's clipboard.
    """
    path = save_text(text, "last-copy.txt")
    if environment.get("TMUX") and await _into_tmux(text):
        return f"copied to tmux's buffer (prefix ] pastes), and to {path}"
    if len(text.encode("utf-8", "replace")) <= _LONGEST_OSC52:
        osc52(text)
        return f"sent to the terminal's clipboard (OSC 52; some terminals refuse it), and to {path}"
    return f"too long for the terminal's clipboard: written to {path}"


async def _into_tmux(text: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(
            "tmux",
            "load-buffer",
            "-w",
            "-",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with asyncio.timeout(3):
            await process.communicate(text.encode("utf-8", "replace"))
    except (OSError, TimeoutError):
        return False
    return process.returncode == 0


def save_text(text: str, name: str) -> Path:
    """Write a file in the console's state folder and say where it is."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".") or "text"
    path = state_folder() / safe
    path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
