"""The host's disk fills up in the middle of a sweep: the console says which and what helps, and the sweep goes on."""

import asyncio
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nothing_lost import assert_nothing_lost
from odd_account import account, fill, folder, mounted
from operators_shell import OperatorsShell
from served_user import CopiedEngine, copied_engine
from sshd import Sshd, prepared
from tmux_shell import TmuxShell, require_tmux

from ddconsole.core import states as st
from ddconsole.core.run_state import RunState
from ddconsole.runner.run_directory import RunDirectory

pytestmark = [pytest.mark.ssh, pytest.mark.tmux, pytest.mark.engine]

RUN = "full"
SIZE = 24
"""MiB of the file system that the host's runs are on."""
PLAN = """
name: full
host: ct200
agent: {{state: {state}}}
model: {{path: {model}}}
engine: {{kind: llamacpp, command: {command}, env: {env}, args: {{threads: 1}}}}
methods: {{ar: {{}}, ngram: {{speculative: {{kind: ngram, draft_tokens: 4}}}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: [200, 210, 220, 230], repetitions: 1}}
placement: none
sampling: {{temperature: 0, seed: 7, ignore_eos: true}}
protocol: {{warmup: 0, ready_timeout: 60s, stall_timeout: 60s, launcher: process}}
"""


@dataclass(frozen=True)
class Host:
    """An account behind a real sshd, whose runs lie on a small file system of their own."""

    sshd: Sshd
    state: Path

    @property
    def runs(self) -> Path:
        return self.state / "runs"


@pytest.fixture
def host() -> Iterator[Host]:
    with folder() as home, account(home) as user, prepared() as sshd:
        host = Host(sshd, home / "state")
        host.runs.mkdir(parents=True)
        with mounted(host.runs, f"size={SIZE}m"):
            for path in (host.state, host.runs):
                os.chown(path, user.pw_uid, user.pw_gid)
            sshd.user = user
            sshd.start()
            yield host


@pytest.fixture(scope="module")
def engine() -> Iterator[CopiedEngine]:
    with copied_engine() as one:
        yield one


def acknowledged(state: RunState) -> dict[str, str]:
    """Cells that are done, with the hashes of their results."""
    return {
        name: attempt.sha256
        for name, row in state.cells.items()
        for attempt in row.attempts
        if attempt.outcome is st.CellPhase.DONE
    }


@pytest.mark.timeout(300)
async def test_the_console_says_which_disk_is_full_and_the_sweep_goes_on_after_space_was_made(
    host: Host, engine: CopiedEngine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    require_tmux()
    shell = OperatorsShell(tmp_path_factory.mktemp("d"), host.sshd, host.sshd.user.pw_name)
    plan = shell.folder / "plan.yaml"
    given = {"model": engine.model, "command": json.dumps(engine.command), "env": json.dumps(engine.environment)}
    plan.write_text(PLAN.format(state=host.state, **given))
    accepting = shell.start("preflight", str(plan), "--accept", "disk.space", "--because", "small on purpose")
    assert await asyncio.to_thread(accepting.wait, 100) in (0, 1), shell.said()
    screen = TmuxShell(shell.folder, {**shell.environment, "TERM": "xterm-256color"})
    filler, on_host = host.runs / "filler", RunDirectory(host.runs / RUN)
    try:
        screen.start("run", str(plan), "--name", RUN)
        screen.until(lambda: acknowledged(shell.state(RUN)) and shell.state(RUN).running_cell() is not None, 120)
        fill(filler)
        screen.until(lambda: shell.state(RUN).phase is st.RunPhase.PAUSED)
        because = shell.state(RUN).paused_because
        assert re.fullmatch(rf"disk full: \d+ KiB free in {host.runs}; free space, then resume", because)
        # As far as it fits beside the key, at any width.
        screen.until(lambda: because[:30] in screen.screen())
        assert "P resume" in screen.screen()
        screen.until(lambda: shell.state(RUN).running_cell() is None)
        before, journal = acknowledged(shell.state(RUN)), shell.mirror(RUN).journal.read_bytes()
        assert len(before) < len(shell.state(RUN).cells)

        # Told to go on although nothing was done about it, the sweep pauses again.
        paused = journal.count(b'"RunPaused"')
        screen.press("P")
        screen.until(lambda: shell.mirror(RUN).journal.read_bytes().count(b'"RunPaused"') > paused)

        filler.unlink()
        screen.press("P")
        screen.until(
            lambda: shell.state(RUN).phase is st.RunPhase.ENDED and shell.state(RUN).live_launch() is None, 120
        )
        screen.until(lambda: "complete" in screen.screen())
        state = assert_nothing_lost(on_host, requests=5)
        assert on_host.journal.read_bytes().startswith(journal)
        assert {name: acknowledged(state)[name] for name in before} == before
        screen.until(lambda: shell.mirror(RUN).journal.read_bytes() == on_host.journal.read_bytes())
        assert not list(on_host.path.rglob("*.unreadable-*"))
    finally:
        screen.end()
