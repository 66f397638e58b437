"""SGLang on the CPU, swept by the same code: needs an interpreter with SGLang, so it is a trial and no part of CI.

    DDCONSOLE_SGLANG_PYTHON=VENV/bin/python DDCONSOLE_SGLANG_MODELS=FOLDER make trials

FOLDER holds `tinypy-hf` and `tinypy-draft-hf`, Hugging Face folders of a model and its draft.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from sglang_cpu import ENVIRONMENT, FLAGS, folders
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.attempt_file import AttemptFile, attempt_from_json
from ddconsole.core.sweep import Cell, Speculative
from ddconsole.core.wire import Submission

pytestmark = [pytest.mark.trial, pytest.mark.engine]


def order() -> Submission:
    """A baseline, and one speculative method twice: typed, and by raw flags that mean the same."""
    python, models = folders()
    draft = f"{models}/tinypy-draft-hf"
    raw: dict[str, Any] = {
        "speculative_algorithm": "STANDALONE",
        "speculative_draft_model_path": draft,
        "speculative_num_steps": 4,
        "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": 5,
    }
    typed = replace(deployment("d02", "typed", **FLAGS), speculative=Speculative("draft", draft_tokens=5))
    plan = [deployment("d01", **FLAGS), typed, deployment("d03", "raw", **FLAGS, **raw)]
    plan = [replace(one, env=ENVIRONMENT) for one in plan]
    made = submission(plan, [cell for n, one in enumerate(plan) for cell in two_cells(one.id, n)], ready_timeout=150.0)
    engine = {**made.engine, "kind": "sglang", "command": [python, "-m", "sglang.launch_server"]}
    model = {"path": f"{models}/tinypy-hf", "draft": draft, "source": None}
    return replace(made, engine=engine, model=model)


def two_cells(deployment_id: str, index: int) -> list[Cell]:
    """One request at a time, then two."""
    first = 1 + 2 * index
    alone = cells(deployment_id, 1, first, max_tokens=64)
    return alone + cells(deployment_id, 1, first + 1, max_tokens=64, concurrency=2)


@pytest.mark.timeout(600)
async def test_acceptance_from_requests_equals_the_difference_of_the_counters(service: Service) -> None:
    service.submit(order())
    state = await until(service, "test-run", ended, 540)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
    run = directory(service)
    attempts = {name: attempt_from_json(json.loads(run.attempt(name, 1).read_bytes())) for name in state.cells}
    for attempt in attempts.values():
        before, after = attempt.counters["before"], attempt.counters["after"]
        for counted in ("output_tokens", "prompt_tokens", "cached_tokens"):
            told = sum(getattr(one, counted) or 0 for one in attempt.requests)
            # SGLang has no sample of cached tokens until the first hit.
            start = before[counted] or 0 if counted == "cached_tokens" else before[counted]
            assert told == (after[counted] or 0) - start, (attempt.cell, counted)
        # The machine that the test runs on may be too busy for the load generator: that is told, and no fault here.
        assert [flag for flag in attempt.flags if not flag.startswith("the load generator")] == []
    for name in ("c001", "c002"):
        assert attempts[name].figures["acceptance"]["source"] == "baseline"
        assert attempts[name].effective["speculative_algorithm"] is None
    for name in ("c003", "c004", "c005", "c006"):
        verify_steps(attempts[name])
    assert speculation(attempts["c003"]) == speculation(attempts["c005"])
    assert survivors(run, state) == []


def verify_steps(attempt: AttemptFile) -> None:
    """Every request tells its steps, and together they are what the engine counted over the cell."""
    told = [one.acceptance.steps if one.acceptance else None for one in attempt.requests]
    assert None not in told
    before, after = attempt.counters["before"], attempt.counters["after"]
    assert sum(steps or 0 for steps in told) == after["verify_steps"] - before["verify_steps"] > 0
    acceptance = attempt.figures["acceptance"]
    assert acceptance["source"] == "request"
    # Four drafted tokens and the bonus token are the most that a step yields; the prefill's own token has no step.
    assert 1 < acceptance["tokens"] / acceptance["steps"] <= 5
    assert attempt.effective["speculative_algorithm"] == "STANDALONE"


def speculation(attempt: AttemptFile) -> Mapping[str, Any]:
    """What the server took of the speculative flags."""
    return {name: value for name, value in attempt.effective.items() if name.startswith("speculative_")}
