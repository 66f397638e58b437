"""Acceptance of a cell: from its requests where they tell, else from the engine's counters over this cell alone.

A request's first token comes from the prefill; every decode or verify step after it yields one token that was not
drafted. So steps = output tokens - accepted drafts - requests, which counts the steps that drafted nothing too. An
engine's own figure that leaves those out stands beside ours as `engine_length`. The last step of a request that ends
at its length may hold accepted drafts without the token after them: then the engine's count of steps, where it is
higher, is the right one.
"""

from collections.abc import Sequence
from dataclasses import replace

from ddconsole.core.figures import acceptance_of
from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord
from ddconsole.engines.engine import Counters


def with_steps(record: RequestRecord) -> RequestRecord:
    """The record with its verify steps worked out, where the engine told accepted drafts but no steps."""
    told = record.acceptance
    if told is None or told.steps is not None or told.accepted is None or record.output_tokens is None:
        return record
    steps = record.output_tokens - 1 - told.accepted
    return replace(record, acceptance=replace(told, steps=steps)) if steps > 0 else record


def cell_acceptance(
    records: Sequence[RequestRecord], before: Counters | None, after: Counters | None, *, speculating: bool
) -> Acceptance | None:
    """The acceptance of a cell; None when it is unknown, which is not 1.00."""
    good = [record for record in records if record.outcome is RequestOutcome.OK]
    if not speculating:
        tokens = sum(record.output_tokens or 0 for record in good)
        return Acceptance(tokens, tokens, None, None, "baseline") if tokens else None
    counted = acceptance_from_counters(before, after, len(records))
    told = acceptance_of(good)
    if told is None or counted is None:
        return told or counted
    steps = told.steps
    # Only where our steps were worked out from accepted drafts: an engine that counts every step is exact.
    worked_out = _difference(before.verify_steps, after.verify_steps) is None if before and after else False
    short = steps and counted.steps and steps < counted.steps <= steps + len(records)
    if worked_out and short and told.tokens == counted.tokens:
        steps = counted.steps
    return replace(told, steps=steps, engine_length=counted.engine_length)


def acceptance_from_counters(before: Counters | None, after: Counters | None, requests: int) -> Acceptance | None:
    """Difference of the engine's counters over a cell of so many requests."""
    if before is None or after is None:
        return None
    tokens = _difference(before.output_tokens, after.output_tokens)
    accepted = _difference(before.accepted, after.accepted)
    drafted = _difference(before.drafted, after.drafted)
    verify_steps = _difference(before.verify_steps, after.verify_steps)
    drafting_steps = _difference(before.drafting_steps, after.drafting_steps)
    if not tokens:
        return None
    if verify_steps:
        return Acceptance(tokens, verify_steps, drafted, accepted, "counters")
    if accepted is not None and tokens - accepted - requests > 0:
        own = 1 + accepted / drafting_steps if drafting_steps else None
        steps = max(tokens - accepted - requests, drafting_steps or 0)
        return Acceptance(tokens, steps, drafted, accepted, "counters", engine_length=own)
    return None


def counter_flags(records: Sequence[RequestRecord], before: Counters | None, after: Counters | None) -> tuple[str, ...]:
    """What the engine's counters contradict in the records."""
    if before is None or after is None or any(one.outcome is not RequestOutcome.OK for one in records):
        return ()
    flags = []
    counted = _difference(before.output_tokens, after.output_tokens)
    told = sum(one.output_tokens or 0 for one in records)
    if counted is not None and counted != told:
        flags.append(f"the engine counted {counted} output tokens over this cell, its answers told {told}")
    steps = _difference(before.verify_steps, after.verify_steps)
    if steps and acceptance_of(records) is not None:
        told_steps = sum(one.acceptance.steps or 0 for one in records if one.acceptance)
        if told_steps != steps:
            flags.append(f"the engine counted {steps} verify steps over this cell, its answers told {told_steps}")
    return tuple(flags)


def _difference(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before
