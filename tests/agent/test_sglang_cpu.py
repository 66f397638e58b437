"""SGLang on the CPU, swept by the same code: needs an interpreter with SGLang, so it is a trial and no part of CI.

    DDCONSOLE_SGLANG_PYTHON=VENV/bin/python DDCONSOLE_SGLANG_MODELS=FOLDER make trials

FOLDER holds `tinypy-hf` and `tinypy-draft-hf`, Hugging Face folders of a model and its draft.
"""

import json
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.attempt_file import attempt_from_json
from ddconsole.core.clock import SystemClock
from ddconsole.core.wire import Submission

pytestmark = [pytest.mark.trial, pytest.mark.engine]

ENVIRONMENT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "FEAS_AMX_ATTENTION": "1"}
FLAGS: dict[str, Any] = {
    "device": "cpu",
    "context_length": 2048,
    "max_total_tokens": 16384,
    "sleep_on_idle": True,
    "dtype": "float32",
    "attention_backend": "intel_amx",
}


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    one = Service(tmp_path / "runs", SystemClock())
    await one.start()
    yield one
    await one.stop()


def order() -> Submission:
    python, models = os.environ.get("DDCONSOLE_SGLANG_PYTHON"), os.environ.get("DDCONSOLE_SGLANG_MODELS")
    if not python or not models:
        pytest.fail("name an interpreter with SGLang in DDCONSOLE_SGLANG_PYTHON, and DDCONSOLE_SGLANG_MODELS")
    draft = f"{models}/tinypy-draft-hf"
    speculation: dict[str, Any] = {
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": draft,
        "speculative_num_steps": 4,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 5,
    }
    plan = [deployment("d01", **FLAGS), deployment("d02", "standalone", **FLAGS, **speculation)]
    plan = [replace(one, env=ENVIRONMENT) for one in plan]
    made = submission(plan, cells("d01", 2, max_tokens=64) + cells("d02", 2, 3, max_tokens=64), ready_timeout=300.0)
    engine = {**made.engine, "kind": "sglang", "command": [python, "-m", "sglang.launch_server"]}
    model = {"path": f"{models}/tinypy-hf", "draft": draft, "source": None}
    return replace(made, engine=engine, model=model)


@pytest.mark.timeout(600)
async def test_acceptance_from_requests_equals_the_difference_of_the_counters(service: Service) -> None:
    service.submit(order())
    state = await until(service, "test-run", ended, 540)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
    run = directory(service)
    for name in ("c003", "c004"):
        attempt = attempt_from_json(json.loads(run.attempt(name, 1).read_bytes()))
        before, after = attempt.counters["before"], attempt.counters["after"]
        told = [one.acceptance for one in attempt.requests]
        assert sum(one.steps or 0 for one in told if one) == after["verify_steps"] - before["verify_steps"] > 0
        assert (
            sum(one.output_tokens or 0 for one in attempt.requests) == after["output_tokens"] - before["output_tokens"]
        )
        assert attempt.figures["acceptance"]["source"] == "request"
        assert 1 < attempt.figures["acceptance"]["tokens"] / attempt.figures["acceptance"]["steps"] <= 5
        assert attempt.effective["speculative_algorithm"] == "STANDALONE"
        assert attempt.flags == ()
    assert survivors(run, state) == []
