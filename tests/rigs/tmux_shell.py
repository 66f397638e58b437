"""A shell in a tmux pane of its own, in which consoles are started and killed."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def require_tmux() -> None:
    """CI has it; elsewhere a test without it is skipped."""
    if shutil.which("tmux") is None:
        missing = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        missing("tmux is not installed")


class TmuxShell:
    """`sh`, which leaves the terminal's modes as the last program left them."""

    def __init__(self, folder: Path, environment: Mapping[str, str], size: tuple[int, int] = (160, 45)) -> None:
        self.folder = folder
        self._tmux = ["tmux", "-S", str(folder / "t"), "-f", "/dev/null"]
        given = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        width, height = size
        command = [*self._tmux, "new-session", "-d", "-x", str(width), "-y", str(height), *given, "exec sh"]
        subprocess.run(command, check=True, cwd=ROOT)

    def start(self, *arguments: str) -> tuple[int, float]:
        """Start ddconsole in the pane: its pid, and when (monotonic)."""
        note = self.folder / "pid"
        note.unlink(missing_ok=True)
        program = f"{shlex.quote(sys.executable)} -m ddconsole {shlex.join(arguments)}"
        # What a killed console left on the screen must not be taken for what this one shows.
        self.type(f"printf '\\033[2J'; sh -c 'echo $$ >{note}.new; mv {note}.new {note}; exec {program}'")
        self.until(note.exists)
        return int(note.read_text()), time.monotonic()

    def kill(self, pid: int) -> None:
        """With -9, and wait until the shell has seen it."""
        os.kill(pid, signal.SIGKILL)
        self.until(lambda: not Path(f"/proc/{pid}").exists())

    def type(self, line: str) -> None:
        """A line and enter, behind what a killed program left unread.

        A raw terminal has no enter key: there it is a line feed that ends a line.
        """
        subprocess.run([*self._tmux, "send-keys", "C-j"], check=True)
        subprocess.run([*self._tmux, "send-keys", "-l", line], check=True)
        subprocess.run([*self._tmux, "send-keys", "C-j"], check=True)

    def press(self, *keys: str) -> None:
        """Keys by tmux's names."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def screen(self) -> str:
        """What is seen."""
        return subprocess.run([*self._tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout

    def modes(self) -> str:
        """Alternate screen, mouse, cursor: `0 0 1` in a terminal as a shell has it."""
        argv = [*self._tmux, "display-message", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}"]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()

    def line_discipline(self) -> set[str]:
        """The words of `stty -a`."""
        note = self.folder / "stty"
        note.unlink(missing_ok=True)
        self.type(f"stty -a >{note}.new; mv {note}.new {note}")
        self.until(note.exists)
        return set(note.read_text().replace(";", " ").split())

    def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait; what is seen goes into the message of a wait in vain."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                pytest.fail(f"this did not come:\n{self.screen()}")
            time.sleep(0.02)

    def end(self) -> None:
        """End the shell and what runs in it."""
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)
