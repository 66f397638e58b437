"""Acceptance of a cell: from its requests where they tell, else from the engine's counters over this cell alone.

A request's first token comes from the prefill; every decode or verify step after it yields one token that was not
drafted. So steps = output tokens - accepted drafts - requests, which counts the steps that drafted nothing too. An
engine's own figure that leaves those out stands beside ours as `engine_length`. The last step of a request that ends
at its length may hold accepted drafts without the token after them: then the engine's count of steps, where it is
higher, is the right one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddconsole.core.figures import acceptance_of
from ddconsole.core.records import Acceptance, RequestOutcome, RequestRecord
from ddconsole.core.sweep import Deployment
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
    accepted_at = told.accepted_at if told.accepted_at is not None else counted.accepted_at
    return replace(told, steps=steps, engine_length=counted.engine_length, accepted_at=accepted_at)


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
    accepted_at = _by_position(before, after)
    if verify_steps:
        return Acceptance(tokens, verify_steps, drafted, accepted, "counters", accepted_at=accepted_at)
    if accepted is not None and tokens - accepted - requests > 0:
        own = 1 + accepted / drafting_steps if drafting_steps else None
        steps = max(tokens - accepted - requests, drafting_steps or 0)
        return Acceptance(tokens, steps, drafted, accepted, "counters", engine_length=own, accepted_at=accepted_at)
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


USELESS = 1.05
"""Tokens a step up to which a draft gives next to nothing."""


def acceptance_flags(
    acceptance: Acceptance | None, requests: int, depth: int | None, *, drafts: bool, random_words: bool = False
) -> list[str]:
    """What is impossible or suspicious in a cell's acceptance.

    A step yields one token at least, and with all drafts accepted one more than the draft is deep; a request's first
    token comes from its prefill, of no step.

    Args:
        acceptance: of the cell.
        requests: that it is of.
        depth: of the draft, in tokens; None where that is not known.
        drafts: whether a model drafts, which can be broken; text that is looked up may just not repeat itself.
        random_words: whether the prompts are random words, which no draft foresees.
    """
    if acceptance is None or not acceptance.steps or acceptance.source == "baseline":
        return []
    length = acceptance.tokens / acceptance.steps
    if length < 1:
        return [f"{acceptance.steps} verify steps for {acceptance.tokens} tokens: a step yields one at least"]
    most = (acceptance.tokens - requests) / acceptance.steps
    if depth is not None and most > depth + 1:
        return [
            f"{most:.2f} tokens a verify step are impossible: the draft is {depth} deep, so {depth + 1} is the most"
        ]
    if random_words:
        return [f"acceptance {length:.2f} is of prompts of random words, which understate it"]
    if drafts and length <= USELESS:
        return [
            f"the draft is accepted next to never ({length:.2f} tokens a step): is it the model's, with its template?"
        ]
    return []


def draft_depth(deployment: Deployment, engine: str, effective: Mapping[str, Any]) -> int | None:
    """Tokens that are drafted in a row at most; None where neither server nor plan tells.

    SGLang's `num_draft_tokens` and a block's size count the token after the last accepted draft too; DFlash and DDTree
    force `num_steps` to 1.
    """
    typed = deployment.speculative
    if typed is not None and typed.block_size and typed.kind in ("dflash", "ddtree"):
        return typed.block_size - 1
    algorithm = str(effective.get("speculative_algorithm") or "").upper()
    for name in ("speculative_num_speculative_tokens", "speculative_num_steps"):
        told = effective.get(name)
        if isinstance(told, int) and told > 0 and algorithm not in ("DFLASH", "DDTREE", "NGRAM"):
            return told
    if typed is None or typed.draft_tokens is None:
        return None
    return typed.draft_tokens - 1 if engine == "sglang" else typed.draft_tokens


def _by_position(before: Counters, after: Counters) -> tuple[int, ...] | None:
    if after.accepted_at is None:
        return None
    old = before.accepted_at or ()
    found = tuple(new - (old[place] if place < len(old) else 0) for place, new in enumerate(after.accepted_at))
    return found if min(found, default=0) >= 0 else None


def _difference(before: int | None, after: int | None) -> int | None:
    if before is None or after is None or after < before:
        return None
    return after - before
