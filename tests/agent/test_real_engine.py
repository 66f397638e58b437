"""A sweep on a real inference server: llama.cpp's, with the tiny model of the fixtures and its draft."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from sweeps import cells, deployment, directory, ended, phases, submission, survivors, until

from ddconsole.agent.service import Service
from ddconsole.core import states as st
from ddconsole.core.attempt_file import AttemptFile, attempt_from_json
from ddconsole.core.sweep import Cell, Deployment, Speculative
from ddconsole.core.wire import Submission

MODELS = Path(__file__).parents[1] / "fixtures" / "models"

pytestmark = pytest.mark.engine


def real(deployments: list[Deployment], all_cells: list[Cell]) -> Submission:
    order = submission(deployments, all_cells)
    command = [sys.executable, "-m", "ddconsole.engines.xllamacpp_server"]
    model = {"path": str(MODELS / "tinypy.gguf"), "draft": str(MODELS / "tinypy-draft.gguf"), "source": None}
    return replace(order, engine={**order.engine, "command": command}, model=model)


def attempt_of(service: Service, name: str) -> AttemptFile:
    return attempt_from_json(json.loads(directory(service).attempt(name, 1).read_bytes()))


def disagreements(attempt: AttemptFile) -> list[str]:
    """Its flags, without those that tell of the machine that the test runs on."""
    return [flag for flag in attempt.flags if not flag.startswith("the load generator")]


async def test_acceptance_of_requests_equals_the_difference_of_the_engines_counters(service: Service) -> None:
    drafting = replace(deployment("d02", "draft"), speculative=Speculative(kind="draft", draft_tokens=4))
    service.submit(
        real([deployment("d01"), drafting], cells("d01", 1, max_tokens=128) + cells("d02", 1, 2, max_tokens=128))
    )
    state = await until(service, "test-run", ended, 90)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
    baseline = attempt_of(service, "c001")
    assert baseline.figures["acceptance"]["tokens"] == baseline.figures["acceptance"]["steps"]
    drafted = attempt_of(service, "c002")
    told = [one.acceptance for one in drafted.requests]
    before, after = drafted.counters["before"], drafted.counters["after"]
    assert sum(one.accepted or 0 for one in told if one) == after["accepted"] - before["accepted"]
    assert sum(one.drafted or 0 for one in told if one) == after["drafted"] - before["drafted"]
    assert sum(one.output_tokens or 0 for one in drafted.requests) == after["output_tokens"] - before["output_tokens"]
    length = drafted.figures["acceptance"]["tokens"] / drafted.figures["acceptance"]["steps"]
    assert 1.2 < length <= 5
    assert disagreements(drafted) == []
    # Greedy decoding: speculation changes the speed and not the text.
    assert [one.text_sha256 for one in drafted.requests] == [one.text_sha256 for one in baseline.requests]
    assert survivors(directory(service), state) == []


async def test_acceptance_is_what_the_engine_was_told_to_simulate(service: Service) -> None:
    """Drafts are accepted at random, with these probabilities to reach each position: 1 + 1.9 tokens a step.

    One step's accepted drafts have a variance of 0.9 + 3 x 0.6 + 5 x 0.3 + 7 x 0.1 - 1.9^2 = 1.29.
    """
    rates = (0.9, 0.6, 0.3, 0.1)
    told = deployment("d01", "draft", spec_synth_rates=",".join(map(str, rates)))
    drafting = replace(told, speculative=Speculative(kind="draft", draft_tokens=4))
    service.submit(real([drafting], cells("d01", 1, max_tokens=384)))
    state = await until(service, "test-run", ended, 90)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
    attempt = attempt_of(service, "c001")
    steps = attempt.figures["acceptance"]["steps"]
    length = attempt.figures["acceptance"]["tokens"] / steps
    accepted = attempt.counters["after"]["accepted"] - attempt.counters["before"]["accepted"]
    # Each of the two requests has one token from its prefill; its last step may lack the token after its drafts.
    assert 0 <= steps - (2 * 384 - 2 - accepted) <= 2
    assert abs(length - (1 + sum(rates))) < 4 * (1.29 / steps) ** 0.5


async def test_an_open_loop_of_random_prompts(service: Service) -> None:
    cell, *_ = cells("d01", 1, max_tokens=8)
    asked = replace(
        cell.point, kind="open-loop", prompts="random:40", requests=6, repetitions=1, rate=20.0, arrivals="constant"
    )
    service.submit(real([deployment("d01")], [replace(cell, point=asked)]))
    state = await until(service, "test-run", ended, 90)
    assert {row.state.phase for row in state.cells.values()} == {st.CellPhase.DONE}, phases(state)
    attempt = attempt_of(service, cell.id)
    meant = [one.intended or 0 for one in sorted(attempt.requests, key=lambda one: one.index)]
    assert [round(at - meant[0], 6) for at in meant] == [0, 0.05, 0.1, 0.15, 0.2, 0.25]
    assert len({one.prompt for one in attempt.requests}) == 6
    lengths = {one.prompt_tokens for one in attempt.requests}
    assert max(one or 0 for one in lengths) - min(one or 0 for one in lengths) <= 2, (
        "what the chat template adds is equal"
    )
