"""What only a real terminal shows: that it is left as it was found, and what goes over the wire."""

import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 40.0
"""Seconds until a slow machine has done what a fast one does at once."""

_NO_TMUX = shutil.which("tmux") is None and os.environ.get("CI") != "true"

pytestmark = [pytest.mark.tmux, pytest.mark.skipif(_NO_TMUX, reason="tmux is not installed")]


class Pane:
    """A tmux server of its own with one pane."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "s")
        self.folder = folder

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", "/dev/null", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def start(self, scene: str = "midway", size: tuple[int, int] = (80, 24)) -> None:
        pid_file, code_file = self.folder / "pid", self.folder / "code"
        python = shlex.quote(sys.executable)
        inner = f"echo $$ > {pid_file}; exec {python} -m tests.screens.preview {scene}"
        line = f"cd {ROOT}; sh -c {shlex.quote(inner)}; echo $? > {code_file}; echo LEFT; exec cat"
        environment = ["-e", "LC_ALL=C.UTF-8", "-e", f"XDG_STATE_HOME={self.folder}"]
        width, height = size
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), *environment, line)
        self.wait(lambda: "1 Sweep" in self.text() and "c029 running" in self.text())

    def text(self) -> str:
        return self.tmux("capture-pane", "-p")

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def modes(self) -> str:
        return self.tmux("display", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}").strip()

    @property
    def pid(self) -> int:
        return int((self.folder / "pid").read_text())

    def wait(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not until():
            if time.monotonic() > deadline:
                pytest.fail(f"this did not come:\n{self.text()}")
            time.sleep(0.05)


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Pane]:
    made = Pane(tmp_path)
    yield made
    made.tmux("kill-server")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_console_and_leaves_the_terminal_as_it_was(pane: Pane, number: signal.Signals) -> None:
    pane.start()
    assert pane.modes().split()[:2] == ["1", "1"]
    os.kill(pane.pid, number)
    pane.wait(lambda: "LEFT" in pane.text())
    assert pane.modes() == "0 0 1"
    assert (pane.folder / "code").read_text().strip() == str(128 + number)
    assert "Traceback" not in pane.text()


def test_quitting_leaves_the_terminal_as_it_was(pane: Pane) -> None:
    pane.start()
    pane.keys("q")
    pane.wait(lambda: "Leave the console?" in pane.text())
    time.sleep(0.4)
    pane.keys("y")
    pane.wait(lambda: "LEFT" in pane.text())
    assert pane.modes() == "0 0 1"
    assert (pane.folder / "code").read_text().strip() == "0"


def test_a_defect_of_the_console_is_kept_in_a_file_and_said_in_two_lines(pane: Pane) -> None:
    pane.start("defect")
    pane.wait(lambda: "LEFT" in pane.text())
    assert pane.modes() == "0 0 1"
    assert (pane.folder / "code").read_text().strip() == "70"
    text = pane.text().replace("\n", "")
    assert "Traceback" not in text
    assert "The sweep on ct200 goes on: ddconsole attach ddtree-ct200-0412" in text
    assert "Traceback" in (pane.folder / "ddconsole/console-defect.txt").read_text()


def test_keys_work_and_states_are_words_in_a_real_terminal(pane: Pane) -> None:
    pane.start()
    pane.keys(".")
    pane.wait(lambda: "c046 blocked" in pane.text())
    assert "--speculative-ddtree-budget" in pane.text()
    pane.keys("3")
    pane.wait(lambda: "NUMA 1" in pane.text())


def test_a_terminal_that_is_gone_ends_the_console_even_where_hangups_are_ignored() -> None:
    pid, master = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.environ.update(LC_ALL="C.UTF-8", TERM="xterm-256color")
        os.execv(sys.executable, [sys.executable, "-m", "tests.screens.preview"])
    seen = b""
    deadline = time.monotonic() + PATIENCE
    while b"Sweep" not in seen and time.monotonic() < deadline:
        seen += os.read(master, 65536)
    assert b"Sweep" in seen
    os.close(master)
    try:
        while time.monotonic() < deadline:
            gone, _ = os.waitpid(pid, os.WNOHANG)
            if gone:
                return
            time.sleep(0.1)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the console outlived its terminal")
