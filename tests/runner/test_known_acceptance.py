"""Acceptance where the truth is known: SGLang was told to simulate an acceptance length of 3.3 (recorded on an H200).

Three draft steps, so that a verify step yields at most four tokens. The numbers are the recording's: twelve requests,
ten of 192 and two of 96 tokens.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ddconsole.engines.engine import Answer, Counters
from ddconsole.engines.register import engine
from ddconsole.runner.acceptance import acceptance_from_counters

FIXTURES = Path(__file__).parents[1] / "fixtures" / "load"
ASKED = 3.3
"""`SGLANG_SIMULATE_ACC_LEN` of the recorded server."""


class Metrics:
    """A server that answers `/metrics` as it was recorded."""

    def __init__(self, text: str) -> None:
        self._text = text

    async def get(self, path: str, timeout: float = 5.0) -> Answer:  # noqa: ARG002
        return Answer(200, None, self._text) if path == "/metrics" else Answer(404, None, "")

    async def post(self, path: str, body: Mapping[str, Any] | None = None, timeout: float = 30.0) -> Answer:  # noqa: ARG002
        raise AssertionError(path)


async def counted(when: str) -> Counters:
    told = json.loads((FIXTURES / "sglang-0.5.16-spec-eagle-metrics.json").read_text())[when]
    counters = await engine("sglang").counters(Metrics(told))
    assert counters is not None
    return counters


async def test_the_simulated_acceptance_of_sglang_is_measured_within_rounding() -> None:
    before, after = await counted("idle"), await counted("after")
    measured = acceptance_from_counters(before, after, requests=12)
    assert measured is not None
    assert (measured.tokens, measured.steps) == (10 * 192 + 2 * 96, 640 - 3)
    assert measured.length is not None
    assert round(measured.length, 1) == ASKED
    # The engine's own gauge is that of its last log interval: it says 3.5.
    assert after.raw["sglang:spec_accept_length"] == 3.5


def test_one_requests_acceptance_is_the_engines_own_and_that_of_its_histogram() -> None:
    """37 steps accepted two drafts and 20 accepted three: 57 steps and 134 drafts, and the prefill's own token."""
    told = json.loads((FIXTURES / "sglang-0.5.16-meta-info.json").read_text())["spec-eagle"]
    histogram = told["spec_accept_histogram"]
    steps = sum(histogram)
    accepted = sum(drafts * times for drafts, times in enumerate(histogram))
    assert (steps, accepted, told["completion_tokens"]) == (57, 134, 1 + steps + accepted)
    assert told["completion_tokens"] / steps == pytest.approx(told["spec_accept_length"])
    assert told["spec_accept_length"] == pytest.approx(ASKED, abs=0.1)
