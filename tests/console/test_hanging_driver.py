"""A call of the driver that does not come back, under a real console, agent and probe."""

import asyncio
import json
import os
import re
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest
from made_up_nvml import MadeUpNvml
from sweeps import TREE_SERVER
from tmux_shell import ROOT, TmuxShell, require_tmux

from ddconsole.link.connect import connect
from screens.confirm import KEYS_IGNORED_FOR

pytestmark = [pytest.mark.tmux, pytest.mark.engine]

PLAN = f"""
name: hang
host: local
model: {{path: {ROOT}/tests/fixtures/models/tinypy.gguf}}
engine: {{kind: llamacpp, command: ["{sys.executable}", {TREE_SERVER}], args: {{pace: 0.2}}}}
methods: {{ar: {{}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: 400, repetitions: 1}}
placement: none
sampling: {{temperature: 0, seed: 7, ignore_eos: true}}
protocol: {{warmup: 0, ready_timeout: 60s, stall_timeout: 60s}}
"""
HANGS = re.compile(r"1 no answer to nvmlDeviceGetPowerUsage since (\d\d:\d\d:\d\d)")


async def end_agent(folder: Path) -> list[psutil.Process]:
    """End the agent with its keeper; the probes that are left."""
    client = await connect("local", state_directory=str(folder / "state/ddconsole/local"), runs=folder / "runs")
    hello = await client.hello()
    await client.close()
    keeper = psutil.Process(hello.pid).parent()
    assert keeper is not None
    probes = [one for one in keeper.children(recursive=True) if "ddconsole.probe" in one.cmdline()]
    os.kill(keeper.pid, signal.SIGTERM)
    _, alive = psutil.wait_procs([keeper, *probes], timeout=30)
    return alive


def end_sweep(folder: Path) -> None:
    """End the runner with its server: the sweep goes on without an agent."""
    for one in psutil.process_iter(["cmdline", "ppid"]):
        if one.info["ppid"] == 1 and f"{folder}/" in " ".join(one.info["cmdline"] or []):
            for process in (*one.children(recursive=True), one):
                process.kill()


def temperature(shell: TmuxShell) -> str:
    """What the row of GPU 0 says."""
    found = re.search(r"│ +0 .* (\d+) °C", shell.screen())
    return found[1] if found else ""


def test_a_gpu_that_hangs_is_named_and_nothing_waits_for_it(tmp_path_factory: pytest.TempPathFactory) -> None:
    require_tmux()
    folder = tmp_path_factory.mktemp("h")
    (folder / "plan.yaml").write_text(PLAN)
    (folder / "runs").mkdir()
    nvml = MadeUpNvml(folder / "nvml", json.loads((ROOT / "tests/fixtures/nvml/h200x2.json").read_text()))
    places = {"XDG_STATE_HOME": str(folder / "state"), "DDCONSOLE_RUNS": str(folder / "runs")}
    asyncio.run(nvml.start_agent(folder / "state/ddconsole/local", folder / "runs"))
    shell = TmuxShell(folder, {**places, "TERM": "xterm-256color"})
    try:
        pid, _ = shell.start("run", str(folder / "plan.yaml"), "--name", "hang", "--force")
        shell.until(lambda: "running" in shell.screen() and "generate" in shell.screen())
        shell.press("3")
        shell.until(lambda: temperature(shell))
        nvml.stall()
        shell.until(lambda: HANGS.search(shell.screen()))
        since = HANGS.findall(shell.screen())
        then = temperature(shell)
        shell.until(lambda: temperature(shell) not in {"", then})  # the other GPU is read on
        assert HANGS.findall(shell.screen()) == since, "since then, not since the last try"
        shell.press("1")
        shell.until(lambda: "generate" in shell.screen())
        shell.press("4")
        shell.until(lambda: "generate" not in shell.screen())
        shell.press("3")
        shell.until(lambda: HANGS.search(shell.screen()))
        shell.press("q")
        shell.until(lambda: "Leave the console?" in shell.screen())
        time.sleep(KEYS_IGNORED_FOR)
        shell.press("y")
        shell.until(lambda: not psutil.pid_exists(pid), 20)
    finally:
        shell.end()
        left = asyncio.run(end_agent(folder))  # the call still hangs
        nvml.go_on()
        end_sweep(folder)
    assert left == []
