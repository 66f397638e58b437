"""A terminal that a killed console left behind is put right by the next ddconsole that starts in it."""

import contextlib
import fcntl
import os
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from ddconsole.commands.places import state_home

_LEAVE = (
    "\x1b[?2026l"  # what was drawn shows
    "\x1b[<u\x1b[?2048l\x1b[?2004l\x1b[?1004l"  # keys, sizes, pastes and focus are told as before
    "\x1b[?1016l\x1b[?1015l\x1b[?1006l\x1b[?1003l\x1b[?1000l"  # no mouse
    "\x1b[?7h\x1b[?1049l\x1b[?25h\x1b[0m"  # the shell's screen, with its cursor
)


def mend_terminal() -> bool:
    """Undo what a console that was killed in this terminal could not; whether there was anything.

    It left a note that nobody holds any more. A terminal without a note is not touched.
    """
    note = _note()
    if note is None or not note.exists():
        return False
    with contextlib.suppress(OSError, termios.error), note.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # a living console holds it
        note.unlink()
        _cook(sys.stdin.fileno())
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        return True
    return False


@contextlib.contextmanager
def noted_terminal() -> Iterator[None]:
    """While the console has the terminal, it holds a note of that: a kill lets go of it, and leaves it there."""
    note = _note()
    with contextlib.ExitStack() as held:
        if note is not None:
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                fcntl.flock(held.enter_context(note.open("wb")), fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            yield
        finally:
            if note is not None:
                with contextlib.suppress(OSError):
                    note.unlink()


def _note() -> Path | None:
    """One file for each terminal; None where there is none."""
    try:
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            return None
        name = os.ttyname(sys.stdin.fileno())
    except (OSError, ValueError):
        return None
    return state_home() / "terminals" / name.strip("/").replace("/", "-")


def _cook(descriptor: int) -> None:
    """Lines are edited and echoed again, interrupt and end of line mean what they did."""
    modes = termios.tcgetattr(descriptor)
    modes[0] |= termios.BRKINT | termios.ICRNL | termios.IXON
    modes[1] |= termios.OPOST | termios.ONLCR
    modes[3] |= termios.ICANON | termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ISIG | termios.IEXTEN
    modes[6][termios.VMIN], modes[6][termios.VTIME] = 1, 0
    termios.tcsetattr(descriptor, termios.TCSADRAIN, modes)
