"""A smoke test of a plan: which servers it starts, and a real one on the command line."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from sweeps import TREE_SERVER
from tmux_shell import ROOT

from ddconsole.core import states as st
from ddconsole.core.fold import fold
from ddconsole.core.journal_line import read_lines
from ddconsole.link.connect import connect
from ddconsole.planfile.plan_file import find_plan, load_plan
from ddconsole.planfile.smoke import smoke_deployments, smoke_submission
from ddconsole.planfile.submission import plan_sweep

PLAN = f"""
name: small
host: local
model: {{path: {ROOT}/tests/fixtures/models/tinypy.gguf}}
engine: {{kind: llamacpp, command: ["{sys.executable}", {TREE_SERVER}], args: {{pace: 0.001}}}}
methods: {{ar: {{}}, wide: {{args: {{ctx-size: 2048}}}}}}
baseline: ar
workloads:
  generate: {{kind: single, prompts: five, max_tokens: [64, 128], repetitions: 3}}
placement: none
protocol: {{warmup: 2, launches: 3, ready_timeout: 60s, stall_timeout: 60s}}
"""


def test_one_server_of_each_kind_at_the_smallest_size() -> None:
    loaded = load_plan(find_plan("ct200-ddtree"))
    sweep = plan_sweep(loaded, loaded.plan)

    tried = smoke_deployments(sweep)
    sent = smoke_submission(sweep, "s-1", "ct200")

    assert [(one.method, one.tensor_parallel) for one in tried][:1] == [("ar", 1)]
    assert [one.speculative.kind for one in tried[1:] if one.speculative] == ["dflash", "ddtree"]
    assert {one.tensor_parallel for one in tried} == {1}
    assert [cell["point"]["max_tokens"] for cell in sent.cells] == [16, 16, 16]
    assert sent.displace, "what stands in the way is displaced and put back as for the sweep"
    assert sent.protocol["launches"] == 1


@pytest.mark.engine
def test_a_plan_is_tried_and_ends(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    places = {"XDG_STATE_HOME": str(tmp_path / "state"), "DDCONSOLE_RUNS": str(tmp_path / "runs")}

    ran = subprocess.run(
        [sys.executable, "-m", "ddconsole", "smoke", str(tmp_path / "plan.yaml")],
        cwd=ROOT, env={**os.environ, **places}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip

    asyncio.run(leave(tmp_path))
    assert ran.returncode == 0, ran.stderr
    (run,) = (path.parent for path in (tmp_path / "runs").glob("*/journal.jsonl"))
    state = fold(read_lines((run / "journal.jsonl").read_bytes())[0])
    assert state.phase is st.RunPhase.ENDED
    done = [row for row in state.cells.values() if isinstance(row.state, st.Done)]
    assert [row.cell.point.max_tokens for row in done] == [16]
    assert len(state.launches) == 1, "both methods decode the same way: one server is enough"


async def leave(folder: Path) -> None:
    """Tell the agent to go."""
    client = await connect("local", state_directory=str(folder / "state/ddconsole/local"), runs=folder / "runs")
    await client.quit()
    await client.close()
