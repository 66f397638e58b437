"""Acceptance of a cell: what the requests told, beside what the engine counted."""

from dataclasses import replace

import pytest

from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.core.sweep import Deployment, Placement, Speculative
from ddconsole.engines.engine import Counters
from ddconsole.runner.acceptance import (
    acceptance_flags,
    acceptance_from_counters,
    cell_acceptance,
    counter_flags,
    draft_depth,
    with_steps,
)


def record(steps: int | None, accepted: int | None = 6, tokens: int = 10) -> RequestRecord:
    told = Acceptance(tokens, steps, 8, accepted, "request")
    usage = TokenSource.USAGE
    ok = RequestOutcome.OK
    return RequestRecord(
        0, 0, "p", 0, 0, 0.0, 0.1, 1.0, 1.0, 4, (), 5, tokens, usage, 0, 0, "length", ok, None, "", told
    )


def test_an_engine_that_counts_every_step_is_exact_and_a_lost_one_is_flagged() -> None:
    records = [record(4), record(4)]
    before = Counters(output_tokens=0, verify_steps=0)
    assert counter_flags(records, before, Counters(output_tokens=20, verify_steps=8)) == ()
    (flag,) = counter_flags(records, before, Counters(output_tokens=20, verify_steps=9))
    assert flag == "the engine counted 9 verify steps over this cell, its answers told 8"
    found = cell_acceptance(records, before, Counters(output_tokens=20, verify_steps=9), speculating=True)
    assert found is not None
    assert (found.steps, found.source) == (8, "request")


def test_steps_worked_out_from_accepted_drafts_take_the_engines_higher_count() -> None:
    records = [with_steps(record(None)), with_steps(record(None))]
    assert [one.acceptance.steps for one in records if one.acceptance] == [3, 3]
    before = Counters(output_tokens=0, accepted=0, drafted=0, drafting_steps=0)
    after = Counters(output_tokens=20, accepted=12, drafted=16, drafting_steps=8)
    found = cell_acceptance(records, before, after, speculating=True)
    assert found is not None
    assert found.steps == 8
    assert found.engine_length == pytest.approx(1 + 12 / 8)


def test_unknown_is_not_one() -> None:
    silent = [record(None, None)]
    assert cell_acceptance(silent, None, None, speculating=True) is None
    baseline = cell_acceptance(silent, None, None, speculating=False)
    assert baseline is not None
    assert baseline.length == 1.0


@pytest.mark.parametrize(
    ("tokens", "steps", "said"),
    [
        (100, 101, "101 verify steps for 100 tokens: a step yields one at least"),
        # 165 tokens, of which 5 came from the prefills of 5 requests: 160 in 9 steps, 17.78 each, with 15 drafted.
        (165, 9, "17.78 tokens a verify step are impossible: the draft is 15 deep, so 16 is the most"),
        (165, 10, ""),
        (105, 100, "the draft is accepted next to never (1.05 tokens a step): is it the model's, with its template?"),
        (106, 100, ""),
    ],
)
def test_an_acceptance_that_cannot_be_and_one_that_is_next_to_nothing_are_flagged(
    tokens: int, steps: int, said: str
) -> None:
    """[5.18: sglang-jax#1586, SpecForge#741: acceptance 1.0 went unseen, for the output was right]"""
    told = Acceptance(tokens, steps, None, None, "request")
    assert acceptance_flags(told, 5, 15, drafts=True) == ([said] if said else [])


def test_text_that_is_looked_up_may_find_nothing_and_a_baseline_is_no_draft() -> None:
    useless = Acceptance(100, 100, 0, 0, "counters")
    assert acceptance_flags(useless, 5, 8, drafts=False) == []
    assert acceptance_flags(Acceptance(100, 100, None, None, "baseline"), 5, None, drafts=True) == []
    assert acceptance_flags(None, 5, None, drafts=True) == []
    assert acceptance_flags(Acceptance(500, 10, None, None, "request"), 5, None, drafts=True) == [], "depth unknown"


def test_random_words_understate_acceptance_and_that_is_said() -> None:
    """[2.1: vllm#52536]"""
    told = Acceptance(120, 100, None, None, "request")
    (flag,) = acceptance_flags(told, 5, 15, drafts=True, random_words=True)
    assert flag == "acceptance 1.20 is of prompts of random words, which understate it"
    assert acceptance_flags(replace(told, source="baseline"), 5, 15, drafts=False, random_words=True) == []


def speculating(**typed: object) -> Deployment:
    return Deployment("d01", "m", 1, 4, {}, {}, Placement(), Speculative(**typed) if typed else None)  # type: ignore[arg-type]  # by field


def test_the_depth_of_a_draft_is_what_the_server_told_or_the_plan_said() -> None:
    forced = {"speculative_algorithm": "DFLASH", "speculative_num_steps": 1}
    assert draft_depth(speculating(kind="dflash", block_size=16), "sglang", forced) == 15
    assert draft_depth(speculating(kind="ddtree", block_size=16, budget=64), "sglang", {}) == 15
    assert draft_depth(speculating(), "sglang", {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}) == 3
    assert draft_depth(speculating(), "vllm", {"speculative_num_speculative_tokens": 4}) == 4
    assert draft_depth(speculating(kind="ngram", draft_tokens=8), "llamacpp", {}) == 8
    assert draft_depth(speculating(kind="ngram", draft_tokens=8), "sglang", {}) == 7
    assert draft_depth(speculating(), "sglang", {}) is None


def test_acceptance_by_position_is_the_difference_over_this_cell_alone() -> None:
    """[2.1: vllm#31739] 100 steps here: 80 accepted the first draft, 50 the second, 10 the third: 240 tokens."""
    before = Counters(output_tokens=1000, verify_steps=500, accepted_at=(300, 100))
    after = Counters(output_tokens=1240, verify_steps=600, accepted_at=(380, 150, 10))
    told = acceptance_from_counters(before, after, requests=4)
    assert told is not None
    assert told.accepted_at == (80, 50, 10)
    assert told.histogram == (20, 30, 40, 10), "20 steps accepted nothing, 30 one draft, 40 two, 10 three"
    fallen = acceptance_from_counters(after, Counters(output_tokens=1300, verify_steps=650, accepted_at=(1,)), 4)
    assert fallen is not None
    assert fallen.accepted_at is None


def test_a_request_that_tells_no_positions_leaves_the_cell_without_them() -> None:
    one = record(4)
    assert one.acceptance is not None
    told = replace(one, acceptance=replace(one.acceptance, accepted_at=(3, 2)))
    other = replace(one, acceptance=replace(one.acceptance, accepted_at=(4,)))
    found = cell_acceptance([told, other], None, None, speculating=True)
    assert found is not None
    assert found.accepted_at == (7, 2)
    silent = cell_acceptance([told, one], None, None, speculating=True)
    assert silent is not None
    assert silent.accepted_at is None
