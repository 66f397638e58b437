"""Two real consoles in two terminals on one real sweep: one controls, the other watches, asks, and takes over."""

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tmux_shell import require_tmux

from ddconsole.core import states as st
from tests.console.test_keys_on_a_real_sweep import PLAN, ROOT, Console, leave

LONG_CELLS = PLAN.replace("[20, 24, 28, 32]", "[400, 410]")

pytestmark = [pytest.mark.tmux, pytest.mark.engine]


class SecondConsole(Console):
    """Attached to the first one's run, in a terminal of its own."""

    def __init__(self, first: Console) -> None:
        self.folder, self.run = first.folder, first.run
        self._tmux = ["tmux", "-S", str(first.folder / "t2"), "-f", "/dev/null"]
        environment = {
            "XDG_STATE_HOME": self.folder / "state",
            "DDCONSOLE_RUNS": self.folder / "runs",
            "TERM": "xterm-256color",
        }
        given = [word for name, value in environment.items() for word in ("-e", f"{name}={value}")]
        program = f"{sys.executable} -m ddconsole attach keys; echo LEFT WITH $?; exec sleep 600"
        size = ["-x", "80", "-y", "24"]
        subprocess.run([*self._tmux, "new-session", "-d", *size, *given, program], check=True, cwd=ROOT)

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def two_consoles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Console, SecondConsole]]:
    require_tmux()
    first = Console(tmp_path_factory.mktemp("d"), 80, 24, LONG_CELLS)
    try:
        first.until(lambda state: bool(state.created), 120)
        second = SecondConsole(first)
        yield first, second
        second.close()
    finally:
        first.end()


@pytest.mark.timeout(300)
def test_control_is_taken_after_asking_and_its_loss_is_shown(two_consoles: tuple[Console, SecondConsole]) -> None:
    first, second = two_consoles
    begun = first.until(lambda state: state.controller is not None, 60)
    assert begun.controller is not None
    first_console = begun.controller.console

    second.until_shown("T take control", 60)
    second.until_shown("You watch. Control: ")
    first.until_shown("+1 watching")
    second.press("p")
    second.until_shown("Take control from")
    second.until_shown("has had control since")
    second.until_shown("its console: connected")
    second.until_shown("pause is not done yet")
    second.press("n")
    assert first.state().phase is st.RunPhase.RUNNING

    second.press("p")
    second.until_shown("Take control from")
    second.confirm()
    taken = first.until(lambda state: state.controller is not None and state.controller.console != first_console)
    assert taken.phase is st.RunPhase.RUNNING
    second.until_shown("press p again")
    first.until_shown("You lost control to", 5.0)
    first.until_shown("and only watch")
    first.until_shown("T take it back")

    second.press("p")
    second.until(lambda state: state.phase is st.RunPhase.PAUSED)
    first.press("P")
    first.until_shown("Take control from")
    time.sleep(0.5)
    first.press("n")
    time.sleep(0.5)
    assert first.state().phase is st.RunPhase.PAUSED

    first.press("T")
    first.until_shown("Take control from")
    first.confirm()
    first.until(lambda state: state.controller is not None and state.controller.console == first_console)
    second.until_shown("You lost control to", 5.0)
    first.press("P")
    first.until(lambda state: state.phase is st.RunPhase.RUNNING)
    first.press("C-x")
    first.until_shown("Stop the whole sweep now?")
    first.confirm()
    first.until(lambda state: state.phase is st.RunPhase.ENDED and state.live_launch() is None, 60)
    leave(second)
    leave(first)
