"""Acceptance of a cell: what the requests told, beside what the engine counted."""

import pytest

from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord, TokenSource
from ddconsole.engines.engine import Counters
from ddconsole.runner.acceptance import cell_acceptance, counter_flags, with_steps


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
